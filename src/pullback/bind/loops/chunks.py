"""Loops of linear recurrences in chunks of steps, for a device with more threads than lanes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.scan_call import ScanCall
from pullback.bind.loops.scans import Scan, find_scan
from pullback.bind.loops.specialise import round_size
from pullback.define.math import chunks
from pullback.define.math.chunks import STEPS, Chunks, Part
from pullback.define.math.index import at
from pullback.define.math.node import read
from pullback.kernels.loops.extents import Extents

# A step of a GPU's takes some 30 ns, whatever the number of lanes; what chunks take beside is some
# launches, each as long as 200 steps, and that everything is read twice. Not measured so far.
LANES, LEAST = 2**10, 64 * STEPS


@dataclass(frozen=True, kw_only=True)
class ChunkedScan:
    """The loops of one group, in chunks.

    Attributes:
        chunks: how it is cut.
        alone, carried, whole: the loops of the three parts.
    """

    chunks: Chunks
    alone: Scan
    carried: Scan | ChunkedScan
    whole: Scan

    @property
    def own(self) -> Own:
        """The kernel of the chunks as they are written."""
        return self.whole.own

    @property
    def names(self) -> tuple[str | None, ...]:
        """Of what it computes."""
        return self.whole.names

    def describe(self, sizes: Mapping[str, int]) -> str:
        """Return how it runs in a call, in words."""
        chunks = f"chunks of {STEPS} steps at once"
        if isinstance(self.carried, ChunkedScan):
            chunks += ", and what comes into them again in chunks"
        return f"{chunks}: {self.whole.describe(self.add_sizes(sizes))}"

    @property
    def owns(self) -> tuple[Own, ...]:
        """All of its kernels."""
        return (*self.alone.owns, *self.carried.owns, *self.whole.owns)

    @property
    def is_available(self) -> bool:
        """Whether they can run here."""
        return all(own.is_available for own in self.owns)

    @property
    def crossing(self) -> dict[str, int]:
        """Sizes with which its steps go on beyond two chunks."""
        named = [term.strip("|") for term, _ in self.chunks.extent.terms if isinstance(term, str)]
        return dict.fromkeys(named, 2 * STEPS + 5)

    def add_sizes(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Return the sizes of a call, and how many chunks there are."""
        many = _count_chunks(self.chunks, sizes)
        return {**sizes, self.chunks.index: many, self.chunks.whole.index: STEPS}

    def run(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Return the states, by name; arguments and sizes are those of `Scan.run`."""
        steps = Extents(sizes).number(self.chunks.extent) or 0
        counted = self.add_sizes(sizes)
        alone = self.alone.run_all(arguments, counted)
        given = dict(arguments)
        for name, (state, step) in self.chunks.ends.items():
            value = alone[state]
            dimension = self.place_of(self.chunks.alone, state)
            given[name] = value.select(dimension, step % value.shape[dimension])
        given |= self.carried.run(given, counted)
        found = self.whole.run(given, counted)
        return {name: self.joined(name, value, steps) for name, value in found.items()}

    def joined(self, name: str, value: Tensor, steps: int) -> Tensor:
        """Return a state without chunks."""
        place = self.place_of(self.chunks.whole, name)
        value = value.movedim(-1, place).flatten(place, place + 1)
        return value.narrow(place, 0, steps)

    @staticmethod
    def place_of(part: Part, name: str) -> int:
        """Return which dimension of a state is that of the steps."""
        [state] = [state for state in part.group.states if state.name == name]
        return state.indices.index(part.index)


def find_chunks(call: ScanCall) -> ChunkedScan | None:
    """Return the loops of a group in chunks; None if it is not linear, or they are not worth it."""
    target = call.backend.targets("double" if call.compute == "float64" else "float")[0]
    made = _are_few(call) and target.keeps_states and chunks.cut(call.formula, call.group)
    if not made:
        return None
    many = round_size(_count_chunks(made, call.sizes))
    sizes = {**call.sizes, made.index: many, made.whole.index: STEPS}
    dtypes = {**call.dtypes, **dict.fromkeys(made.ends, call.compute)}
    dtypes |= {state.name: call.compute for state in made.carried.group.states}

    def of(part: Part, *, keeps: bool) -> ScanCall:
        states = part.group.states if keeps else ()
        later = tuple(read(s.name, map(at, s.indices)) for s in states)
        return replace(
            call,
            formula=part.formula,
            group=part.group,
            dtypes={
                n: d for n, d in dtypes.items() if n not in {s.name for s in part.group.states}
            },
            sizes=sizes,
            outputs={},
            later=later,
            counted=call.counted | {made.index},
        )

    alone, whole = find_scan(of(made.alone, keeps=False)), find_scan(of(made.whole, keeps=True))
    call = of(made.carried, keeps=True)
    carried = find_chunks(call) or find_scan(call)
    parts = alone, carried, whole
    if any(isinstance(part, NoLoops) for part in parts):
        return None
    assert isinstance(alone, Scan)
    assert isinstance(whole, Scan)
    assert not isinstance(carried, NoLoops)
    return ChunkedScan(chunks=made, alone=alone, carried=carried, whole=whole)


def _count_chunks(made: Chunks, sizes: Mapping[str, int]) -> int:
    """Return how many chunks a call has, the last of which may have fewer steps."""
    return -(-(Extents(sizes).number(made.extent) or 0) // STEPS)


def _are_few(call: ScanCall) -> bool:
    """Return whether there are few lanes, and many steps."""
    if call.there or len(call.group.weights) != 1:
        return False
    ((time, _),) = call.group.weights
    extents = Extents(call.sizes)
    first = call.group.states[0]
    sizes = {
        i: extents.number(extent) or 0
        for i, extent in zip(first.indices, first.extents, strict=True)
    }
    return math.prod(n for i, n in sizes.items() if i != time) < LANES and sizes[time] >= LEAST


Loops = Scan | ChunkedScan
