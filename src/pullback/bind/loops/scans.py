"""Loops of recurrences: which states and outputs one kernel computes, and its calls."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pullback.bind.loops.checkpoints import (
    FEW_THREADS,
    LARGE_FOR_FEW,
    Kept,
    add_checkpoints,
    find_ends,
    find_kept,
)
from pullback.bind.loops.last_steps import End, Last
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.scan_call import (
    ScanCall,
    find_rings,
    find_setting,
    find_sums,
    has_rows_in_lanes,
    is_at_hand,
    is_part,
    picks_by_states,
    set_sums_apart,
    why_none,
)
from pullback.bind.loops.specialise import find_small, round_size
from pullback.define.math import fronts, scan_formula
from pullback.define.math.checkpoints import reader_of
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.fronts import Fronts
from pullback.define.math.index import at
from pullback.define.math.node import Node, read
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import State, reads_of
from pullback.define.math.totals import Total, add_totals, find_total
from pullback.kernels.loops import checkpoints, scan, scan_nest
from pullback.kernels.loops.cost import count_tasks
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.lanes import choose_lane
from pullback.kernels.loops.nest import PART, KernelSetting, KernelText, Nest
from pullback.kernels.loops.schedule import Candidate, Schedule, ScheduleStep
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# No more lanes than this are cut into blocks if something needs all of them.
FEW_LANES = 32


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The loops of one group.

    Attributes:
        own: the kernel.
        names: of what it computes: the states, then outputs; None for a state of which only the
            last steps are kept.
        turned: of each of these, the order of the dimensions that it is for.
        totals: of an output that is added up over the steps, what of it there is at last.
        fronts: if its steps are fronts.
        twice: what it keeps of states that it computes twice.
        ends: of which states it returns the last step alone.
    """

    own: Own
    names: tuple[str | None, ...]
    turned: tuple[tuple[int, ...], ...]
    totals: Mapping[str, Last]
    fronts: Fronts | None = None
    twice: Kept | None = None
    ends: Mapping[str, End] = field(default_factory=dict[str, End])

    @property
    def owns(self) -> tuple[Own, ...]:
        """All of its kernels."""
        return (self.own,)

    @property
    def is_available(self) -> bool:
        """Whether they can run here."""
        return self.own.is_available

    @property
    def crossing(self) -> dict[str, int]:
        """Sizes with which there is more than a part of what is added up from them."""
        nest = self.own.steps[0].kernel.nest
        if not nest.checkpoints or not nest.checkpoints.parts:
            return {}
        return {str(nest.lane): nest.block + 1}

    def describe(self, sizes: Mapping[str, int]) -> str:
        """Return how it runs in a call, in words."""
        nest = self.own.steps[0].kernel.nest
        assert nest.sequential
        time, direction = nest.sequential
        order, other = ("in order", "in reverse order")[::direction]
        if nest.checkpoints:
            order = f"{other}, then {order}"
        fronts = nest.fronts
        what = f"fronts of {fronts.gone} and {fronts.along}" if fronts else f"'{time}'"
        parts = [f"{what} {order}"]
        shared = [*nest.outer, *([f"blocks of {nest.lane}"] if nest.block else [])]
        if shared:
            parts.append(f"threads share {', '.join(shared)}")
        if nest.lane:
            parts.append(f"lanes along {nest.lane}")
        if nest.meets and self.own.target.write_meeting():
            parts.append("which meet at each step")
        running = {name for last in self.totals.values() for name in last.states}
        running |= {*self.ends} if self.twice else set()
        rings = ((name, many) for name, many in nest.rings.items() if name not in running)
        counts = ((n, "last step is" if k == 1 else f"last {k} steps are") for n, k in rings)
        parts += [f"of '{name}' the {count} kept" for name, count in counts]
        parts += [f"{name} is added up" for name in self.totals]
        parts += [self.twice.describe(sizes)] if self.twice else []
        return ", ".join(parts)

    def add_sizes(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Return the sizes of a call, and how many fronts there are, or steps that are kept."""
        if self.twice:
            nest = self.own.steps[0].kernel.nest
            size = Ranges(self.own.indexed.sizes).size(str(nest.lane))
            blocks = -(-(Extents(sizes).number(size) or 0) // nest.block) if nest.block else 1
            return {**sizes, **self.twice.sizes(sizes), PART: blocks}
        if self.fronts is None:
            return sizes
        return {**sizes, self.fronts.index: Extents(sizes).number(self.fronts.extent) or 0}

    def run(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Return what it computes, by name, in the dtype that it is computed in.

        Args:
            arguments: those of the call, and the states of earlier groups; the batch of each tensor
                is one dimension.
            sizes: of every index.
        """
        values = self.run_all(arguments, sizes).values()
        found = {n: value for n, value in zip(self.names, values, strict=True) if n}
        sizes = self.add_sizes(sizes)
        found |= {n: end.spread(found[n], sizes) for n, end in self.ends.items()}
        return found | {n: last.finish(found[n], sizes) for n, last in self.totals.items()}

    def run_all(
        self, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return all that the kernel computes, of some states the last steps alone."""
        nest = self.own.steps[0].kernel.nest
        outputs, sizes = nest.outputs, self.add_sizes(sizes)
        needed = {p.name: arguments.get(p.name) for p in self.own.indexed.line.parameters}
        wanted = [getattr(torch, output.dtype) for output in outputs]
        values = self.own.run(needed, sizes, wanted)
        # What comes after these are the steps that were kept.
        found = zip(outputs, values, self.turned, strict=False)
        parts = nest.checkpoints.parts if nest.checkpoints else {}
        added = {name: [*range(len(missing))] for name, missing in parts.items()}
        return {
            o.name: (value.sum(added[o.name]) if o.name in parts else value).permute(order)
            for o, value, order in found
        }


def find_scan(call: ScanCall) -> Scan | NoLoops:
    """Return the loops of a group, or why it has none."""
    if reason := why_none(call):
        return NoLoops(reason=reason)
    found: list[Scan] = []
    reasons: list[str] = []
    for target in call.backend.targets("double" if call.compute == "float64" else "float"):
        try:
            found.append(_write(call, target))
        except RefusedLoops as refused:
            reasons.append(str(refused))
    if not found:
        return NoLoops(reason=reasons[0])
    # Of equally good ones the threads that meet soonest.
    return min(found, key=lambda scan: (_count_turns(scan, call), scan.own.target.lanes))


def _count_turns(scan: Scan, call: ScanCall) -> int:
    """Return how long a scan takes beside the same for other lanes, which has the same steps.

    A lane beyond the end of its index computes nothing.
    """
    nest, target = scan.own.steps[0].kernel.nest, scan.own.target
    tasks = count_tasks(scan.own.steps[0].kernel, call.sizes, target)
    slow, turns = target.slow_down(tasks, nest.vectors, ()), 1
    if nest.lane:
        extents, ranges = Extents(call.sizes), Ranges(scan.own.indexed.sizes)
        lengths = [ranges.size(nest.lane), *(nest.fronts.extents[:1] if nest.fronts else ())]
        length = min(extents.number(each) or 1 for each in lengths)
        turns = -(-min(length, nest.block or length) // target.lanes)
    return round(tasks * turns * target.lanes * slow)


def _write(call: ScanCall, target: Target) -> Scan:
    """Return the loops, with as many of the outputs as they have at hand.

    Raises:
        RefusedLoops: there are none.
    """
    # A kernel is the same for any number of steps.
    counted, skewed = {*dict(call.group.weights), *call.counted}, None
    small = find_small(call.formula, call.sizes)
    known = {name: number for name, number in small.items() if name not in counted}
    if len(call.group.weights) > 1:
        call, skewed = _with_fronts(call)
    time, weight = next(iter(call.group.weights))
    sequential = (time, 1 if weight > 0 else -1)
    alone = scan_formula.write_scan(call.formula, call.groups, {}, "")
    if not target.notes_outside and picks_by_states(alone.formula):
        raise RefusedLoops("a state says what is read, and may say what is outside")
    setting, own = find_setting(call, alone.formula, target, {})
    lines = call.formula.line.outputs
    lane = choose_lane(own, time, setting, {line.name for line in lines})
    sums = find_sums(call, time)
    summed = frozenset[str]().union(*sums)
    base = _join_few(scan_nest.nest_of(own, sequential, lane, setting, skewed, summed), setting)
    if call.there and any(
        not is_at_hand(base, lines[k].labels, n, call) for k, n in call.outputs.items()
    ):
        base = _join_few(scan_nest.join_tasks(base, sums, setting), setting)
        lane = base.lane
    call, apart = set_sums_apart(call, base)
    parts = {
        lines[k].name: (*(i for i in base.outer if i not in lines[k].labels), str(lane))
        for k, node in call.outputs.items()
        if call.there and is_part(base, lines[k].labels, node, call)
    }
    others = {
        lines[k].name: (lines[k].labels, node)
        for k, node in call.outputs.items()
        if (lines[k].name in parts or is_at_hand(base, lines[k].labels, node, call))
        and not has_rows_in_lanes(node, lane, call, target)
    }
    totals = [] if skewed else [*_find_totals(base, call, others)]
    added = {total.output for total in totals}
    left = [n for k, n in call.outputs.items() if lines[k].name not in {*others, *added}]
    formula, group = add_totals(call.formula, call.group, totals)
    call = replace(call, formula=formula, group=group)
    states = {state.name: state for state in call.group.states}
    read_there = {read.name for read in reads_of([*left, *call.later], states)}
    # In their order, on which the text of the kernel depends.
    kept = [name for name in states if name in read_there]
    copies = _copy_states([states[name] for name in kept], skewed, call) if skewed else {}
    made = scan_formula.write_scan(call.formula, call.groups, others | copies, str(lane), apart)
    setting, own = find_setting(call, made.formula, target, known)
    together = [*call.group.states, *(reader_of(node) for _, node in others.values())]
    ended = {} if skewed else find_ends(call, left)
    passing = [name for name in states if skewed or name not in kept or name in ended]
    rings = find_rings(call, together, time, passing)
    nest = replace(scan_nest.nest_of(own, sequential, lane, setting, skewed, summed), rings=rings)
    twice = None
    if call.there:
        nest = _with_blocks(nest, base) if target.keeps_states else nest
        twice = find_kept(call, nest, [node for _, node in others.values()], left, target)
        kernel, setting = _write_twice(call, nest, setting, twice, parts)
    else:
        kernel = scan.write_scan(nest, setting)
    whole = dict.fromkeys([*(name for name in states if name not in rings), *ended])
    returned = dict.fromkeys(others) | (dict(zip(copies, kept, strict=True)) if skewed else whole)
    returned |= {total.states[0].name: total.output for total in totals}
    names = tuple(returned.get(o.name) or o.name if o.name in returned else None for o in own)
    return Scan(
        own=_loops_of(call, made.formula, kernel, setting),
        names=names,
        turned=made.turned,
        totals={t.output: _last_of(t) for t in totals},
        fronts=skewed,
        twice=twice,
        ends=ended,
    )


def _join_few(nest: Nest, setting: KernelSetting) -> Nest:
    """Return the loops without blocks of few lanes, whose sums are then computed at once."""
    is_few = nest.lane and setting.measure(nest.lane) <= FEW_LANES
    return replace(nest, block=0) if is_few else nest


def _with_blocks(nest: Nest, base: Nest) -> Nest:
    """Return the loops of a GPU with the tasks of others, each of which has a part of sums."""
    if not base.block:
        return nest
    inner = tuple(index for index in nest.inner if index not in base.outer)
    return replace(
        nest, outer=base.outer, inner=inner, block=base.block, meets=False, carries=not inner
    )


def _write_twice(
    call: ScanCall,
    nest: Nest,
    setting: KernelSetting,
    kept: Kept,
    parts: Mapping[str, tuple[str, ...]],
) -> tuple[KernelText, KernelSetting]:
    """Return the kernel of both walks, and its setting.

    Raises:
        RefusedLoops: there is none, or it would have few threads.
    """
    target = setting.target
    if parts and nest.block < FEW_LANES:
        raise RefusedLoops("there would be many parts of its sums")
    nest, setting = add_checkpoints(nest, setting, call, kept, parts)
    kernel = checkpoints.write_scan(nest, setting)
    tasks = count_tasks(kernel, call.sizes, target)
    are_few = tasks * target.lanes < FEW_THREADS if target.keeps_states else tasks == 1
    if are_few and kept.whole(call.sizes) < LARGE_FOR_FEW:
        raise RefusedLoops("few threads would have all of its steps")
    return kernel, setting


def _loops_of(call: ScanCall, formula: Formula, kernel: KernelText, setting: KernelSetting) -> Own:
    """Return a kernel as loops that can be called."""
    schedule = Schedule(
        steps=(ScheduleStep(kernel=kernel),),
        family="recurrence",
        candidate=Candidate(nests=((kernel.nest, ()),), setting=setting),
        segments=setting.segments,
    )
    return Own(
        indexed=formula,
        outputs=tuple(range(len(formula.line.outputs))),
        dtype=getattr(torch, call.compute),
        backend=call.backend,
        target=setting.target,
        schedules=(schedule,),
        specialised=dict(setting.known),
        dtypes=dict(setting.dtypes),
    )


def _last_of(total: Total) -> Last:
    return Last(tuple(state.name for state in total.states), total.last, total.summed)


def _find_totals(base: Nest, call: ScanCall, others: Container[str]) -> Iterator[Total]:
    """Yield the outputs that are added up over the steps, of what these have at hand."""
    names, lines = FreeNames(call.formula.line), call.formula.line.outputs
    names.taken.update(call.formula.states)
    every = replace(call.group, states=(*call.states.values(),))
    for k, node in call.outputs.items():
        if lines[k].name in others:
            continue
        own = (lines[k].name, lines[k].labels)
        total = find_total(own, node, every, names, call.formula.ranges)
        if total and is_at_hand(base, total.states[0].indices, total.element, call):
            yield total


def _with_fronts(call: ScanCall) -> tuple[ScanCall, Fronts]:
    """Return the call in which fronts are the steps, and the fronts.

    Raises:
        RefusedLoops: they are not numbered by two indices.
    """
    if (found := fronts.skew(call.formula, call.group)) is None:
        raise RefusedLoops("its fronts are not those of two indices, with names of their own")
    formula, group, skewed = found
    number = Extents(call.sizes).number(skewed.extent) or 0
    moved = replace(
        call,
        formula=formula,
        group=group,
        sizes={**call.sizes, skewed.index: round_size(number)},
        outputs={k: skewed.move(node) for k, node in call.outputs.items()},
    )
    return moved, skewed


def _copy_states(
    states: Sequence[State], skewed: Fronts, call: ScanCall
) -> dict[str, tuple[tuple[str, ...], Node]]:
    """Return what stores states by their own indices, while fronts of them are computed."""
    names = FreeNames(call.formula.line)
    names.taken.update(call.formula.states)
    return {
        names.fresh(f"{state.name}_"): (
            skewed.states[state.name],
            read(state.name, map(at, state.indices), state.node.type),
        )
        for state in states
    }
