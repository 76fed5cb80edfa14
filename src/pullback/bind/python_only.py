"""Autograd without the C++ runtime: where no compiler is found, Python operators still work.

They go through `torch.library`, which makes calls a few times slower and has no forward mode. The
program of a derivative is the same; here it is run in Python.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from pullback.bind import autocast, kernel
from pullback.bind.notice import notice
from pullback.bind.program import Origin, Program, Reference
from pullback.define.derivative import NoDerivative, NoForwardMode
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.define.shape import format_shape
from pullback.diagnostic import PullbackError, Rule

GradientShape = Rule("PB305", "gradient-shape")
GradientDtype = Rule("PB306", "gradient-dtype")


class PythonOnlyNotice(UserWarning):
    """There is no C++ runtime, so Python operators are slower and lack forward mode."""


def announce(reason: PullbackError) -> None:
    """Say once why operators are slower."""
    text = (
        "operators in Python go through torch.library: each call is slower, and there is no "
        f"forward mode\n{reason}"
    )
    notice(text, PythonOnlyNotice)


def register_autograd(
    definition: Definition,
    backward: Program | None,
    library: torch.library.Library,
    overload: torch._ops.OpOverload,
) -> None:
    """Register the autograd kernel of an operator, which the C++ runtime would otherwise have.

    It is that of `torch.library.register_autograd`, which by itself silently drops a tangent.
    """
    line = definition.line

    def keep(ctx: Any, inputs: Sequence[object], output: object, **_: object) -> None:  # noqa: ANN401
        outputs = output if isinstance(output, tuple) else (output,)
        values = [*inputs, *outputs]
        ctx.save_for_backward(*(v if isinstance(v, Tensor) else None for v in values))
        ctx.scalars = [None if isinstance(v, Tensor) else v for v in values]
        ctx.set_materialize_grads(False)
        marked = zip(outputs, line.outputs, strict=True)
        ctx.mark_non_differentiable(*(each for each, spec in marked if spec.detached))

    def pull(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if backward is None:
            raise NoDerivative.error(
                f"{line.qualname}: it has no derivative, and one is asked for",
                help="give it backward=..., or call it on detached tensors",
            )
        pairs = zip(ctx.saved_tensors, ctx.scalars, strict=True)
        values = [scalar if tensor is None else tensor for tensor, scalar in pairs]
        names = [parameter.name for parameter in line.parameters]
        given = dict(zip(names, values, strict=False))
        # An argument that the caller left out is not an input of the node.
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        needed = [needs.get(spec.name, False) for spec in line.tensors]
        results = gradients(definition, backward, values, grads, needed)
        fits = {
            spec.name: None if gradient is None else fit_gradient(definition, spec, gradient, given)
            for spec, gradient in zip(line.tensors, results, strict=True)
        }
        return tuple(fits.get(name) for name in needs)

    run = make_autograd_impl(overload, Info(_backward_fn=pull, _setup_context_fn=keep))

    def without_tangents(keys: Any, *arguments: object, **keywords: object) -> object:  # noqa: ANN401
        refuse_tangents(line, arguments)
        return run(keys, *arguments, **keywords)

    library.impl(line.name, without_tangents, "Autograd", with_keyset=True)


def refuse_tangents(line: Line, arguments: Sequence[object]) -> None:
    """Stop at a tangent."""
    if forward_ad._current_level < 0:
        return
    tensors = (value for value in arguments if isinstance(value, Tensor))
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise NoForwardMode.error(
            f"{line.qualname}: forward mode needs the C++ runtime",
            help="install a C++ compiler, g++ 11 or newer",
        )


def gradients(
    definition: Definition,
    program: Program,
    values: Sequence[object],
    grads: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Any]:
    """Run a backward program, as `run` in derivative.cpp; None where no gradient is needed.

    Args:
        definition: the operator.
        program: of its backward.
        values: its arguments, and then its outputs.
        grads: of the outputs.
        needed: whether each input needs a gradient.
    """
    count = len(definition.line.parameters)
    wanted = [each if need else None for each, need in zip(program.results, needed, strict=True)]

    def value(reference: Reference, call: int = 0) -> object:
        match reference.origin:
            case Origin.grad:
                grad = grads[reference.index]
                absent = grad is None and not reference.optional
                return zeros(definition, values[:count], reference.index) if absent else grad
            case Origin.argument:
                return values[reference.index]
            case Origin.output:
                return values[count + reference.index]
            case Origin.result:
                return results(reference.index)[reference.result]
            case Origin.mask:
                used = {
                    r.result for r in wanted if r and r.origin is Origin.result and r.index == call
                }
                return [k in used for k in range(program.calls[call].results)]
            case _:
                return reference.constant

    @functools.cache
    def results(index: int) -> tuple[Any, ...]:
        call = program.calls[index]
        namespace, _, name = call.operator.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name)
        overload = getattr(packet, call.overload or "default")
        # By name: some arguments of a schema are for keywords only.
        names = [argument.name for argument in overload._schema.arguments]
        arguments = [value(reference, index) for reference in call.arguments]
        returned = overload(**dict(zip(names, arguments, strict=True)))
        return returned if isinstance(returned, tuple) else (returned,)

    # The gradients have their inputs' dtypes: backward may run inside of autocast.
    with autocast.disable_autocast():
        return [value(reference) if reference else None for reference in wanted]


def zeros(definition: Definition, arguments: Sequence[object], index: int) -> Tensor:
    """Return zeros for the gradient of an output, even of one that is not asked for."""
    outputs = kernel.outputs_of(definition, arguments)
    shape, dtype = outputs.shapes[index], outputs.dtypes[index]
    return torch.zeros(shape, dtype=dtype, device=outputs.device)


def fit_gradient(
    definition: Definition, spec: TensorSpec, gradient: Tensor, given: dict[str, Any]
) -> Tensor:
    """Return a gradient with the shape of its input, summed over `...`, as `fit` in C++."""
    line, value = definition.line, given[spec.name]
    if gradient.dtype != value.dtype or gradient.device != value.device:
        raise GradientDtype.error(
            f"{line.qualname}: backward returned a {gradient.dtype} gradient on {gradient.device} "
            f"for '{spec.name}', which is {value.dtype} on {value.device}",
            help="return the dtype and device of the input",
        )
    if gradient.shape == value.shape:
        return gradient
    batch = kernel.outputs_of(definition, list(given.values())).sizes.batch
    first, last = len(spec.before), value.dim() - len(spec.after)
    whole = (*value.shape[:first], *batch, *value.shape[last:]) if spec.has_batch else value.shape
    if gradient.shape != whole:
        raise GradientShape.error(
            f"{line.qualname}: backward returned a gradient of shape "
            f"{format_shape(gradient.shape)} for "
            f"'{spec.name}', which has shape {format_shape(value.shape)}",
            help="return the shape of the input; only the dimensions of '...' are summed for you",
        )
    target = (1,) * (len(batch) - (last - first)) + value.shape[first:last]
    over = [first + k for k, size in enumerate(batch) if size != target[k]]
    return (gradient.sum(over, keepdim=True) if over else gradient).reshape(value.shape)
