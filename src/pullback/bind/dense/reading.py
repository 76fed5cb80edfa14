"""Elements of a tensor at places: by views where the places are affine, by gathers where not.

`x[2*i + p]` is a view with two dimensions that both move along x: nothing is copied. What may lie
outside the tensor is under a condition, so zeros take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from pullback.bind.dense import places, slices
from pullback.bind.dense.value import (
    Axis,
    Value,
    align,
    is_differentiated,
    is_traced,
    join_axes,
)
from pullback.define.math.index import BATCH, Affine, is_size
from pullback.define.math.index import size as extent_of
from pullback.define.math.node import INSIDE, READ, Node
from pullback.define.shape import Size

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense
    from pullback.bind.dense.space import Env

# A tensor may grow this many times by the zeros around it; beyond, it is read place by place.
MOST_PADDING = 4


def read(dense: Dense, node: Node, env: Env, *, dtype: torch.dtype | None = None) -> Value:
    """Return the elements that a node reads, in a dtype, or in that which the call computes in."""
    if dtype is None and node.type == "real" and any(place.nodes for place in node.places):
        given = dense.given(node.name)
        # What is gathered is converted, and not all that it is gathered from. PyTorch's derivative
        # of that would be added up in the narrower dtype.
        if not (is_differentiated(given) or is_traced(given)):
            found = read(dense, node, env, dtype=given.dtype)
            return found._replace(data=dense.numbers.tensor(found.data).to(dense.call.compute))
    data, axes, left = spread_places(dense, node, env, dtype)
    by_place: dict[int, Affine] = {}
    for place in left:
        dim = axes.index(None)
        seen = view_at(dense, data, dim, place, env)
        if seen is None:
            by_place[dim] = place
            axes[dim] = (BATCH, -1 - dim)  # of no index: it is gathered below
            continue
        data, added = seen
        axes = [*axes[:dim], *added[:1], *axes[dim + 1 :], *added[1:]]
    found = [axis for axis in axes if axis is not None]
    if by_place:
        data, found = gather_at(dense, data, found, by_place, env)
    while len(set(found)) < len(found):
        data, found = take_diagonal(data, found)
    is_spare = node.name in dense.spare and data.shape == dense.given(node.name).shape
    return Value(data, tuple(found), own=bool(by_place) or is_spare)


def spread_places(
    dense: Dense, node: Node, env: Env, dtype: torch.dtype | None = None
) -> tuple[Tensor, list[Axis | None], list[Affine]]:
    """Return a tensor, its axes, with None where a place is left to be read, and these places.

    Dimensions of `...` line up from the right; one of size 1 is the same for all.
    """
    data = dense.tensor(node.name, node.type, dtype)
    own = dense.space.labels[node.name]
    many = data.dim() - (len(own) - 1)
    axes: list[Axis | None] = []
    left: list[Affine] = []
    for label, place in zip(own, node.places, strict=True):
        if label != BATCH:
            whole = place.index
            if whole and dense.space.covers(env[whole], data.shape[len(axes)]):
                axes.append((whole, 0))
            else:
                axes.append(None)
                left.append(place)
            continue
        assert place.index, place
        for k in range(len(dense.space.batch) - many, len(dense.space.batch)):
            if data.shape[len(axes)] == 1 and dense.space.batch[k] != 1:
                data = data.select(len(axes), 0)
            else:
                axes.append((place.index, k))
    return data, axes, left


def view_at(
    dense: Dense, data: Tensor, dim: int, place: Affine, env: Env
) -> tuple[Tensor, list[Axis]] | None:
    """Return a tensor read at affine places along one dimension, which becomes several.

    Returns:
        the tensor with the first of the new dimensions in place of the old one and the others
        last, and their axes. None where data decides the places, or most of them are outside; and
        for windows whose number is symbolic: ONNX's exporter would fix it.
    """
    ends = ends_of_view(dense, place, data.shape[dim], env)
    if ends is None:
        return None
    low, high = ends
    beyond = high + 1 - data.shape[dim]
    if high < 0 or low >= data.shape[dim]:
        data = data.narrow(dim, 0, 0)  # nothing of it is read
        low, beyond = low - high - 1, 0
    if low < 0 or beyond > 0:
        # What is not read is cut off, so that the result has no holes.
        data = pad(data, [0, 0] * (data.dim() - 1 - dim) + [-low, beyond])
        low = 0
    steps = find_steps(place)
    if not steps:
        return data.select(dim, low), []
    data = data.narrow(dim, low, high - ends[0] + 1)
    axes: list[Axis] = []
    at_dim = dim
    for k, (index, factor) in enumerate(steps):
        many = dense.space.extent(env[index])
        rest = sum(abs(f) * (dense.space.extent(env[t]) - 1) for t, f in steps[k + 1 :]) + 1
        if k < len(steps) - 1:
            data = data.unfold(at_dim, rest, abs(factor))
        elif abs(factor) != 1:
            data = data[(slice(None),) * at_dim + (slice(None, None, abs(factor)),)]
        assert data.shape[at_dim] == many
        if factor < 0:
            data = data.flip(at_dim)
        axes.append((index, 0))
        at_dim = data.dim() - 1
    return data, axes


def find_steps(place: Affine) -> list[tuple[str, int]]:
    """Return the indices that move a place, each with how far."""
    return [(t, f) for t, f in place.terms if isinstance(t, str) and not is_size(t)]


def ends_of_view(dense: Dense, place: Affine, extent: Size, env: Env) -> tuple[Size, Size] | None:
    """Return the least and the greatest place that a view reads of so many; None without one."""
    ends, steps = None if place.nodes else places.reach(dense, place, env), find_steps(place)
    if ends is None or any(dense.space.is_batch(env[index]) for index, _ in steps):
        return None
    extents = [dense.space.extent(env[index]) for index, _ in steps]
    if len(steps) > 1 and any(isinstance(size, torch.SymInt) for size in extents):
        return None
    outside = max(0, -ends[0]) + max(0, ends[1] + 1 - extent)
    return ends if outside <= MOST_PADDING * (extent + 8) else None


def is_padded(dense: Dense, node: Node, guard: Node, env: Env) -> bool:
    """Return whether what a node reads is 0 where a condition on one of its places is wrong."""
    if node.op != READ or guard.op != INSIDE:
        return False
    labels, extent = dense.space.labels[node.name], dense.space.extent(guard.size)
    return any(
        place == guard.places[0]
        and label != BATCH
        and extent_of(label) == guard.size
        and ends_of_view(dense, place, extent, env) is not None
        for label, place in zip(labels, node.places, strict=True)
    )


def gather_at(
    dense: Dense, data: Tensor, axes: list[Axis], by_place: dict[int, Affine], env: Env
) -> tuple[Tensor, list[Axis]]:
    """Return a tensor read at places that are tensors, along some of its dimensions."""
    found = {dim: places.compute_place(dense, place, env) for dim, place in by_place.items()}
    shared = {axis for value in found.values() for axis in value.axes}
    for dim, axis in enumerate(axes):
        if axis in shared:  # x[b, idx[b, n]]: the same b
            steps = torch.arange(dense.space.length(axis, env), device=dense.call.device)
            found[dim] = Value(steps, (axis,))
    across = join_axes(found.values(), dense.space.axes(env))
    dims = list(found)
    rest = [dim for dim in range(len(axes)) if dim not in found]
    limits = [data.shape[dim] for dim in dims]
    new = [*across, *(axes[dim] for dim in rest)]
    slices.require_small(dense, new, env)
    if any(limit == 0 for limit in limits):
        shape = [dense.space.length(axis, env) for axis in across]
        return data.new_zeros([*shape, *(data.shape[dim] for dim in rest)]), new
    indices = [
        clamp_places(dense, by_place.get(dim), align(found[dim], across), limit, env)
        for dim, limit in zip(dims, limits, strict=True)
    ]
    if dims != list(range(len(dims))):
        data = data.permute(*dims, *rest)
    if len(indices) == 1:
        [index] = indices
        flat = data.index_select(0, index.reshape(-1))
        return flat.reshape([*index.shape, *data.shape[1:]]), new
    if not across:
        # At numbers alone PyTorch returns a view, and what is computed next may be written to it.
        return data[tuple(index.reshape(1) for index in indices)].squeeze(0), new
    return data[tuple(indices)], new


def clamp_places(
    dense: Dense, place: Affine | None, index: object, limit: Size, env: Env
) -> Tensor:
    """Return places inside: what is outside is not selected, or has been refused."""
    known = place is None or places.is_inside(dense, place, limit, env)
    if isinstance(index, Tensor) and known:
        return index
    if not isinstance(index, Tensor):
        index = torch.as_tensor(index, device=dense.call.device)
    return index.clamp(0, limit - 1)


def take_diagonal(data: Tensor, axes: list[Axis]) -> tuple[Tensor, list[Axis]]:
    """Return the diagonal of a tensor along an axis that it has twice."""
    twice = next(axis for axis in axes if axes.count(axis) > 1)
    first = axes.index(twice)
    second = axes.index(twice, first + 1)
    rest = [axis for k, axis in enumerate(axes) if k not in (first, second)]
    return data.diagonal(0, first, second), [*rest, twice]
