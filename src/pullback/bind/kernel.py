"""Kernels in Python: the `python=` function, the fake kernel, and batching over `...`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.bind import check
from pullback.define import shape
from pullback.define.line import Line, Scalar
from pullback.define.line import Tensor as TensorSpec
from pullback.define.operator import Definition
from pullback.diagnostic import Rule

WrongOutput = Rule("PB331", "wrong-output")


@dataclass(frozen=True)
class Outputs:
    """What the line says of one call's outputs."""

    definition: Definition
    shapes: list[tuple[int, ...]]
    dtypes: list[torch.dtype]
    device: torch.device
    wanted: list[bool]


def outputs_of(definition: Definition, arguments: Sequence[object]) -> Outputs:
    """Check the inputs of a call and return what its outputs are.

    Args:
        definition: the operator.
        arguments: in the order of its schema.
    """
    line = definition.line
    by_name = {p.name: value for p, value in zip(line.parameters, arguments, strict=False)}
    sizes, dtype, device = check.solve(line, by_name)
    shapes = shape.output_shapes(line, sizes, by_name)
    dtypes = [check.dtype_named(o.dtype) if o.dtype else dtype for o in line.outputs]
    return Outputs(definition, shapes, dtypes, device, mask_of(definition, arguments))


def completed(line: Line, arguments: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments with their defaults, which the dispatcher leaves out at the end."""
    rest = line.parameters[len(arguments) :]
    return (*arguments, *(p.default if isinstance(p, Scalar) else None for p in rest))


def mask_of(definition: Definition, arguments: Sequence[object]) -> list[bool]:
    """Return which outputs are wanted."""
    everything = [True] * len(definition.line.outputs)
    mask = arguments[-1] if definition.masked else None
    return list(mask) if isinstance(mask, list) else everything


def fake(definition: Definition) -> Callable[..., object]:
    """Return the fake kernel: empty outputs of the right shape, from sizes that may be symbolic."""

    def kernel(*arguments: object, output_mask: list[bool] | None = None) -> object:
        arguments = completed(definition.line, arguments)
        if definition.masked:
            arguments = (*arguments, output_mask)
        outputs = outputs_of(definition, arguments)
        made = [
            torch.empty(size, dtype=dtype, device=outputs.device) if wanted else None
            for size, dtype, wanted in zip(
                outputs.shapes, outputs.dtypes, outputs.wanted, strict=True
            )
        ]
        return made[0] if len(made) == 1 else tuple(made)

    return kernel


def python_kernel(definition: Definition) -> Callable[..., object]:
    """Return the kernel that calls the author's function, with its inputs and outputs checked."""
    function = definition.python
    assert function
    takes_mask = definition.masked and "output_mask" in _parameter_names(function)

    def kernel(*arguments: Any, output_mask: list[bool] | None = None) -> object:  # noqa: ANN401
        arguments = completed(definition.line, arguments)
        if definition.masked:
            arguments = (*arguments, output_mask)
        outputs = outputs_of(definition, arguments)
        plain = [a.detach() if isinstance(a, Tensor) else a for a in arguments]
        given = plain[: len(definition.line.parameters)]
        # Autograd is above this kernel: nothing in it is recorded.
        with torch.no_grad():
            if takes_mask:
                returned = function(*given, output_mask=outputs.wanted)
            else:
                returned = function(*given)
        return checked(outputs, returned, [a for a in plain if isinstance(a, Tensor)])

    return kernel


def checked(outputs: Outputs, returned: object, inputs: list[Tensor]) -> object:
    """Return what the function returned as the line says it, or stop."""
    line = outputs.definition.line
    values = list(returned) if isinstance(returned, tuple | list) else [returned]
    if len(values) != len(line.outputs):
        raise WrongOutput.error(
            f"{line.qualname}: its Python kernel returned {len(values)} values, "
            f"the line says {len(line.outputs)}"
        )
    tensors: list[Tensor | None] = []
    for index, value in enumerate(values):
        tensor = checked_one(outputs, index, value) if outputs.wanted[index] else None
        # An operator's output is its own memory: a view of an input would escape autograd.
        taken = [*inputs, *(t for t in tensors if t is not None)]
        if tensor is not None and any(shares(tensor, other) for other in taken):
            tensor = tensor.clone()
        tensors.append(tensor)
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def checked_one(outputs: Outputs, index: int, value: object) -> Tensor:
    """Return one output as a tensor, or stop."""
    line = outputs.definition.line
    spec: TensorSpec = line.outputs[index]
    place = f"{line.qualname}: its Python kernel returned"
    if isinstance(value, np.ndarray | np.generic):
        value = torch.as_tensor(np.ascontiguousarray(value)).reshape(np.shape(value))
        value = value.to(outputs.device)
    if not isinstance(value, Tensor):
        raise WrongOutput.error(f"{place} a {type(value).__name__} for '{spec.name}'")
    if tuple(value.shape) != tuple(outputs.shapes[index]):
        raise WrongOutput.error(
            f"{place} '{spec.name}' of shape {shape.shown(value.shape)}, "
            f"the line says {shape.shown(outputs.shapes[index])}: {shape.declared(spec)}"
        )
    if value.dtype != outputs.dtypes[index] or value.device != outputs.device:
        raise WrongOutput.error(
            f"{place} '{spec.name}' as {check.name_of(value.dtype)} on {value.device}, the line "
            f"says {check.name_of(outputs.dtypes[index])} on {outputs.device}",
            help="convert it before returning it",
        )
    if value.layout != torch.strided:
        raise WrongOutput.error(
            f"{place} '{spec.name}' as a tensor that is not dense",
            help="return its to_dense()",
        )
    return laid_out(value)


def laid_out(value: Tensor) -> Tensor:
    """Return a tensor with the strides that the fake kernel says.

    `contiguous()` alone keeps those of sizes 0 and 1 as they are.
    """
    wanted = torch.empty(value.shape, device="meta").stride()
    return value if value.stride() == wanted else value.clone(memory_format=torch.contiguous_format)


def shares(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors use the same memory."""
    return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _parameter_names(function: Callable[..., object]) -> list[str]:
    code = getattr(function, "__code__", None)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) if code else []


def batching(definition: Definition, overload: Callable[..., Any]) -> Callable[..., Any]:
    """Return the batching rule of `torch.vmap`.

    Where every batched tensor has `...`, the new dimension becomes its first batch dimension, and
    the operator is called once. Otherwise it is called for each element.
    """
    line = definition.line

    def rule(info: Any, in_dims: Any, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        arguments = completed(line, arguments)
        in_dims = (*in_dims, *[None] * (len(arguments) - len(in_dims)))
        batched = [dim is not None for dim in in_dims]
        specs = line.parameters
        together = all(
            isinstance(spec, TensorSpec) and spec.has_batch
            for spec, is_batched in zip(specs, batched, strict=True)
            if is_batched
        ) and all(output.has_batch for output in line.outputs)
        call = at_once if together else one_by_one
        return call(info.batch_size, in_dims, arguments, keywords)

    def at_once(size: int, in_dims: Any, arguments: Any, keywords: Any) -> Any:  # noqa: ANN401
        ranks = [
            value.dim() - (dim is not None) - len(spec.before) - len(spec.after)
            for spec, value, dim in zip(line.parameters, arguments, in_dims, strict=False)
            if isinstance(spec, TensorSpec) and spec.has_batch and value is not None
        ]
        rank = max(ranks)
        moved = [
            with_leading(value, dim, spec, rank)
            if dim is not None and isinstance(spec, TensorSpec)
            else value
            for spec, value, dim in zip(line.parameters, arguments, in_dims, strict=False)
        ]
        results = overload(*moved, **keywords)
        dims = [len(output.before) for output in line.outputs]
        if len(dims) == 1:
            return results, dims[0]
        return results, tuple(
            None if result is None else dim for result, dim in zip(results, dims, strict=True)
        )

    def one_by_one(size: int, in_dims: Any, arguments: Any, keywords: Any) -> Any:  # noqa: ANN401
        rows = [
            overload(
                *(
                    value if dim is None else value.select(dim, index)
                    for value, dim in zip(arguments, in_dims, strict=False)
                ),
                **keywords,
            )
            for index in range(size)
        ]
        if len(line.outputs) == 1:
            return torch.stack(rows), 0
        columns = [
            None if column[0] is None else torch.stack(column)
            for column in map(list, zip(*rows, strict=True))
        ]
        return tuple(columns), tuple(None if column is None else 0 for column in columns)

    return rule


def with_leading(value: Tensor, dim: int, spec: TensorSpec, rank: int) -> Tensor:
    """Move the batched dimension to the front of `...`, which gets `rank` dimensions after it."""
    first = len(spec.before)
    value = value.movedim(dim, first)
    own = value.dim() - 1 - len(spec.before) - len(spec.after)
    for _ in range(rank - own):
        value = value.unsqueeze(first + 1)
    return value
