"""Tensors whose dimensions have the names of indices: only those that the value depends on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from pullback.define.shape import Size

# An index, and which dimension of it: `...` has several, and so has an index that runs over it.
Axis = tuple[str, int]
# The size that is assumed where a tracer knows nothing about it.
UNKNOWN = 64


class Value(NamedTuple):
    """The value of a node for all values of its indices.

    Attributes:
        data: a tensor, or a number where no tensor is in it.
        axes: what each dimension of the tensor is; none appears twice.
        own: whether the tensor's memory is not a parameter's.
    """

    data: Any
    axes: tuple[Axis, ...] = ()
    own: bool = True


def align(value: Value, axes: Sequence[Axis]) -> Any:  # noqa: ANN401
    """Return a value's tensor with given dimensions, of size 1 where it has none."""
    if value.axes == axes or not isinstance(value.data, Tensor) or not value.axes:
        return value.data
    data = permute(value.data, value.axes, [axis for axis in axes if axis in value.axes])
    if len(value.axes) == len(axes):
        return data
    # Dimensions of size 1 on the left come by themselves.
    first = next(k for k, axis in enumerate(axes) if axis in value.axes)
    for place in range(first, len(axes)):
        if axes[place] not in value.axes:
            data = data.unsqueeze(place - first)
    return data


def permute(data: Tensor, axes: Sequence[Axis], order: Sequence[Axis]) -> Tensor:
    """Return a tensor with its dimensions in another order."""
    places = [axes.index(axis) for axis in order]
    return data if places == list(range(len(places))) else data.permute(places)


def join_axes(values: Iterable[Value], order: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the axes of several values together, in a given order."""
    present = {axis for value in values for axis in value.axes}
    return tuple(axis for axis in order if axis in present)


def likely_size(size: Size) -> int:
    """Return a size for choosing what is faster; for a symbolic one, its hint.

    Converted to a number, it would specialise the trace to that size.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    return size.node.hint if size.node.has_hint() else UNKNOWN


def is_traced(tensor: object) -> bool:
    """Return whether a tensor's values cannot be looked at.

    A process's part of a DTensor is a `FunctionalTensor` while AOTAutograd traces the call.
    """
    return isinstance(tensor, Tensor) and (
        isinstance(tensor, (FakeTensor, FunctionalTensor))
        or tensor.is_meta
        or is_proxied()
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore
    )


def is_proxied() -> bool:
    """Return whether `make_fx` traces: only if it is imported already, since that imports SymPy."""
    tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return tracer is not None and tracer.get_proxy_mode() is not None


def is_differentiated(tensor: Tensor) -> bool:
    """Return whether autograd records what is done with a tensor; in a kernel, it does not."""
    return tensor.requires_grad and torch.is_grad_enabled()
