"""Checks of tensors against the line, for kernels in Python and the fake kernel.

The C++ runtime makes the same checks for its own kernels, in the same order and words; a
property-based test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from pullback.define import shape
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.shape import Shape, Sizes, format_spec
from pullback.diagnostic import Rule

DtypeMismatch = Rule("PB116", "dtype-mismatch")
DeviceMismatch = Rule("PB117", "device-mismatch")
MissingTensor = Rule("PB118", "missing-tensor")
NotDense = Rule("PB119", "layout")


def dtype_named(name: str) -> torch.dtype:
    """Return PyTorch's dtype for its name in the line."""
    return getattr(torch, name)


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name in the line."""
    return str(dtype).removeprefix("torch.")


def solve(line: Line, arguments: Mapping[str, object]) -> tuple[Sizes, torch.dtype, torch.device]:
    """Check every input and return the sizes, the shared dtype and the device.

    Args:
        line: the operator.
        arguments: by parameter; tensors of any shape and dtype, scalars.

    Raises:
        PullbackError: PB111 to PB119.
    """
    seen: tuple[TensorSpec, Tensor] | None = None
    shared: tuple[TensorSpec, Tensor] | None = None
    shapes: dict[str, Shape | list[Shape] | None] = {}
    for spec in line.tensors:
        given = arguments[spec.name]
        if spec.many:
            assert isinstance(given, list | tuple)
            shapes[spec.name] = [tensor.shape for tensor in cast("Sequence[Tensor]", given)]
        else:
            assert given is None or isinstance(given, Tensor)
            shapes[spec.name] = None if given is None else given.shape
        for element, tensor in iter_tensors(line, spec, given):
            require_dense(line, element, tensor)
            seen = seen or (element, tensor)
            require_device(line, element, tensor, seen)
            if spec.dtype is None:
                shared = shared or (element, tensor)
            require_dtype(line, element, tensor, shared)
    sizes = shape.solve(line, shapes)
    dtype = shared[1].dtype if shared else torch.get_default_dtype()
    return sizes, dtype, seen[1].device if seen else torch.device("cpu")


def iter_tensors(
    line: Line, spec: TensorSpec, given: object
) -> Iterator[tuple[TensorSpec, Tensor]]:
    """Yield a tensor that is not None, or each tensor of a list, named as `xs[0]`."""
    if spec.many:
        for index, tensor in enumerate(cast("Sequence[Tensor | None]", given)):
            element = replace(spec, name=f"{spec.name}[{index}]", many=False)
            yield from iter_tensors(line, element, tensor)
    elif given is None:
        require_optional(line, spec)
    else:
        yield spec, cast("Tensor", given)


def require_optional(line: Line, spec: TensorSpec) -> None:
    """Stop at None for a tensor that is not optional."""
    if not spec.optional:
        raise MissingTensor.error(
            f"{line.called}: '{spec.name}' is None, the line says {format_spec(spec)}",
            help=f"pass a tensor, or mark it optional in the line: {format_spec(spec)}?",
        )


def require_dense(line: Line, spec: TensorSpec, tensor: Tensor) -> None:
    """Stop at a sparse tensor."""
    if tensor.layout != torch.strided:
        raise NotDense.error(
            f"{line.called}: '{spec.name}' is not a dense tensor",
            help=f"convert it: {spec.name}.to_dense()",
        )


def require_device(
    line: Line, spec: TensorSpec, tensor: Tensor, first: tuple[TensorSpec, Tensor]
) -> None:
    """Stop at a tensor on another device than the first."""
    if tensor.device != first[1].device:
        raise DeviceMismatch.error(
            f"{line.called}: '{spec.name}' is on {tensor.device}, "
            f"but '{first[0].name}' is on {first[1].device}",
            help=f"move it: {spec.name}.to({first[0].name}.device)",
        )


def require_dtype(
    line: Line, spec: TensorSpec, tensor: Tensor, shared: tuple[TensorSpec, Tensor] | None
) -> None:
    """Stop at a dtype that is not the line's, or not that of the other tensors."""
    found = name_of(tensor.dtype)
    place = f"{line.called}: '{spec.name}' is {found}"
    if spec.dtype is not None:
        if found != spec.dtype:
            raise DtypeMismatch.error(
                f"{place}, the line says {format_spec(spec)}: {spec.dtype}",
                help=f"convert it: {spec.name}.to(torch.{spec.dtype})",
            )
        return
    assert shared
    if tensor.dtype != shared[1].dtype:
        raise DtypeMismatch.error(
            f"{place}, but '{shared[0].name}' is {name_of(shared[1].dtype)}",
            help=f"convert one: {spec.name}.to({shared[0].name}.dtype)",
        )
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise DtypeMismatch.error(
            f"{place}; a tensor without a dtype in the line is floating-point or complex",
            help=f"convert it: {spec.name}.to(torch.float32), "
            f"or name the dtype in the line: {format_spec(spec)}: {found}",
        )
