"""PyTorch's cumulative functions, forwards and backwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.define.math.node import READ, Node

if TYPE_CHECKING:
    from pullback.bind.dense.steps import StatesCall
    from pullback.define.math.cumulative import Cumulative
    from pullback.define.math.recurrence import Group

# What autograd sees through with the very derivative of the steps: of equal values `cummax` gives
# all to the last one, and exporters do not know the others.
RECORDED = ("add",)
# From so many neighbours at each time on, a loop is faster than a cumulative function of PyTorch's.
WIDE = 8
# The same on a GPU, where it needs as many threads as well: else those functions, which cut the
# steps into parts, have more of them.
WIDE_ON_GPU, MANY = 32, 2**14


def accumulate(op: str, values: Tensor, dim: int, *, is_reversed: bool) -> Tensor:
    """Return all values so far combined, along a dimension or against it."""
    if is_reversed:
        return _accumulate(op, values.flip(dim), dim).flip(dim)
    return _accumulate(op, values, dim)


def _accumulate(op: str, values: Tensor, dim: int) -> Tensor:
    match op:
        case "add":
            return torch.cumsum(values, dim, dtype=values.dtype)
        case "mul":
            return torch.cumprod(values, dim, dtype=values.dtype)
        case "maximum":
            return torch.cummax(values, dim).values
        case "minimum":
            return torch.cummin(values, dim).values
        case _:
            return torch.logcumsumexp(values, dim)


def name_of(op: str) -> str:
    """Return the function's name."""
    names = {"add": "cumsum", "mul": "cumprod", "maximum": "cummax", "minimum": "cummin"}
    return f"torch.{names.get(op, 'logcumsumexp')}"


def put(whole: Tensor, dim: int, values: Mapping[int, Tensor], *, in_place: bool) -> Tensor:
    """Return a tensor with other values at some places of a dimension."""
    for place, value in values.items():
        if in_place:
            whole.select(dim, place).copy_(value)
        else:
            whole = whole.select_scatter(value, dim, place)
    return whole


def view_read(node: Node, indices: tuple[str, ...], known: Mapping[str, object]) -> Tensor | None:
    """Return a tensor at some indices as it is there; None if the node is something else."""
    if node.op != READ or node.args:
        return None
    own, value = [place.index for place in node.places], known.get(node.name)
    if not isinstance(value, Tensor) or len(own) != len(indices) or {*own} != {*indices}:
        return None
    return value.permute([own.index(index) for index in indices])


def is_faster(call: StatesCall, group: Group, whole: Cumulative | None, *, on_gpu: bool) -> bool:
    """Return whether a cumulative function of PyTorch's is faster than a loop for a group.

    A loop has lanes along what comes after the time. On a CPU PyTorch's functions have none, and
    may take every element from another line of the cache.

    Args:
        call: of the group.
        group: of states.
        whole: which cumulative function it is.
        on_gpu: whether loops would be those of a GPU.
    """
    if whole is None or (whole.op == "logaddexp" and not on_gpu):
        return False
    state = group.states[whole.place]
    place = state.indices.index(group.weights[0][0])
    before, after = (
        math.prod(map(call.number, own))
        for own in (state.extents[:place], state.extents[place + 1 :])
    )
    return (before * after < MANY or after < WIDE_ON_GPU) if on_gpu else after < WIDE
