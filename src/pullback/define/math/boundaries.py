"""Reads of states, which may lie outside: there a boundary says what they are, `h[-1] = 0`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pullback.define.math import build
from pullback.define.math.facts import is_positive
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.inside import OutOfBounds, format_size
from pullback.define.math.node import Node, Type, equal, is_number, number, read
from pullback.define.math.node import index as index_number
from pullback.define.math.subscripts import Access, Index, NamedValue, Statement, is_batch
from pullback.diagnostic import PullbackError, Rule

if TYPE_CHECKING:
    from pullback.define.math.reader import IndexReader

WrongBoundary = Rule("PB154", "wrong-boundary")
StateType = Rule("PB155", "state-type")

# Where an index lies beside its range; or the one place at which it is.
INSIDE, BELOW, ABOVE = "inside", "below", "above"
Region = str | Affine
# Beyond so many places outside, only a boundary for all of them, `h[t < 0]`, is one.
MOST_PLACES = 8
ALL_AT_ONCE = "this is for all places at once; write one for each, "


@dataclass(eq=False)
class Boundary:
    """What a state is outside of its own places: `h[-1, d] = h0[d]`, `h[t < 0, d] = 0`.

    Attributes:
        statement: as it is written; `row`: which one of the formula.
        regions: for each index where it is.
        value: at the indices that are inside.
        used: whether a read reaches it.
    """

    statement: Statement
    row: int
    regions: tuple[Region, ...] = ()
    value: NamedValue | None = None
    used: bool = False

    def covers(self, regions: Sequence[Region]) -> bool:
        """Return whether it says what the state is there."""
        return all(map(_covers, self.regions, regions))


def _covers(own: Region, other: Region) -> bool:
    if isinstance(own, Affine) or isinstance(other, str):
        return own == other
    return own == (BELOW if not other.terms else ABOVE)


@dataclass(eq=False)
class ReadState:
    """One state while its formula is read.

    Attributes:
        name: of the output or the part.
        indices: its own.
        type: of its elements.
        boundaries: what it is elsewhere; `ready` once they have been read, `open` meanwhile.
        node: its element, once that has been read.
    """

    name: str
    indices: list[Index]
    type: Type
    boundaries: list[Boundary]
    ready: bool = False
    open: bool = False
    node: Node | None = field(default=None)

    @property
    def element(self) -> Node:
        """A read of itself at its own indices."""
        return read(self.name, [at(index.key) for index in self.indices], self.type)

    @property
    def shown(self) -> str:
        """It with its indices, as it is written."""
        return f"{self.name}[{', '.join(index.name for index in self.indices)}]"


def read_state(
    reader: IndexReader,
    tree: ast.expr,
    state: ReadState,
    places: Sequence[Affine],
) -> Node:
    """Return a state at some places: its element, or what a boundary says."""
    program, ranges = reader.program, reader.program.ranges
    extents = [ranges.size(index.key) for index in state.indices]
    value = read(state.name, places, state.type)
    if not state.boundaries:
        _require_inside(reader, tree, state, places)
        return value
    _read_boundaries(reader, state)
    padded, reader.outside = reader.outside, None
    shown = reader.shown(tree)
    for place, extent in zip(places, extents, strict=True):
        program.accesses.append(Access(shown, state.name, place, extent, weak=True))
    regions = [
        _find_regions(reader, place, extent) for place, extent in zip(places, extents, strict=True)
    ]
    outside = [each for each in itertools.product(*regions) if {*each} != {INSIDE}]
    reached = [b for b in state.boundaries if any(map(b.covers, outside))]
    for boundary in reached:
        boundary.used = True
    if program.known:
        left = [e for e in outside if not any(b.covers(e) for b in reached)]
        if left and padded is None:
            raise _not_covered(reader, tree, state, left[0], places)
        _require_one(reader, state, reached, outside)
    known = [each for each in outside if any(b.covers(each) for b in reached)]
    always, certain = _covered_dimensions(regions, known)
    guards: list[tuple[list[Node], Node]] = []
    for boundary in (None, *reached):
        where = boundary.regions if boundary else [INSIDE] * len(places)
        own = [
            _guard(reader, *each)
            for k, each in enumerate(zip(where, places, extents, strict=True))
            if not (padded is not None and certain and k not in always)
        ]
        if boundary is None:
            guards.append((own, value))
            continue
        assert boundary.value
        inner = _inner_places(boundary, places)
        reader.require_again(boundary.value, inner, shown)
        guards.append((own, boundary.value.at(inner, ranges)))
    if padded is not None and certain:
        rest = [k for k in range(len(places)) if k not in always]
        padded += [ranges.inside(places[k], extents[k]) for k in rest]
    elif padded is not None:
        padded.append(_any_of([_join(own) for own, _ in guards]))
    reader.outside = padded
    if padded is None or certain:
        # What no boundary is for is inside: `where(t == 0, h0[d], h[t - 1, d])`.
        guards = [*guards[1:], guards[0]]
    found = guards[-1][1]
    for own, each in reversed(guards[:-1]):
        found = reader.apply(tree, "where", _join(own), each, found)
    return _without_steps(reader, tree, state, places, found)


def _without_steps(
    reader: IndexReader, tree: ast.expr, state: ReadState, places: Sequence[Affine], found: Node
) -> Node:
    """Return what is read at the end of a state, which without any step is a boundary's place.

    Elsewhere every size is taken to be 1 at least.
    """
    ranges = reader.program.ranges
    for k, (place, index) in enumerate(zip(places, state.indices, strict=True)):
        extent = ranges.size(index.key)
        outside = {extent - 1: Affine(-1), Affine(0): extent}.get(place)
        if outside is None or not extent.terms:
            continue
        beyond = [outside if other == k else INSIDE for other in range(len(places))]
        for boundary in (each for each in state.boundaries if each.covers(beyond)):
            assert boundary.value
            boundary.used = True
            there = build.apply("gt", index_number(extent), number(0))
            value = boundary.value.at(_inner_places(boundary, places), ranges)
            found = reader.apply(tree, "where", there, found, value)
    return found


def _covered_dimensions(
    regions: Sequence[Sequence[Region]], known: Sequence[Sequence[Region]]
) -> tuple[set[int], bool]:
    """Return the dimensions outside of which boundaries reach, and whether they leave nothing out.

    Then `pad` asks for the other dimensions alone: `pad(u[t - 1, x + 1])` where a boundary is for
    all x at t = -1.
    """
    always = {k for each in known for k, region in enumerate(each) if region != INSIDE}
    whole = itertools.product(*(own if k in always else [INSIDE] for k, own in enumerate(regions)))
    inside = tuple([INSIDE] * len(regions))
    return always, {*whole} - {inside} == {tuple(each) for each in known}


def _any_of(conditions: Sequence[Node]) -> Node:
    found = conditions[0]
    for condition in conditions[1:]:
        found = build.apply("logical_or", found, condition)
    return found


def _require_inside(
    reader: IndexReader, tree: ast.expr, state: ReadState, places: Sequence[Affine]
) -> None:
    """Stop at a read of a state without boundaries that may be outside."""
    ranges = reader.program.ranges
    extents = [ranges.size(index.key) for index in state.indices]
    try:
        reader.access(tree, state.name, places, extents)
    except PullbackError as error:
        if error.finding.code != OutOfBounds.code:
            raise
        pairs = zip(places, extents, strict=True)
        outside = itertools.product(*(_find_regions(reader, *pair) for pair in pairs))
        left = next(each for each in outside if {*each} != {INSIDE})
        raise _not_covered(reader, tree, state, left, places) from None


def _inner_places(boundary: Boundary, places: Sequence[Affine]) -> tuple[Affine, ...]:
    """Return the places of the indices that are inside."""
    return tuple(p for r, p in zip(boundary.regions, places, strict=True) if r == INSIDE)


def _join(nodes: Sequence[Node]) -> Node:
    """Return conditions as one, without those that always hold."""
    kept = [node for node in nodes if not is_number(node, 1)]
    if any(is_number(node, 0) for node in kept):
        return number(False)
    found = kept[0] if kept else number(True)
    for node in kept[1:]:
        found = build.apply("logical_and", found, node)
    return found


def _guard(reader: IndexReader, region: Region, place: Affine, extent: Affine) -> Node:
    """Return the condition that an index is in a region."""
    if isinstance(region, Affine):
        return equal(place - region)
    if region == INSIDE:
        return reader.program.ranges.inside(place, extent)
    end = number(0) if region == BELOW else index_number(extent)
    return build.apply("lt" if region == BELOW else "ge", index_number(place), end)


def _find_regions(reader: IndexReader, place: Affine, extent: Affine) -> list[Region]:
    """Return where an index of a read may lie: a number of places outside, if they are few."""
    ranges, facts = reader.program.ranges, reader.facts
    bounds = ranges.bounds(place)
    found: list[Region] = []
    if not is_positive(-place - 1, facts, ranges) and not is_positive(
        place - extent, facts, ranges
    ):
        found.append(INSIDE)
    if not is_positive(place, facts, ranges):
        least = bounds[0] if bounds else Affine(0, place.terms)
        few = not least.terms and -MOST_PLACES <= least.constant < 0
        found += [Affine(k) for k in range(-1, least.constant - 1, -1)] if few else [BELOW]
    if not is_positive(extent - 1 - place, facts, ranges):
        most = (bounds[1] if bounds else place) - extent
        few = not most.terms and 0 <= most.constant < MOST_PLACES
        found += [extent + k for k in range(most.constant + 1)] if few else [ABOVE]
    return found


def _read_boundaries(reader: IndexReader, state: ReadState) -> None:
    """Read what a state is elsewhere, when it is first read."""
    if state.open:
        raise WrongBoundary.error(
            f"{reader.of}: a boundary of '{state.name}' reads '{state.name}'",
            at=reader.text,
            help="a boundary may read everything but the state itself",
        )
    if state.ready:
        return
    state.open = True
    for boundary in state.boundaries:
        _read_boundary(reader, state, boundary)
    state.open, state.ready = False, True


def _read_boundary(outer: IndexReader, state: ReadState, boundary: Boundary) -> None:
    program, statement = outer.program, boundary.statement
    reader = type(outer)(statement.text, program, boundary.row)
    reader.part = {}
    subscripts = list(statement.subscripts or ())
    batch = [k for k, index in enumerate(state.indices) if index.name == BATCH]
    if batch and not any(map(is_batch, subscripts)) and len(subscripts) < len(state.indices):
        subscripts.insert(batch[0], ast.Constant(value=...))
    if len(subscripts) != len(state.indices):
        raise WrongBoundary.error(
            f"{program.of}: '{state.name}' has {len(state.indices)} indices, as in {state.shown}",
            at=statement.text,
        )
    regions: list[Region] = []
    for tree, index in zip(subscripts, state.indices, strict=True):
        match tree:
            case ast.Name(id=name) if name not in statement.taken:
                reader.scope[name] = index
                regions.append(INSIDE)
            case ast.Constant(value=value) if value is ...:
                reader.scope[BATCH] = index
                regions.append(INSIDE)
            case ast.Compare(ops=[ast.Lt()], comparators=[ast.Constant(value=0)]):
                regions.append(BELOW)
                reader.cures[index.name] = f"{ALL_AT_ONCE}{state.name}[-1] = ..."
            case ast.Compare(ops=[ast.GtE()], comparators=[end]):
                _outside_place(reader, state, index, end, ends=True)
                regions.append(ABOVE)
                reader.cures[index.name] = f"{ALL_AT_ONCE}{state.name}[size({index.name})] = ..."
            case _:
                regions.append(_outside_place(reader, state, index, tree))
    if {*regions} == {INSIDE}:
        raise WrongBoundary.error(
            f"{program.of}: '{state.name}' has a value already, and this is no boundary",
            at=statement.text,
            help="a boundary has a place outside: h[-1] = ..., h[t < 0] = ..., h[size(t)] = ...",
        )
    boundary.regions = tuple(regions)
    value = reader.value(statement.values[0])
    inner = [i for i, region in zip(state.indices, regions, strict=True) if region == INSIDE]
    value = as_type(value, state, program.of, statement.text)
    boundary.value = NamedValue(state.name, inner, value, reader.part)


def _outside_place(
    reader: IndexReader, state: ReadState, index: Index, tree: ast.expr, *, ends: bool = False
) -> Affine:
    """Return the place of a boundary, which is outside of the state; if `ends`, where it ends."""
    place, extent = reader.place(tree), reader.program.ranges.size(index.key)
    below = not place.terms and place.constant < 0 and not ends
    beyond = place - extent
    wrong = beyond.terms or beyond.constant < 0 or (ends and beyond.constant > 0)
    if not below and reader.program.known and wrong:
        raise WrongBoundary.error(
            f"{reader.of}: '{index.name}' of {state.shown} runs over {format_size(extent)}, "
            f"and a boundary is outside of that",
            at=reader.text,
            help=f"such as -1 or size({index.name})",
        )
    return place


KINDS = {"bool": "conditions", "int": "whole numbers", "real": "real numbers"}


def as_type(value: Node, state: ReadState, of: str, text: str) -> Node:
    """Return a value as a state holds it."""
    if value.type == state.type:
        return value
    if value.type == "bool" or state.type != "real":
        cure = "write float(...)" if value.type == "bool" else "give the output a dtype, ': int64'"
        holds, other = KINDS[state.type], KINDS[value.type]
        message = f"{of}: '{state.name}' holds {holds}, and this is one of {other}"
        raise StateType.error(message, at=text, help=cure)
    return build.to_real(value)


def _not_covered(
    reader: IndexReader,
    tree: ast.expr,
    state: ReadState,
    regions: Sequence[Region],
    places: Sequence[Affine],
) -> PullbackError:
    """Return the error for a read outside that no boundary is for."""
    shown, read, hints = list[str](), reader.shown(tree), dict[str, None]()
    for index, region, place in zip(state.indices, regions, places, strict=True):
        shown.append(index.name if region == INSIDE else _format_region(index.name, region))
        # An index alone leaves at the end only where it runs over another dimension.
        if region == ABOVE and place.index is not None:
            hints["give both dimensions one name if they are equal; else "] = None
        if not place.terms and place.constant < 0:
            hints[f"indices count from 0, so the last one is size({index.name}) - 1; "] = None
    cure = f"{''.join(hints)}write {state.name}[{', '.join(shown)}] = ...; or pad({read}), which"
    said = "no boundary says what it is there"
    if any(place.nodes for place in places):
        said, cure = "no boundary is for places that data says", f"write pad({read}), which"
    message = f"{reader.of}: {read} may be outside of '{state.name}', and {said}"
    return OutOfBounds.error(message, help=f"{cure} is 0 there")


def _format_region(name: str, region: Region) -> str:
    if isinstance(region, Affine):
        return format_size(region)
    return f"{name} < 0" if region == BELOW else f"{name} >= size({name})"


def _require_one(
    reader: IndexReader,
    state: ReadState,
    reached: Sequence[Boundary],
    outside: Sequence[Sequence[Region]],
) -> None:
    """Stop at two boundaries for one place."""
    for regions in outside:
        found = [boundary for boundary in reached if boundary.covers(regions)]
        if len(found) > 1:
            raise WrongBoundary.error(
                f"{reader.of}: two boundaries of '{state.name}' are for the same place",
                first=found[0].statement.text,
                second=found[1].statement.text,
                help="leave one of them out",
            )
