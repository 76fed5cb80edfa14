"""Replaces saved tensors by others, one at a time: does backward need them?"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from pullback.verify.call import Call, can_require_grad
from pullback.verify.randomness import make_generator
from pullback.verify.tracing.difference import copy_values, find_difference

ZEROS = -1


def spoil(tensor: Tensor, way: int) -> Tensor | None:
    """Return other values for a tensor: NaN, or random ones; for integers another order."""
    if not tensor.numel():
        return None
    if tensor.layout != torch.strided:
        factor = {0: math.nan, ZEROS: 0.0}.get(way, 1.0 + way)
        return tensor.detach() * factor if can_require_grad(tensor) else None
    if can_require_grad(tensor):
        if way in (0, ZEROS):
            return torch.full_like(tensor, 0.0 if way else math.nan)
        generator = make_generator(way)
        drawn = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        return (drawn * 3).to(tensor)
    if tensor.dtype == torch.bool:
        return ~tensor if way else torch.zeros_like(tensor)
    # Indices have to stay in their range.
    return torch.zeros_like(tensor) if way else tensor.flip(tuple(range(tensor.dim())))


def backward_with(call: Call, index: int | None, way: int) -> tuple[list[Tensor | None], int]:
    """Return the gradients with one saved tensor replaced, and how many tensors are saved."""
    count = 0

    def pack(tensor: Tensor) -> tuple[int, Tensor]:
        nonlocal count
        count += 1
        return count - 1, tensor.detach() if tensor.is_leaf else tensor

    def unpack(packed: tuple[int, Tensor]) -> Tensor:
        number, tensor = packed
        if number != index:
            return tensor
        other = spoil(tensor, way)
        if other is None:
            raise ValueError("it has no other values")
        return other

    with saved_tensors_hooks(pack, unpack):
        run = call.forward()
    return copy_values(run.backward(run.random_grads())), count


def is_needed(
    call: Call,
    index: int,
    ordinary: list[Tensor | None],
    ways: tuple[int, ...] = (0, 1, 2, ZEROS),
) -> bool:
    """Tell whether a gradient changes if a saved tensor has other values, or backward raises.

    A tensor without other values, such as an empty one, counts as needed.
    """
    for way in ways:
        try:
            found, _ = backward_with(call, index, way)
        except Exception:
            return True
        if find_difference(ordinary, found) is not None:
            return True
    return False
