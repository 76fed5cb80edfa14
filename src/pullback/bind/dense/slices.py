"""Reductions in slices, where what is reduced would take too much memory as a whole.

`sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])` needs a tensor over n, m and d for an output
over n. Beyond a bound it is computed for a part of n at a time; a sum over everything, for a part
of what is summed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense.space import Env
from pullback.bind.dense.value import Axis, Value, align, is_traced
from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, SUM, Node

if TYPE_CHECKING:
    from pullback.bind.dense.evaluate import Dense

# One value may take this many bytes, or this many times the inputs and outputs if that is more. On
# a GPU parts of less are too small for its matrix units.
MOST_BYTES = 64 * 2**20
MOST_BYTES_ELSEWHERE = 512 * 2**20
MOST_TIMES = 8

Reduce = Callable[["Dense", Node, Env], Value]


class TooLarge(Exception):  # noqa: N818  (a reduction around it catches it)
    """A value would exceed the bound."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def bound_of(tensors: Sequence[Tensor], written: int, device: torch.device) -> int | None:
    """Return how many bytes one value may take; None under a tracer.

    Args:
        tensors: the inputs.
        written: how many bytes the outputs take.
        device: where it is computed.
    """
    if any(map(is_traced, tensors)):
        return None
    taken = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return most_bytes(taken + written, device)


def most_bytes(taken: int, device: torch.device) -> int:
    """Return how many bytes one value may take, beside inputs and outputs that take so many."""
    return max(MOST_BYTES if device.type == "cpu" else MOST_BYTES_ELSEWHERE, MOST_TIMES * taken)


def require_small(dense: Dense, axes: Sequence[Axis], env: Env) -> None:
    """Stop at a value that exceeds the bound, so that a reduction around it takes slices."""
    if dense.bound is None:
        return
    many = math.prod(dense.space.length(axis, env) for axis in axes)
    if many * dense.call.compute.itemsize > dense.bound:
        raise TooLarge(many * dense.call.compute.itemsize)


def reduce_bounded(dense: Dense, node: Node, env: Env, reduce: Reduce) -> Value:
    """Return a reduction, in slices if what is reduced does not fit the bound."""
    try:
        return reduce(dense, node, env)
    except TooLarge as large:
        bound = dense.bound
        assert bound is not None
        many = math.prod(
            dense.space.length(axis, env) for axis in dense.space.axes(env) if axis[0] in node.free
        )
        if many * dense.call.compute.itemsize > bound:
            raise
        cut = choose_cut(dense, node, env, large.size)
        if cut is None:
            return reduce_whole(dense, node, env, reduce)
        return reduce_by_slices(dense, node, env, reduce, cut)


def reduce_whole(dense: Dense, node: Node, env: Env, reduce: Reduce) -> Value:
    """Return a reduction that cannot be cut further, without a bound."""
    bound, dense.bound = dense.bound, None
    try:
        return reduce(dense, node, env)
    finally:
        dense.bound = bound


@dataclass(frozen=True)
class Cut:
    """How slices are taken: `step` values at a time of an index that runs over `whole`."""

    index: str
    whole: Affine
    step: int


def choose_cut(dense: Dense, node: Node, env: Env, needed: int) -> Cut | None:
    """Return how to cut a reduction: by its outermost free index, else by the one it binds.

    Args:
        dense: the call.
        node: the reduction.
        env: how far its free indices run.
        needed: how many bytes it needs as a whole.
    """
    free = [(index, own) for index, own in env.items() if index in node.free]
    bound = [] if node.op == ARGMAX else [(node.bound, node.size)]
    for index, own in (*free, *bound):
        extent = dense.space.extent(own)
        if not dense.space.is_batch(own) and extent > 1:
            assert dense.bound is not None
            return Cut(index, own, max(1, min(extent // 2, extent * dense.bound // needed)))
    return None


def reduce_by_slices(dense: Dense, node: Node, env: Env, reduce: Reduce, cut: Cut) -> Value:
    """Return a reduction from those of slices of one index."""
    extent, parts = dense.space.extent(cut.whole), list[Value]()
    for start in range(0, extent, cut.step):
        many = min(cut.step, extent - start)
        with dense.window(cut.whole, cut.index, start, many) as window:
            if cut.index == node.bound:
                part = graph.make(node.op, node.args, (cut.index, window), node.type, frozenset())
                parts.append(reduce_bounded(dense, part, env, reduce))
            else:
                parts.append(reduce_bounded(dense, node, {**env, cut.index: window}, reduce))
    if cut.index != node.bound:
        lengths = [min(cut.step, extent - start) for start in range(0, extent, cut.step)]
        return concatenate(dense, parts, (cut.index, 0), lengths)
    axes = parts[0].axes
    data = torch.stack([dense.numbers.tensor(part.data) for part in parts])
    return Value(data.sum(0) if node.op == SUM else data.amax(0), axes)


def concatenate(dense: Dense, parts: list[Value], axis: Axis, lengths: list[int]) -> Value:
    """Concatenate slices along an axis, each with its own number of values.

    A slice in which nothing is selected lacks axes that others have: it is constant along them.
    """
    axes = tuple(dict.fromkeys(own for part in parts for own in (*part.axes, axis)))
    dim = axes.index(axis)
    tensors = [dense.numbers.tensor(align(part, axes)) for part in parts]
    shapes = [[1] * (len(axes) - tensor.dim()) + list(tensor.shape) for tensor in tensors]
    whole = [max(sizes) for sizes in zip(*shapes, strict=True)]
    data = [
        tensor.expand([*whole[:dim], length, *whole[dim + 1 :]])
        for tensor, length in zip(tensors, lengths, strict=True)
    ]
    return Value(torch.cat(data, dim), axes)
