"""What is checked: a Function, an operator, a module or any callable, seen the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch.autograd import Function

from pullback.bind.operator import Operator
from pullback.bind.registry import operators
from pullback.diagnostic import Rule, an

NotCallable = Rule("PB401", "not-callable")

Kind = Literal["function", "operator", "library", "module", "callable"]
# The parts of an operator that its author wrote.
Part = Literal["forward", "setup", "backward", "jvp", "vmap", "fake"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is checked.

    Attributes:
        name: to print: "Square", "demo::mul".
        kind: "function", an autograd.Function; "operator", pullback's; "library", registered with
            torch.library; "module"; "callable".
        given: the object itself.
        call: the function to call, with the author's arguments.
        parts: the Python functions that its author wrote, as far as they are known.
        operator: pullback's operator, for the kind "operator".
        overload: PyTorch's, for the kinds "operator" and "library".
    """

    name: str
    kind: Kind
    given: Any
    call: Callable[..., Any]
    parts: Mapping[Part, Callable[..., Any]]
    operator: Operator | None = None
    overload: torch._ops.OpOverload | None = None

    @property
    def function(self) -> type[Function] | None:
        """The autograd.Function, if it is one."""
        return self.given if self.kind == "function" else None

    @property
    def signature(self) -> inspect.Signature | None:
        """The parameters of a call, without ctx; None where they are not known."""
        try:
            if self.kind == "function":
                found = list(inspect.signature(self.parts["forward"]).parameters.values())
                return inspect.Signature(found if "setup" in self.parts else found[1:])
            if self.kind == "module":
                return inspect.signature(self.given.forward)
            return inspect.signature(self.parts.get("forward", self.call))
        except (TypeError, ValueError):  # written in C
            return None


def target_of(given: object) -> Target:
    """Return what is to be checked.

    Raises:
        PullbackError: PB401, it cannot be called.
    """
    owner = getattr(given, "__self__", None)
    if getattr(given, "__name__", None) == "apply" and is_function(owner):
        given = owner
    if is_function(given):
        return of_function(given)
    if isinstance(given, Operator):
        return of_operator(given)
    if isinstance(given, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return of_library(given, None)
    if isinstance(given, CustomOpDef):
        return of_library(given._opoverload, given)
    if isinstance(given, nn.Module):
        name = type(given).__name__
        return Target(name=name, kind="module", given=given, call=given, parts={})
    if callable(given) and not isinstance(given, type):
        name = getattr(given, "__name__", type(given).__name__)
        return Target(name=name, kind="callable", given=given, call=given, parts={})
    raise NotCallable.error(
        f"{an(type(given).__name__)} cannot be checked: it is not callable",
        value=shorten(repr(given)),
        help="give an autograd.Function, an operator, a module or a function of tensors",
    )


def shorten(text: str) -> str:
    """Cut a long text."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_function(given: object) -> bool:
    """Tell whether it is an autograd.Function."""
    return isinstance(given, type) and issubclass(given, Function)


def of_function(function: Any) -> Target:  # noqa: ANN401
    """Return an autograd.Function as a target."""
    base: Any = Function
    parts: dict[Part, Callable[..., Any]] = {"forward": function.forward}
    for part, name in (
        ("setup", "setup_context"),
        ("backward", "backward"),
        ("backward", "vjp"),
        ("jvp", "jvp"),
        ("vmap", "vmap"),
    ):
        own = getattr(function, name)
        if own is not getattr(base, name):
            parts[part] = own  # type: ignore[index]

    def apply(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        # Looked up at each call: a trace replaces `apply` by its own.
        return function.apply(*arguments, **keywords)

    return Target(
        name=function.__name__,
        kind="function",
        given=function,
        call=apply,
        parts=parts,
    )


def parts_of(function: Any) -> Mapping[Part, Callable[..., Any]]:  # noqa: ANN401
    """Return the functions that an author wrote for an autograd.Function, even if PyTorch made it.

    `torch.library.register_autograd` makes a Function from two of the author's functions. They are
    found in its closures, so this also works if `define` and `impl` registered the operator.
    """
    if not function.__module__.startswith("torch."):
        return of_function(function).parts
    parts: dict[Part, Callable[..., Any]] = {}
    for value in values_in_closure(function.backward):
        for part, name in (("setup", "_setup_context_fn"), ("backward", "_backward_fn")):
            own = getattr(value, name, None)
            if callable(own):
                parts[part] = own  # type: ignore[index]
        own = getattr(value, "_init_fn", None)
        if callable(own):
            parts["forward"] = own
    return parts


def values_in_closure(function: Callable[..., Any], depth: int = 3) -> list[object]:
    """Return what a function has in its closure, and what the functions there have in theirs."""
    found: list[object] = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # empty yet
            continue
        found.append(value)
        if depth and callable(value):
            found += values_in_closure(value, depth - 1)
    return found


def is_authors(function: Callable[..., Any]) -> bool:
    """Tell whether a function is not one of PyTorch's own."""
    return not (getattr(function, "__module__", None) or "torch.").startswith("torch.")


def fake_of(name: str) -> Callable[..., Any] | None:
    """Return the fake kernel that was registered for an operator, if there is one."""
    try:
        from torch._library.simple_registry import singleton  # noqa: PLC0415  (may move)

        kernel = singleton.find(name).fake_impl.kernel
    except (ImportError, AttributeError):
        return None
    if kernel is None:
        return None
    # PyTorch wraps a kernel that is registered in a file.
    own = [f for f in values_in_closure(kernel.func) if inspect.isfunction(f) and is_authors(f)]
    return own[0] if own and not is_authors(kernel.func) else kernel.func


def of_operator(operator: Operator) -> Target:
    """Return pullback's operator as a target, with the parts of the Function it was made from."""
    definition = operator.definition
    parts: dict[Part, Callable[..., Any]] = {}
    if definition.function is not None:
        parts = {k: v for k, v in of_function(definition.function).parts.items() if k != "forward"}
    if callable(definition.backward):
        parts["backward"] = definition.backward
    return Target(
        name=operator.line.qualname,
        kind="operator",
        given=operator,
        call=operator,
        parts=parts,
        operator=operator,
        overload=operator.overload,
    )


def of_library(
    given: torch._ops.OpOverload | torch._ops.OpOverloadPacket,
    custom: CustomOpDef | None,
) -> Target:
    """Return a registered operator as a target, with what `torch.library.custom_op` knows."""
    overload = given
    if isinstance(overload, torch._ops.OpOverloadPacket):
        overload = getattr(overload, overload.overloads()[0])
    name = overload._schema.name
    if name in operators:
        return of_operator(operators[name])
    custom = custom or OPDEFS.get(name)
    parts: dict[Part, Callable[..., Any]] = {}
    if custom is not None:
        known = {
            "forward": custom._init_fn,
            "setup": custom._setup_context_fn,
            "backward": custom._backward_fn,
            "fake": custom._abstract_fn,
            "vmap": custom._vmap_fn,
        }
        parts = {part: own for part, own in known.items() if own is not None}  # type: ignore[misc]
    fake = fake_of(name)
    if fake is not None and "fake" not in parts and is_authors(fake):
        parts["fake"] = fake
    return Target(
        name=name, kind="library", given=given, call=overload, parts=parts, overload=overload
    )
