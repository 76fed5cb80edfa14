"""Autograd without the C++ runtime: where no compiler is found, Python operators still work.

They go through `torch.library`, which costs a few times more per call and has no forward mode. The
program of a derivative is the same; here it is run in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.bind import kernel
from pullback.bind.notice import notice
from pullback.bind.program import OperatorCall, Origin, Program, Reference
from pullback.define.derivative import NoDerivative, NoForwardMode
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.define.shape import shown
from pullback.diagnostic import PullbackError, Rule

GradientShape = Rule("PB305", "gradient-shape")
GradientDtype = Rule("PB306", "gradient-dtype")


class PythonOnlyNotice(UserWarning):
    """There is no C++ runtime, so Python operators are slower and lack forward mode."""


def announce(reason: PullbackError) -> None:
    """Say once why operators go the slow way."""
    text = (
        "operators in Python go through torch.library: each call is slower, and forward mode is "
        f"not there\n{reason}"
    )
    notice(text, PythonOnlyNotice)


def register_autograd(
    definition: Definition,
    backward: Program | None,
    library: torch.library.Library,
    overload: torch._ops.OpOverload,
) -> None:
    """Register the autograd kernel of an operator, which the C++ runtime would otherwise have."""
    function = autograd_function(definition, backward, overload)

    def run(keys: Any, *arguments: object, **keywords: object) -> object:  # noqa: ANN401
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        refuse_tangents(definition.line, tensors)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            # With the defaults, which the dispatcher leaves out: a derivative may read them.
            given = kernel.completed(definition, arguments, None)
            return function.apply(keys, keywords, *given[: len(definition.line.parameters)])
        return redispatch(overload, keys, arguments, keywords)

    library.impl(definition.line.name, run, "Autograd", with_keyset=True)


def redispatch(
    overload: torch._ops.OpOverload,
    keys: Any,  # noqa: ANN401
    arguments: tuple[object, ...],
    keywords: dict[str, object],
) -> object:
    """Call what lies below autograd."""
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **keywords)


def refuse_tangents(line: Line, tensors: Sequence[Tensor]) -> None:
    """Stop at a tangent, which would be dropped silently."""
    if forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise NoForwardMode.error(
            f"{line.qualname}: forward mode needs the C++ runtime",
            help="install a C++ compiler, g++ 11 or newer",
        )


def autograd_function(
    definition: Definition, backward: Program | None, overload: torch._ops.OpOverload
) -> type[torch.autograd.Function]:
    """Return the autograd function of an operator: its node and its backward."""
    line = definition.line

    def forward(ctx: Any, keys: Any, keywords: Any, *arguments: object) -> object:  # noqa: ANN401
        output = redispatch(overload, keys, arguments, keywords)
        outputs = output if isinstance(output, tuple) else (output,)
        values = [*arguments, *outputs]
        ctx.save_for_backward(*(v if isinstance(v, Tensor) else None for v in values))
        ctx.scalars = [None if isinstance(v, Tensor) else v for v in values]
        ctx.inputs = len(arguments)
        ctx.set_materialize_grads(False)
        marked = zip(outputs, line.outputs, strict=True)
        ctx.mark_non_differentiable(*(each for each, spec in marked if spec.detached))
        return output

    def pull(ctx: Any, *grads: Tensor | None) -> object:  # noqa: ANN401
        if backward is None:
            raise NoDerivative.error(
                f"{line.qualname}: it has no derivative, and one is asked for",
                help="give it backward=..., or call it on detached tensors",
            )
        pairs = zip(ctx.saved_tensors, ctx.scalars, strict=True)
        values = [scalar if tensor is None else tensor for tensor, scalar in pairs]
        arguments, outputs = values[: ctx.inputs], values[ctx.inputs :]
        needs = ctx.needs_input_grad[2:]
        needed = [need for need, p in zip(needs, line.parameters, strict=False) if is_tensor(p)]
        gradients = iter(Run(definition, backward, arguments, outputs, grads, needed).results())
        fits = [
            fitted(line, p, next(gradients), value, outputs) if is_tensor(p) else None
            for p, value in zip(line.parameters, arguments, strict=False)
        ]
        return (None, None, *fits)

    members = {"forward": staticmethod(forward), "backward": staticmethod(pull)}
    return type(f"{line.name}", (torch.autograd.Function,), members)


def is_tensor(parameter: object) -> bool:
    """Return whether a parameter of a line is a tensor."""
    return isinstance(parameter, TensorSpec)


@dataclass
class Run:
    """One run of a backward program, as `run` in derivative.cpp."""

    definition: Definition
    program: Program
    arguments: Sequence[object]
    outputs: Sequence[object]
    grads: Sequence[Tensor | None]
    needed: Sequence[bool]
    done: dict[int, tuple[object, ...]] = field(default_factory=dict[int, tuple[object, ...]])

    def results(self) -> list[object]:
        """Return the gradients; None where none is needed."""
        return [
            self.value(reference, 0) if needed and reference else None
            for reference, needed in zip(self.program.results, self.needed, strict=True)
        ]

    def value(self, reference: Reference, call: int) -> object:
        """Return what a reference stands for in call number `call`."""
        match reference.origin:
            case Origin.grad:
                grad = self.grads[reference.index]
                return (
                    self.zeros(reference.index) if grad is None and not reference.optional else grad
                )
            case Origin.argument:
                return self.arguments[reference.index]
            case Origin.output:
                return self.outputs[reference.index]
            case Origin.result:
                return self.call(reference.index)[reference.result]
            case Origin.mask:
                return self.mask(call)
            case _:
                return reference.constant

    def zeros(self, index: int) -> Tensor:
        """Return the zeros that stand for the gradient of an output, also of one not asked for."""
        outputs = kernel.outputs_of(self.definition, self.arguments)
        shape, dtype = outputs.shapes[index], outputs.dtypes[index]
        return torch.zeros(shape, dtype=dtype, device=outputs.device)

    def mask(self, call: int) -> list[bool]:
        """Return which results of a call are needed."""
        mask = [False] * self.program.calls[call].results
        for reference, needed in zip(self.program.results, self.needed, strict=True):
            if (
                needed
                and reference
                and reference.origin is Origin.result
                and reference.index == call
            ):
                mask[reference.result] = True
        return mask

    def call(self, index: int) -> tuple[object, ...]:
        """Return the results of a call, made once."""
        if index not in self.done:
            call: OperatorCall = self.program.calls[index]
            namespace, _, name = call.operator.partition("::")
            packet = getattr(getattr(torch.ops, namespace), name)
            overload = getattr(packet, call.overload or "default")
            # By name: some arguments of a schema are for keywords only.
            names = [argument.name for argument in overload._schema.arguments]
            values = [self.value(reference, index) for reference in call.arguments]
            results = overload(**dict(zip(names, values, strict=True)))
            self.done[index] = results if isinstance(results, tuple) else (results,)
        return self.done[index]


def fitted(
    line: Line, spec: object, gradient: object, value: object, outputs: Sequence[object]
) -> Tensor | None:
    """Return a gradient with the shape of its input, summed over `...`, as `fit` in C++."""
    if gradient is None:
        return None
    assert isinstance(spec, TensorSpec)
    assert isinstance(gradient, Tensor)
    assert isinstance(value, Tensor)
    if gradient.dtype != value.dtype or gradient.device != value.device:
        raise GradientDtype.error(
            f"{line.qualname}: backward returned a {gradient.dtype} gradient on {gradient.device} "
            f"for '{spec.name}', which is {value.dtype} on {value.device}",
            help="return the dtype and device of the input",
        )
    if gradient.shape == value.shape:
        return gradient
    if not may_be_summed(line, spec, gradient, value, outputs):
        raise GradientShape.error(
            f"{line.qualname}: backward returned a gradient of shape {shown(gradient.shape)} for "
            f"'{spec.name}', which has shape {shown(value.shape)}",
            help="return the shape of the input; only the dimensions of '...' are summed for you",
        )
    first, extra = len(spec.before), gradient.dim() - value.dim()
    last = gradient.dim() - len(spec.after)
    kept = [d for d in range(first + extra, last) if gradient.shape[d] != value.shape[d - extra]]
    dropped = list(range(first, first + extra))
    gradient = gradient.sum(kept, keepdim=True) if kept else gradient
    return gradient.sum(dropped) if dropped else gradient


def may_be_summed(
    line: Line, spec: TensorSpec, gradient: Tensor, value: Tensor, outputs: Sequence[object]
) -> bool:
    """Return whether a gradient differs from its input in the dimensions of `...` alone."""
    if not spec.has_batch or gradient.dim() < value.dim():
        return False
    own, core = split(spec, gradient.shape)
    theirs, wanted = split(spec, value.shape)
    pairs = zip(reversed(own), reversed(theirs), strict=False)
    if core != wanted or any(b not in (a, 1) for a, b in pairs):
        return False
    batches = [
        split(output, tensor.shape)[0]
        for output, tensor in zip(line.outputs, outputs, strict=True)
        if output.has_batch and isinstance(tensor, Tensor)
    ]
    return not batches or own == batches[0]


def split(spec: TensorSpec, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a shape's batch dimensions and its others."""
    first, last = len(spec.before), len(shape) - len(spec.after)
    return tuple(shape[first:last]), (*shape[:first], *shape[last:])
