"""A Python function -> nodes: it is called once, with symbols in place of tensors and scalars."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.define.formula import build
from pullback.define.formula.build import Misfit
from pullback.define.formula.functions import ALIASES, TABLE
from pullback.define.formula.language import (
    FormulaArguments,
    FormulaOutputs,
    FormulaType,
    UnknownFunction,
)
from pullback.define.formula.node import Node, number
from pullback.define.line import Batch, Line, Scalar, Tensor
from pullback.diagnostic import did_you_mean

KINDS = {float: "float", int: "int", bool: "bool"}


def kind_of(annotation: object, default: object) -> str | None:
    """Return the type of a scalar parameter, by its annotation or else by its default."""
    if annotation in ("float", "int", "bool"):
        return str(annotation)  # as text, by `from __future__ import annotations`
    for candidate in (annotation, type(default)):
        if isinstance(candidate, type) and candidate in KINDS:
            return KINDS[candidate]
    return None


class Symbol:
    """Stands for an element of a tensor, or for a scalar, while a function is traced.

    PyTorch's functions, its methods and Python's operators make nodes of it.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Symbol:
        """Return the node of one of PyTorch's functions."""
        return call(func.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        """Return one of PyTorch's methods: `x.tanh()`."""
        if name.startswith("__") or ALIASES.get(name, name) not in TABLE:
            raise AttributeError(f"a formula has no '{name}'")
        return lambda *args, **kwargs: call(name, (self, *args), kwargs)

    def __bool__(self) -> bool:
        """Refuse to be asked: `if x > 0`."""
        raise FormulaType.error(
            "a formula is the same for every element, so Python cannot ask whether one is true",
            help="write torch.where(condition, a, b)",
        )

    def __float__(self) -> float:
        """Refuse to be a number: `math.tanh(x)`."""
        raise FormulaType.error(
            "a formula is traced with symbols, which are no numbers",
            help="use torch's functions: torch.tanh(x), not math.tanh(x)",
        )

    __int__ = __index__ = __float__


def call(name: str, args: Sequence[object], keywords: Mapping[str, object]) -> Symbol:
    """Return the call of a function of the table, by the name that PyTorch gives it."""
    if name == "gelu" and keywords.get("approximate", "none") == "tanh":
        name, keywords = "gelu_tanh", {}
    if name == "softplus" and (len(args) == 2 or "beta" in keywords):
        name = "softplus_beta"
    if "rounding_mode" in keywords:
        raise FormulaArguments.error(f"{name}: a formula has no rounding_mode", help="write floor")
    function = TABLE.get(ALIASES.get(name, name))
    if function is None:
        raise UnknownFunction.error(
            f"there is no function '{name}' in formulas",
            help=did_you_mean(name, [*TABLE, *ALIASES]),
        )
    given = dict(zip(function.parameters, args, strict=False)) | dict(keywords)
    required = len(function.parameters) - len(function.defaults)
    given = dict(zip(function.parameters[required:], function.defaults, strict=True)) | given
    if set(given) != set(function.parameters) or len(args) > len(function.parameters):
        raise FormulaArguments.error(
            f"{name}({', '.join(function.parameters)}) is given {', '.join(map(str, given))}"
        )
    try:
        return Symbol(build.apply(name, *(node_of(given[word]) for word in function.parameters)))
    except Misfit as misfit:
        raise FormulaType.error(str(misfit)) from None


def node_of(value: object) -> Node:
    """Return the node of a symbol or of a number."""
    if isinstance(value, Symbol):
        return value.node
    if isinstance(value, bool | int | float):
        return number(value)
    raise FormulaType.error(
        f"a formula cannot use a {type(value).__name__}",
        help="make it a parameter of the function, or a number",
    )


def _operator(name: str, *, swapped: bool = False) -> Callable[[Symbol, object], Symbol]:
    def apply(self: Symbol, other: object) -> Symbol:
        return call(name, (other, self) if swapped else (self, other), {})

    return apply


BINARY = {
    **{"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"},
    **{"mod": "remainder", "floordiv": "floor_divide"},
}
for word, name in BINARY.items():
    setattr(Symbol, f"__{word}__", _operator(name))
    setattr(Symbol, f"__r{word}__", _operator(name, swapped=True))
TESTS = ("lt", "le", "gt", "ge", "eq", "ne")
CONDITIONS = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}
for name in TESTS:
    setattr(Symbol, f"__{name}__", _operator(name))
for word, name in CONDITIONS.items():
    setattr(Symbol, f"__{word}__", _operator(name))
    setattr(Symbol, f"__r{word}__", _operator(name, swapped=True))
for word, name in (("neg", "neg"), ("abs", "abs"), ("invert", "logical_not")):
    setattr(Symbol, f"__{word}__", lambda self, name=name: call(name, (self,), {}))
Symbol.__pos__ = lambda self: self  # pyright: ignore[reportAttributeAccessIssue]
Symbol.__hash__ = object.__hash__


def line_of(qualname: str, function: Callable[..., Any]) -> Line:
    """Return the line that a function's parameters say: numbers by annotation or default.

    Args:
        qualname: "demo::name".
        function: its other parameters are tensors of any shape that broadcast.
    """
    parameters: list[Tensor | Scalar] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise FormulaArguments.error(f"{qualname}: a formula has no *{parameter.name}")
        default = None if parameter.default is parameter.empty else parameter.default
        kind = kind_of(parameter.annotation, default)
        if kind is None:
            parameters.append(Tensor(name=parameter.name, dims=(Batch(),)))
        else:
            value = float(default) if kind == "float" and default is not None else default
            parameters.append(Scalar(name=parameter.name, type=kind, default=value))  # pyright: ignore
    namespace, _, name = qualname.partition("::")
    output = Tensor(name="output", dims=(Batch(),))
    return Line(namespace=namespace, name=name, parameters=tuple(parameters), outputs=(output,))


def traced(
    function: Callable[..., Any], names: Mapping[str, Node], of: str
) -> tuple[list[Node], list[str]]:
    """Return what a function returns for some symbols, and the names if it is a dictionary."""
    returned = function(**{name: Symbol(node) for name, node in names.items()})
    if isinstance(returned, Mapping):
        return [node_of(value) for value in returned.values()], list(map(str, returned))
    values = returned if isinstance(returned, tuple | list) else [returned]
    if not values or any(value is None for value in values):
        raise FormulaOutputs.error(f"{of}: the function returns nothing")
    return [node_of(value) for value in values], []
