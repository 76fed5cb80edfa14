"""Parts of the ranges of two indices, and the parts of tensors that a block reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import pad

from pullback.define.math import intervals
from pullback.define.math.block import Window
from pullback.define.math.blocks import Sweep, Truths
from pullback.define.math.extents import evaluate_size
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.node import SCALAR, SUM, Node
from pullback.define.math.passes import Statistic


@dataclass(frozen=True)
class Part:
    """A part of an index's range."""

    start: int
    length: int

    @property
    def interval(self) -> tuple[int, int]:
        """Its first and its last value."""
        return self.start, self.start + self.length - 1


# A part of the rows and one of the columns, by their index.
Parts = Mapping[str, Part]


def cut(extent: int, step: int) -> list[Part]:
    """Return the parts of a range."""
    return [Part(start, min(step, extent - start)) for start in range(0, extent, step)]


def bounds_within(
    parts: Parts,
    sizes: Mapping[str, int],
    data: Mapping[Node, Mapping[Part, tuple[int, int]]],
) -> intervals.Bounds:
    """Return what tells the least and the greatest values on a block.

    Args:
        parts: the block.
        sizes: of the line's names, and the whole numbers that are given by their names.
        data: the least and the greatest of whole numbers that data gives, for every part.
    """

    def bounds(term: str | Node) -> tuple[int, int] | None:
        if not isinstance(term, str) and term.op == SCALAR:
            given = sizes.get(str(term.name))
            return None if given is None else (given, given)
        if not isinstance(term, str):
            own = data.get(term)
            return None if own is None else own[next(parts[i] for i in parts if i in term.free)]
        if term in parts:
            return parts[term].interval
        value = evaluate_size(Affine(0, ((term, 1),)), sizes)
        return None if value is None else (int(value), int(value))

    return bounds


# The rows and the columns of a block.
Sides = tuple[int, int]
# With loops, for one value of each index of a batch, and how long an element takes: measured.
WITH_LOOPS: Mapping[Sides, float] = {(256, 512): 1.0, (128, 256): 1.1}
Sizes = tuple[tuple[str, int], ...]


def list_blocks(sweep: Sweep, rows: Sequence[Part], columns: Sequence[Part]) -> list[Parts]:
    """Return blocks, row by row."""
    return [{sweep.rows: row, sweep.columns: column} for row in rows for column in columns]


@functools.lru_cache(maxsize=256)
def find_truths(
    sweep: Sweep, rows: tuple[Part, ...], columns: tuple[Part, ...], sizes: Sizes
) -> tuple[Truths, ...]:
    """Return which conditions hold on each block, row by row, whatever the data are."""
    if not sweep.conditions:
        return ((),) * (len(rows) * len(columns))
    known = dict(sizes)
    every = list_blocks(sweep, rows, columns)
    return tuple(sweep.truths(bounds_within(parts, known, {})) for parts in every)


@functools.lru_cache(maxsize=256)
def choose_sides(sweep: Sweep, extents: Sides, sizes: Sizes) -> Sides:
    """Return the sides of blocks with loops: smaller ones where more of these are left out."""

    def cost(sides: Sides) -> float:
        rows, columns = (cut(extent, side) for extent, side in zip(extents, sides, strict=True))
        truths = find_truths(sweep, (*rows,), (*columns,), sizes)
        kinds = {each: sweep.block(each, lambda _: True) for each in set(truths)}
        computed = sum(kinds[each] is not None for each in truths)
        return computed / len(truths) * WITH_LOOPS[sides]

    rows, columns = min(WITH_LOOPS, key=cost)
    return min(rows, extents[0]), min(columns, extents[1])


def reach(window: Window, parts: Parts, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the first and the last place that a block reads along a dimension."""
    if window.place.index and not (window.low.terms or window.high.terms):
        first, last = parts[window.place.index].interval
        return first + window.low.constant, last + window.high.constant
    ends = intervals.reach(window.place, bounds_within(parts, sizes, {}))
    low, high = (evaluate_size(each, sizes) for each in (window.low, window.high))
    assert ends is not None
    assert low is not None
    assert high is not None
    return ends[0] + int(low), ends[1] + int(high)


def dimension(labels: Sequence[str], place: int) -> int:
    """Return the dimension of a tensor that one of its indices has."""
    return place - len(labels) if BATCH in labels[:place] else place


def rows_first(value: Tensor, labels: Sequence[str], index: str) -> Tensor:
    """Return a tensor as a matrix with a row for each value of an index."""
    moved = value.movedim(dimension(labels, labels.index(index)), 0)
    return moved.reshape(moved.shape[0], -1)


def narrow(value: Tensor, dim: int, low: int, high: int) -> Tensor:
    """Return a tensor from one place to another along a dimension, with zeros outside of it."""
    extent, length = value.shape[dim], high - low + 1
    if low >= 0 and high < extent:
        return value.narrow(dim, low, length)
    first, end = min(max(low, 0), extent), max(min(high + 1, extent), 0)
    inside = value.narrow(dim, first, max(end - first, 0))
    before = min(max(-low, 0), length)
    return pad(
        inside,
        [0, 0] * (value.dim() - 1 - dim) + [before, length - before - inside.shape[dim]],
    )


def is_irregular(own: Statistic, value: Tensor, index: str, *, is_running: bool = False) -> Tensor:
    """Return for which values of an index a statistic is not finite, or is of nothing."""
    value = rows_first(value, own.labels, index)
    # A sum that overflows is computed again for nothing; it takes a third of the time.
    flags = ~value.sum(1).isfinite()
    if is_running and own.op == SUM:
        flags |= (value == 0).any(1)
    return flags
