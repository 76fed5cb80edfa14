"""Recurrences: outputs and parts that read themselves elsewhere, and the order of their elements.

In `h[t, d] = a*h[t - 1, d] + x` each element needs an earlier one. The formula says only what is
read; the order follows: some whole-number weights of the indices with which every read goes back.
One weight, as above, makes one index sequential and leaves the others free; two, as in
`R[i, j] = f(R[i - 1, j], R[i, j - 1])`, make a wavefront. Source: L. Lamport, "The parallel
execution of DO loops" (1974).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import show
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.node import READ, REDUCTIONS, Node, in_order
from pullback.define.math.ranges import Ranges
from pullback.diagnostic import PullbackError, Rule

NoOrder = Rule("PB151", "no-order")
UnknownShift = Rule("PB152", "unknown-shift")
WholeHistory = Rule("PB153", "whole-history")

MOST_WEIGHT = 3
MOST_SEQUENTIAL = 3

# The least and the greatest of what is added to an index.
Interval = tuple[float, float]


@dataclass(frozen=True, eq=True)
class State:
    """A value that is read at other places while it is computed.

    Attributes:
        name: of the output or the part.
        indices: its own, as its node has them.
        extents: how far they run.
        node: its element at them; it reads states as it reads tensors.
    """

    name: str
    indices: tuple[str, ...]
    extents: tuple[Affine, ...]
    node: Node


@dataclass(frozen=True, eq=True)
class Group:
    """States that need each other, with the order in which their elements are computed.

    Attributes:
        states: those that are read at the same place come before those that read them.
        weights: of each sequential index. Elements with the same weighted sum of indices are a
            front, which needs only fronts of smaller sums.
    """

    states: tuple[State, ...]
    weights: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StateRead:
    """One read of a state by a state of its group.

    Attributes:
        reader: the state that reads.
        node: the read.
        shifts: what it adds to each index of the state that is read; None where data, or more than
            one index, decides.
    """

    reader: State
    node: Node
    shifts: Mapping[str, Interval | None]

    @property
    def state(self) -> str:
        """Which state is read."""
        return self.node.name


def make_groups(states: Sequence[State], ranges: Ranges, of: str) -> tuple[Group, ...]:
    """Return states as groups, those that others read first.

    Args:
        states: all of a formula.
        ranges: of the indices.
        of: whose they are, for messages.

    Raises:
        PullbackError: PB151, no order of the elements serves all reads; PB152, data decides how far
            back one lies; PB153, a read goes through all of the past.
    """
    by_name = {state.name: state for state in states}
    uses = {s.name: {r.name for r in reads_of([s.node], by_name)} for s in states}
    reached = {name: reach(name, uses) for name in by_name}
    # In an order of their own, so that a formula that is written and read again is the same one.
    left, groups = sorted(by_name), list[Group]()
    while left:
        name = next(n for n in left if reached[n] & {*left} <= {m for m in left if n in reached[m]})
        own = [n for n in left if n == name or (n in reached[name] and name in reached[n])]
        groups.append(_make_group([by_name[n] for n in own], ranges, of))
        left = [n for n in left if n not in own]
    return tuple(groups)


def find_stages(group: Group, ranges: Ranges) -> tuple[Group, ...]:
    """Return a group as the parts of it that can be computed at once, one after the other.

    A window such as `sum[k < 3](r[t - k])` in the step of another state has the `r` of this step,
    which has to be there before.
    """
    weights, stages = dict(group.weights), list[list[State]]()
    for state in group.states:
        names = {own.name for own in stages[-1]} if stages else set[str]()
        reads = (r for r in find_reads(state, group.states, ranges) if r.state in names)
        if not stages or any(_step(r, weights) == 0 and not _is_here(r, weights) for r in reads):
            stages.append([])
        stages[-1].append(state)
    return tuple(replace(group, states=tuple(own)) for own in stages)


def reads_of(nodes: Iterable[Node], names: Iterable[str]) -> Iterator[Node]:
    """Yield the reads of some names in expressions."""
    known = {*names}
    return (n for n in in_order(nodes) if n.op == READ and n.name in known)


def reach(name: str, uses: Mapping[str, set[str]]) -> set[str]:
    """Return everything that a name needs, directly or not."""
    found, left = set[str](), [name]
    while left:
        new = uses[left.pop()] - found
        found |= new
        left += new
    return found


def _make_group(states: Sequence[State], ranges: Ranges, of: str) -> Group:
    reads = [read for state in states for read in find_reads(state, states, ranges)]
    weights = find_weights(states, reads)
    if weights is None:
        raise _refused(states, reads, of)
    now = {(r.reader.name, r.state) for r in reads if _step(r, weights) == 0}
    ordered, left = list[State](), sorted(states, key=lambda state: state.name)
    while left:
        ready = [s for s in left if not any((s.name, other.name) in now for other in left)]
        ordered += ready
        left = [s for s in left if s not in ready]
    return Group(tuple(ordered), tuple(weights.items()))


def find_reads(state: State, states: Sequence[State], ranges: Ranges) -> list[StateRead]:
    """Return what a state reads of the states of its group, each read once."""
    indices = {s.name: s.indices for s in states}
    found: dict[Node, StateRead] = {}
    for node, own in _reads_with_ranges(state.node, Ranges(ranges.sizes)):
        if node.name in indices and node not in found:
            pairs = zip(indices[node.name], node.places, strict=True)
            shifts = {index: _interval(place - at(index), own) for index, place in pairs}
            found[node] = StateRead(state, node, shifts)
    return list(found.values())


def _reads_with_ranges(root: Node, ranges: Ranges) -> Iterator[tuple[Node, Ranges]]:
    """Yield the reads of an expression, each with the ranges of the indices around it."""
    left, seen = [(root, ranges)], set[tuple[Node, tuple[Affine, ...]]]()
    while left:
        node, around = left.pop()
        key = (node, tuple(around.size(i) for i in sorted(node.free) if i.startswith("#")))
        if key in seen:
            continue
        seen.add(key)
        if node.op == READ:
            yield node, around
        inner = around
        if node.op in REDUCTIONS:
            inner = Ranges({**around.sizes, node.bound: node.size})
        left += [(arg, inner) for arg in node.args]


def _interval(shift: Affine, ranges: Ranges) -> Interval | None:
    """Return what a shift may be; None if it may be anything."""
    bounds = ranges.bounds(shift)
    if bounds is None or (bounds[0].terms and bounds[1].terms):
        return None
    low, high = (None if end.terms else end.constant for end in bounds)
    return -math.inf if low is None else low, math.inf if high is None else high


def find_weights(states: Sequence[State], reads: Sequence[StateRead]) -> dict[str, int] | None:
    """Return the least weights with which every read goes back; None if there are none."""
    common = [i for i in states[0].indices if all(i in s.indices for s in states) and i != BATCH]
    sound = [i for i in common if all(read.shifts.get(i, (0, 0)) is not None for read in reads)]
    choices = (
        dict(zip(sound, weights, strict=True))
        for weights in itertools.product(range(-MOST_WEIGHT, MOST_WEIGHT + 1), repeat=len(sound))
        if 0 < sum(map(bool, weights)) <= MOST_SEQUENTIAL
    )

    def size(weights: Mapping[str, int]) -> tuple[int, int, list[int]]:
        values = list(weights.values())
        return sum(map(bool, values)), sum(map(abs, values)), [-w for w in values]

    for weights in sorted(choices, key=size):
        if all(_step(read, weights) <= 0 for read in reads) and not _is_cyclic(
            {(r.reader.name, r.state) for r in reads if _step(r, weights) == 0}
        ):
            return {index: weight for index, weight in weights.items() if weight}
    return None


def _is_here(read: StateRead, weights: Mapping[str, int]) -> bool:
    """Return whether a read is of the same element, but for indices that are not sequential."""
    return all(read.shifts.get(index) == (0, 0) for index, weight in weights.items() if weight)


def _step(read: StateRead, weights: Mapping[str, int]) -> float:
    """Return by how many fronts a read lies ahead, at most."""
    total = 0.0
    for index, weight in weights.items():
        low, high = read.shifts.get(index) or (0, 0)
        if weight:  # 0 times infinity is no number
            total += weight * (high if weight > 0 else low)
    return total


def _is_cyclic(edges: set[tuple[str, str]]) -> bool:
    left = edges
    while left:
        free = {edge for edge in left if not any(edge[1] == other[0] for other in left)}
        if not free:
            return True
        left = left - free
    return False


def _refused(states: Sequence[State], reads: Sequence[StateRead], of: str) -> PullbackError:
    """Return the error for reads that no order of the elements serves."""
    names = " and ".join(f"'{state.name}'" for state in states)

    def shown(read: StateRead) -> str:
        return f"{_element(read.reader)} reads {show.format_inside(read.node)}"

    for read in filter(_is_anywhere, reads):
        own = {place.index for place in read.node.places}
        if any(index is not None and index.startswith("#") for index in own):
            return WholeHistory.error(
                f"{of}: every element of {names} needs a whole range of them",
                at=shown(read),
                help=f"a window, sum[k < 8](pad({read.state}[t - 1 - k])), or an earlier element",
            )
        return UnknownShift.error(
            f"{of}: how far back a read of '{read.state}' lies is not a number",
            at=shown(read),
            help="the shift of a sequential index is a number, t - 1; other indices may be data",
        )
    for read in filter(_is_data, reads):
        return UnknownShift.error(
            f"{of}: how far back a read of '{read.state}' lies is data",
            at=shown(read),
            help="a window of which data weighs one element, "
            f"sum[k < 8](where(lag == k, 1, 0)*pad({read.state}[t - 1 - k]))",
        )
    first = reads[0] if reads else None
    moved = {index for read in reads for index, shift in read.shifts.items() if shift != (0, 0)}
    fronts = (
        f"; fronts are looked for along {MOST_SEQUENTIAL} indices, with weights up to {MOST_WEIGHT}"
        if len(moved) > 1
        else ""
    )
    return NoOrder.error(
        f"{of}: no order of the elements of {names} has all that each one reads before it",
        at="; ".join(dict.fromkeys(map(shown, reads))) if first else None,
        help="let every read lie on one side, t - 1 or t + 1; what needs both is an equation "
        f"system, for torch.linalg.solve{fronts}",
    )


def _is_anywhere(read: StateRead) -> bool:
    """Return whether numbers bound the shift of no index of a read."""
    shifts = [shift for index, shift in read.shifts.items() if index != BATCH]
    return bool(shifts) and all(
        shift is None or not all(map(math.isfinite, shift)) for shift in shifts
    )


def _is_data(read: StateRead) -> bool:
    """Return whether data says how far a read lies along an index."""
    return None in read.shifts.values() and any(place.nodes for place in read.node.places)


def _element(state: State) -> str:
    return f"{state.name}[{', '.join(state.indices)}]"
