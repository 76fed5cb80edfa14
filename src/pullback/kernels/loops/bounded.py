"""Sums of which conditions leave a part: `sum[i](where(0 <= h - 2*i < 2, g[i], 0))`.

The gradient of a stencil with strides has such ones, and what is summed over a window. A loop runs
where some lane has something to add, and not over the whole range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine, at, is_size
from pullback.define.math.node import ARGMAX, EQUAL, INSIDE, SUM, Node, is_number
from pullback.kernels.loops.scope import Trip

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


@dataclass(frozen=True)
class Bound:
    """Where a sum has something to add: `low <= factor*index + rest <= high`.

    Attributes:
        factor: of the sum's index.
        rest: what else is added, without what is known to be between 0 and some number.
        low: the least that may be, `high`: the greatest.
    """

    factor: int
    rest: Affine
    low: Affine
    high: Affine


@dataclass(frozen=True)
class Part:
    """The part of a sum's range that its loop runs over.

    Attributes:
        begin: where, in C++.
        end: behind it.
        trip: how often it runs for a block of lanes, at most.
    """

    begin: str
    end: str
    trip: Trip


def find_part(emitter: Emitter, node: Node) -> Part | None:
    """Return the part of a sum that is not left out; None if that is all of it."""
    lane = emitter.here.lane
    if node.op != SUM or node in emitter.split or emitter.backed or lane is None:
        return None
    bounds = [bound for bound in find_bounds(node) if can_be_written(emitter, bound.rest)]
    if not bounds:
        return None
    vectors = emitter.counts.get(lane, 1)
    trips = [count_turns(bound, lane, vectors * emitter.target.lanes) for bound in bounds]
    lengths = [(emitter.measure(many) or 0) / step for many, step in trips]
    least, whole = min(lengths), emitter.measure(node.size)
    if whole is None or least >= whole:
        return None
    begins, ends = ["int64_t{0}"], [emitter.extents.text(node.size)]
    for bound in bounds:
        begin, end = write_ends(emitter, bound, lane, f"({vectors} * lanes - 1)")
        begins.append(begin)
        ends.append(end)
    first, last = emitter.name("from"), emitter.name("to")
    emitter.line(f"const int64_t {first} = {reduce('most({}, {})'.format, begins)};")
    emitter.line(f"const int64_t {last} = {reduce('least({}, {})'.format, ends)};")
    return Part(first, last, trips[lengths.index(least)])


def find_bounds(node: Node) -> Iterator[Bound]:
    """Yield what has to hold of a sum's index where there is something to add."""
    ranges: dict[str, Affine] = {}
    body, conditions = node.args[0], list[Node]()
    while body.op == SUM or (body.op == "where" and is_number(body.args[2], 0.0)):
        if body.op == SUM:
            ranges[body.bound] = body.size
            (body,) = body.args
        else:
            conditions.append(body.args[0])
            body = body.args[1]
    while conditions:
        condition = conditions.pop()
        if condition.op == "logical_and":
            conditions += condition.args
        elif bound := bound_of_condition(condition, node.bound, ranges):
            yield bound


def bound_of_condition(condition: Node, index: str, ranges: dict[str, Affine]) -> Bound | None:
    """Return what a condition says of an index; None if that is nothing.

    Args:
        condition: the condition.
        index: of the sum.
        ranges: of the indices of sums in it.
    """
    if condition.op not in {INSIDE, EQUAL}:
        return None
    most = condition.size - 1 if condition.op == INSIDE else Affine(0)
    return bound_of(condition.places[0], index, most, ranges)


def bound_of(place: Affine, index: str, most: Affine, ranges: dict[str, Affine]) -> Bound | None:
    """Return what `0 <= place <= most` says of an index; None if that is nothing.

    Args:
        place: of the condition.
        index: of the sum.
        most: the greatest that the place may be.
        ranges: of the indices of sums in it.
    """
    low, high, rest = Affine(0), most, place
    for term, factor in place.terms:
        if isinstance(term, str):
            size = ranges.get(term)
        elif term.op == ARGMAX:
            size = term.size
        else:
            return None
        if size is not None:
            rest -= (at(term) if isinstance(term, str) else Affine(0, ((term, 1),))) * factor
            end = (size - 1) * factor
            low, high = (low - end, high) if factor > 0 else (low, high - end)
    factor = rest.factor(index)
    return Bound(factor, rest - at(index) * factor, low, high) if factor else None


def can_be_written(emitter: Emitter, rest: Affine) -> bool:
    """Return whether a place has one value for all that is computed side by side but the lanes."""
    free = {term for term, _ in rest.terms if isinstance(term, str) and not is_size(term)}
    others = free - {emitter.here.lane}
    beside = {emitter.tile, *emitter.abreast, *emitter.written, *emitter.counts}
    return not others & beside and free <= emitter.bound_indices


def count_turns(bound: Bound, lane: str, lanes: int) -> Trip:
    """Return how often a loop runs for so many lanes, as a size and what it is divided by."""
    step, spread = abs(bound.factor), abs(bound.rest.factor(lane)) * (lanes - 1)
    return bound.high - bound.low + spread + step, step


def write_ends(emitter: Emitter, bound: Bound, lane: str, last: str) -> tuple[str, str]:
    """Return where a loop begins and ends, in C++, so that all lanes have what is theirs."""
    text, slope = emitter.extents.text, bound.rest.factor(lane)
    place = emitter.places.place(bound.rest, {lane: 0})
    least = f"({place})" if slope >= 0 else f"({place} + {slope} * {last})"
    most = f"({place})" if slope <= 0 else f"({place} + {slope} * {last})"
    step = abs(bound.factor)
    if bound.factor > 0:
        begin, end = f"{text(bound.low)} - {most}", f"{text(bound.high)} - {least}"
    else:
        begin, end = f"{least} - {text(bound.high)}", f"{most} - {text(bound.low)}"
    if step == 1:
        return f"int64_t({begin})", f"int64_t({end}) + 1"
    begin = f"floor_divide(int64_t({begin} + {step - 1}), int64_t{{{step}}})"
    return begin, f"floor_divide(int64_t({end}), int64_t{{{step}}}) + 1"
