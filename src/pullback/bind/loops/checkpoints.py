"""Loops that keep a few steps of the states which they compute twice: where, and how many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.bind.loops.last_steps import End
from pullback.bind.loops.scan_call import ScanCall
from pullback.define.math.checkpoints import (
    EVERY,
    MOST_AROUND,
    Reach,
    count_kept,
    count_steps,
    find_reach,
    names_of,
    reader_of,
)
from pullback.define.math.draft import FreeNames
from pullback.define.math.index import Affine
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.kernels.loops import checkpoints
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KEPT, PART, RING, STEPS, Checkpoints, KernelSetting, Nest
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# Bytes of states from which on few are kept, although few threads have all steps: two loops, which
# keep all, may have more.
LARGE_FOR_FEW = 2**26
# With fewer threads than this a GPU waits for steps and not for memory, and half of them are added.
FEW_THREADS = 2**14


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of some states in a call.

    Attributes:
        group: the states.
        reach: how far from a step they are read.
        time: the index of the steps.
        width: the bytes of an element.
        ends: the states of which the last step is read afterwards.
        is_own: whether each lane has the steps of a block for itself, and none are in memory.
    """

    group: Group
    reach: Reach
    time: str
    width: int
    ends: frozenset[str]
    is_own: bool

    @property
    def around(self) -> int:
        """How many steps beside those of a block are needed with it."""
        return self.reach.before + self.reach.behind

    def sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes that a kernel takes besides those of a call."""
        steps = sizes[self.time]
        block, kept = count_steps(steps, self.reach), count_kept(steps, self.reach)
        return {STEPS: block, KEPT: kept, RING: 1 if self.is_own else _ring(block + self.around)}

    def whole(self, sizes: Mapping[str, int]) -> int:
        """Return how many bytes all steps would be."""
        return sum(count_elements(state, sizes) for state in self.group.states) * self.width

    def describe(self, sizes: Mapping[str, int]) -> str:
        """Return what is kept in a call, in words."""
        own = self.sizes(sizes)
        whole = self.whole(sizes)
        few = whole // sizes[self.time] * own[KEPT]
        names = " and ".join(f"'{state.name}'" for state in self.group.states)
        every = f"every {_ordinal(own[STEPS])} state"
        if self.reach.before > 1:
            every = f"{self.reach.before} of {own[STEPS]} states"
        return f"of {names} {every}, {few / 1e6:.3g} MB instead of {whole / 1e6:.3g}"


def count_elements(state: State, sizes: Mapping[str, int]) -> int:
    """Return how many elements a state has in all steps of a call."""
    extents = Extents(sizes)
    return math.prod(extents.number(extent) or 0 for extent in state.extents)


def _ring(steps: int) -> int:
    return 1 << (steps - 1).bit_length()


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 == 1 else ends.get(number % 10, 'th')}"


def find_ends(call: ScanCall, left: Sequence[Node]) -> dict[str, End]:
    """Return the states that outputs which are left read, but only in the last step."""
    ((time, direction),) = call.group.weights
    found: dict[str, End] = {}
    for state in call.states.values():
        place = state.indices.index(time)
        last = state.extents[place] - 1 if direction > 0 else Affine(0)
        reads = [*reads_of([*left, *call.later], [state.name])]
        if reads and all(read.places[place] == last for read in reads):
            found[state.name] = End(time, place, last)
    return found


def find_kept(
    call: ScanCall, nest: Nest, others: Iterable[Node], left: Sequence[Node], target: Target
) -> Kept:
    """Return what has to be kept of the states of the first walk.

    Args:
        call: with such states.
        nest: the loops.
        others: what else is computed in the same loops.
        left: the outputs that are not.
        target: what runs the loops.

    Raises:
        RefusedLoops: they are read too far from their steps, or afterwards.
    """
    assert call.there
    ends = frozenset(find_ends(call, left))
    names = {*names_of(call.there)} - ends
    if any(True for _ in reads_of([*left, *call.later], names)):
        raise RefusedLoops("an output needs all steps of a state")
    readers = [*call.states.values(), *map(reader_of, others)]
    reach = find_reach(call.there, readers, call.formula.ranges)
    if reach is None or reach.before + reach.behind > MOST_AROUND:
        raise RefusedLoops("a state is read far from the step that reads it")
    ((time, _),) = call.group.weights
    width = int(call.compute[-2:]) // 8
    return Kept(
        group=call.there,
        reach=reach,
        time=time,
        width=width,
        ends=ends,
        is_own=target.keeps_states and nest.carries,
    )


def add_checkpoints(
    plain: Nest,
    setting: KernelSetting,
    call: ScanCall,
    kept: Kept,
    parts: Mapping[str, tuple[str, ...]],
) -> tuple[Nest, KernelSetting]:
    """Return the loops that also keep some states, and their setting.

    Args:
        plain: the loops.
        setting: theirs.
        call: that they are for.
        kept: what they keep.
        parts: the outputs of which each task has a part, as `Checkpoints` says.
    """
    names = FreeNames(call.formula.line)
    names.taken.update(call.formula.states)
    first = plain.outputs[: len(kept.group.states)]
    own = {state.name: names.fresh(f"{state.name}_kept") for state in first}
    more = [checkpoints.keep(state, own[state.name], kept.time) for state in first]
    made = replace(
        plain,
        outputs=(*plain.outputs, *more),
        # Of what is in memory, a block of steps is computed again from there.
        carries=kept.is_own,
        checkpoints=Checkpoints(
            first=len(first),
            before=kept.reach.before,
            kept=own,
            scratch=_ring(EVERY + kept.around) if kept.is_own else 0,
            ends=kept.ends,
            parts=parts,
        ),
    )
    ranges = Ranges(setting.ranges)
    dims = {o.name: tuple(map(ranges.size, o.indices)) for o in more}
    for name, (*outer, _) in parts.items():
        dims[name] = (*map(ranges.size, (PART, *outer)), *setting.dims[name])
    wider = replace(
        setting,
        dims={**setting.dims, **dims},
        dtypes={**setting.dtypes, **{o.name: o.dtype for o in more}},
    )
    return made, wider
