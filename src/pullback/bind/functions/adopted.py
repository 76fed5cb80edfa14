"""An existing `torch.autograd.Function`, unchanged: how its forward and backward are run."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pullback.bind.disconnected import as_list
from pullback.bind.functions.grads_in_place import protect_grads
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.diagnostic import Rule, an

NotFunction = Rule("PB371", "not-a-function")
WrongParameters = Rule("PB372", "wrong-parameters")
NoTensor = Rule("PB373", "no-tensor")
WrongGradients = Rule("PB374", "wrong-gradients")
NotDeclared = Rule("PB375", "not-declared")

Base = torch.autograd.Function


@dataclass(frozen=True)
class Adopted:
    """A Function, and the line that it is adopted with."""

    line: Line
    function: type[Any]

    @cached_property
    def split(self) -> bool:
        """Whether it has a `setup_context` beside a forward without `ctx`."""
        return is_split(self.function)

    @cached_property
    def pull(self) -> Any:  # noqa: ANN401
        """Its backward, which may be called `vjp`; None if it has none."""
        for name in ("backward", "vjp"):
            if overrides(self.function, name):
                return protect_grads(getattr(self.function, name), self.backward_of)
        return None

    @property
    def backward_of(self) -> str:
        """The name of its backward in messages."""
        return f"backward of {self.function.__name__} ({self.line.qualname})"

    @cached_property
    def push(self) -> Any:  # noqa: ANN401
        """Its forward-mode derivative, None if it has none."""
        return self.function.jvp if overrides(self.function, "jvp") else None

    @cached_property
    def batches(self) -> bool:
        """Whether its author says how it is batched, so that PyTorch's own way should be used."""
        given = overrides(self.function, "vmap") or self.function.generate_vmap_rule
        return self.split and given and not self.lists

    @cached_property
    def spread(self) -> bool:
        """Whether forward takes the line's last parameter, a list, as `*tensors`."""
        return any(p.kind is p.VAR_POSITIONAL for p in parameters_of(self.function))

    @cached_property
    def lists(self) -> bool:
        """Whether an input is a list, so that arguments have to be flattened."""
        return any(tensor.many for tensor in self.line.tensors)

    def flat(self, arguments: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
        """Return the line's arguments with those of a list one by one, and the lists' lengths."""
        flat: list[Any] = []
        lengths: list[int] = []
        for parameter, value in zip(self.line.parameters, arguments, strict=True):
            if is_list(parameter):
                flat.extend(value)
                lengths.append(len(value))
            else:
                flat.append(value)
        return flat, tuple(lengths)

    def as_forward(self, flat: Sequence[Any], lengths: Sequence[int]) -> tuple[Any, ...]:
        """Return forward's arguments from flat ones: lists as lists, `*tensors` one by one."""
        if self.spread or not self.lists:
            return tuple(flat)
        items, counts = iter(flat), iter(lengths)
        return tuple(
            list(itertools.islice(items, next(counts))) if is_list(parameter) else next(items)
            for parameter in self.line.parameters
        )

    def forward(self, ctx: Any, given: Sequence[object]) -> tuple[Tensor, ...]:  # noqa: ANN401
        """Run forward on its arguments and return its outputs."""
        if self.split:
            returned = call_forward(self.function, ctx, given)
        else:  # as in `call_forward`, without its test: every call runs this
            returned = self.function.forward(ctx, *given)
        if isinstance(returned, Tensor) and len(self.line.outputs) == 1:
            return (returned,)
        outputs = returned if type(returned) is tuple else (returned,)
        self.require_outputs(outputs)
        return outputs

    def require_outputs(self, outputs: Sequence[object]) -> None:
        """Stop if the outputs are not as many as in the line, or one is not a tensor."""
        line = self.line
        place = f"{line.qualname}: forward of {self.function.__name__} returned"
        if len(outputs) != len(line.outputs):
            count = f"{len(outputs)} value{'s' * (len(outputs) != 1)}"
            raise NoTensor.error(
                f"{place} {count}, the line says {len(line.outputs)}",
                help="name each of them in the line: -> (y[n], z[n])",
            )
        for spec, value in zip(line.outputs, outputs, strict=True):
            if not isinstance(value, Tensor):
                raise NoTensor.error(
                    f"{place} {an(type(value).__name__)} for '{spec.name}', which is not a tensor",
                    help="return tensors only; an operator of PyTorch has no other outputs here",
                )

    def backward(self, ctx: Any, grads: Sequence[Tensor | None]) -> list[Tensor | None]:  # noqa: ANN401
        """Run backward; return a gradient for each of forward's arguments, lists flattened."""
        returned = self.pull(ctx, *grads)
        values = as_list(returned)
        return self.flattened(values, ctx.needs_input_grad) if self.lists else values

    def flattened(self, gradients: list[Any], needs: Sequence[Any]) -> list[Tensor | None]:
        """Return the gradients with those of a list one by one."""
        if self.spread:
            return gradients
        flat: list[Tensor | None] = []
        for parameter, gradient, need in zip(self.line.parameters, gradients, needs, strict=False):
            if not (isinstance(parameter, TensorSpec) and parameter.many):
                flat.append(gradient)
                continue
            if gradient is None and any(need):
                raise WrongGradients.error(
                    f"{self.line.qualname}: backward of {self.function.__name__} returned None for "
                    f"the list '{parameter.name}', whose tensors need gradients",
                    help="return a list with a gradient for each tensor; PyTorch alone drops them "
                    "without a word",
                )
            each = [None] * len(need) if gradient is None else list(gradient)
            if len(each) != len(need):
                raise WrongGradients.error(
                    f"{self.line.qualname}: backward of {self.function.__name__} returned "
                    f"{len(each)} gradients for the {len(need)} tensors of '{parameter.name}'"
                )
            flat.extend(each)
        return flat


def adopt(line: Line, function: object) -> Adopted:
    """Return a Function adopted with a line, or stop if they do not fit."""
    function = require_function(line.qualname, function)
    adopted = Adopted(line, function)
    parameters = parameters_of(function)
    fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    required = [p for p in fixed if p.default is p.empty]
    count = len(line.parameters) - adopted.spread
    names = ", ".join(str(p) for p in parameters)
    if adopted.spread and not is_list(line.parameters[-1] if line.parameters else None):
        raise WrongParameters.error(
            f"{line.qualname}: forward of {function.__name__} takes ({names}), "
            "and the line does not end with a list",
            line=line,
            help=f"write it as a list: {fixed_name(parameters)}[...]*",
        )
    if not len(required) <= count <= len(fixed):
        raise WrongParameters.error(
            f"{line.qualname}: the line has {len(line.parameters)} parameters, "
            f"forward of {function.__name__} takes ({names})",
            line=line,
            help="name forward's parameters in its order, without ctx",
        )
    return adopted


def fixed_name(parameters: Sequence[inspect.Parameter]) -> str:
    """Return the name of `*tensors`."""
    return parameters[-1].name


def is_list(parameter: object) -> bool:
    """Return whether a parameter of a line is a list of tensors."""
    return isinstance(parameter, TensorSpec) and parameter.many


def call_forward(function: type[Any], ctx: Any, given: Sequence[object]) -> Any:  # noqa: ANN401
    """Return what forward returns, with `ctx` filled in, in either style."""
    if not is_split(function):
        return function.forward(ctx, *given)
    returned = function.forward(*given)
    function.setup_context(ctx, tuple(given), returned)
    return returned


def require_function(qualname: str, function: object) -> type[Any]:
    """Return a Function, or stop if it is not one or has no forward."""
    cure = "give the class itself: function=LinearF"
    if not (isinstance(function, type) and issubclass(function, Base)):
        what = an(type(function).__name__) if not isinstance(function, type) else "another class"
        raise NotFunction.error(
            f"{qualname}: function= is {what}, no torch.autograd.Function", help=cure
        )
    if not overrides(function, "forward"):
        raise NotFunction.error(
            f"{qualname}: {function.__name__} has no forward", help="write its forward"
        )
    return function


def overrides(function: type[Any], name: str) -> bool:
    """Return whether a Function, or one it inherits from, defines a method itself."""
    return getattr(function, name) is not getattr(Base, name)


def is_split(function: type[Any]) -> bool:
    """Return whether a Function has a `setup_context`, so that its forward takes no `ctx`."""
    return overrides(function, "setup_context")


def parameters_of(function: type[Any]) -> list[inspect.Parameter]:
    """Return the parameters of forward that `apply` can fill, without `ctx`."""
    parameters = list(inspect.signature(function.forward).parameters.values())
    own = parameters if is_split(function) else parameters[1:]
    return [p for p in own if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
