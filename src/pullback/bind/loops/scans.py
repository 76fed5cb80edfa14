"""Loops of recurrences: which states and outputs one kernel computes, and its calls."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pullback.bind.loops.backends import Backend
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.specialise import find_small, make_setting, round_size
from pullback.define.math import bounds, fronts, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.fronts import Fronts
from pullback.define.math.index import Affine, at
from pullback.define.math.node import REDUCTIONS, Node, in_order, may_divide_by_zero, read
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, find_reads, reads_of
from pullback.define.math.totals import Total, add_totals, find_total
from pullback.kernels.loops import scan
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.pointwise import STORED
from pullback.kernels.loops.schedule import Candidate, Schedule, ScheduleStep, count_tasks
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# A longer sum of sums would compute the inner ones again and again.
MOST_NESTED = 64
# Further back than this, all steps are kept.
MOST_STEPS = 64
# No more lanes than this are cut into blocks if something needs all of them.
FEW_LANES = 32


@dataclass(frozen=True)
class Last:
    """The last step of a running total, of which a ring of steps is kept.

    Attributes:
        states: the total, and what was lost of it.
        step: which one that is.
        ring: how many are kept.
        summed: how many dimensions before that of the steps are added up after it.
    """

    states: tuple[str, ...]
    step: Affine
    ring: int
    summed: int

    def finish(self, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
        """Return the total in a ring of them."""
        place = (Extents(sizes).number(self.step) or 0) % self.ring
        total = value.select(self.summed, place)
        return total.sum([*range(self.summed)]) if self.summed else total


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
    """

    own: Own
    names: tuple[str | None, ...]
    turned: tuple[tuple[int, ...], ...]
    totals: Mapping[str, Last]
    fronts: Fronts | None = None

    @property
    def owns(self) -> tuple[Own, ...]:
        """All of its kernels."""
        return (self.own,)

    @property
    def is_available(self) -> bool:
        """Whether they can run here."""
        return self.own.is_available

    @property
    def described(self) -> str:
        """How it runs, in words."""
        nest = self.own.steps[0].kernel.nest
        assert nest.sequential
        time, direction = nest.sequential
        order = "in order" if direction > 0 else "in reverse order"
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
        rings = ((name, many) for name, many in nest.rings.items() if name not in running)
        parts += [f"of '{name}' the last {many} steps are kept" for name, many in rings]
        parts += [f"{name} is added up" for name in self.totals]
        return ", ".join(parts)

    def count(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Return the sizes of a call, and how many fronts there are."""
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
        sizes = self.count(sizes)
        return found | {n: last.finish(found[n], sizes) for n, last in self.totals.items()}

    def run_all(
        self, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return all that the kernel computes, of some states the last steps alone."""
        outputs = self.own.steps[0].kernel.nest.outputs
        needed = {p.name: arguments.get(p.name) for p in self.own.indexed.line.parameters}
        wanted = [getattr(torch, output.dtype) for output in outputs]
        values = self.own.run(needed, self.count(sizes), wanted)
        found = zip(outputs, values, self.turned, strict=True)
        return {output.name: value.permute(order) for output, value, order in found}


@dataclass(frozen=True, kw_only=True)
class ScanCall:
    """What decides which loops a group has.

    Attributes:
        formula: whose group.
        group: which one.
        dtypes: of the tensors, by name.
        compute: the dtype of real states.
        sizes: of every index, rounded.
        outputs: those of the formula that may be computed with it, by their place.
        later: what else reads its states.
        backend: what runs them.
        counted: indices for any number of which a kernel is the same, beside those of the steps.
    """

    formula: Formula
    group: Group
    dtypes: Mapping[str, str]
    compute: str
    sizes: Mapping[str, int]
    outputs: Mapping[int, Node]
    later: tuple[Node, ...]
    backend: Backend
    counted: frozenset[str] = frozenset()


def find_scan(call: ScanCall) -> Scan | NoLoops:
    """Return the loops of a group, or why it has none."""
    if reason := _why_none(call):
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


def _why_none(call: ScanCall) -> str | None:
    """Return why a group has no loops, as far as that shows before they are written."""
    nodes = [state.node for state in call.group.states]
    if any(map(may_divide_by_zero, in_order([*nodes, *call.outputs.values()]))):
        return "whole numbers are divided, where PyTorch looks for zero"
    extents = Extents(call.sizes)
    nested = (n.size for n in in_order(nodes) if n.op in REDUCTIONS and n.height > 1)
    if any((extents.number(size) or 0) > MOST_NESTED for size in nested):
        return "it sums what is a sum itself, which PyTorch does one by one"
    names = {state.name for state in call.group.states}
    gathers = (gather for node in nodes for gather in bounds.find_gathers(node))
    if any(g.read.name in names or any(map(bool, reads_of(g.conditions, names))) for g in gathers):
        return "data says which element of a state is read"
    strange = {*call.dtypes.values()} - STORED.keys()
    return f"no own loops read or write {min(strange)}" if strange else None


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
    alone = steps.write_scan(call.formula, call.group, {}, "")
    setting, own = _setting(call, alone.formula, target, {})
    lines = call.formula.line.outputs
    lane = scan.choose_lane(own, time, setting, {line.name for line in lines})
    summed = _find_summed(call, time)
    base = scan.nest_of(own, sequential, lane, setting, skewed, summed)
    if lane and (Extents(call.sizes).number(Ranges(setting.ranges).size(lane)) or 0) <= FEW_LANES:
        # What sums over all of them is computed at once.
        base = replace(base, block=0)
    others = {
        lines[k].name: (lines[k].labels, node)
        for k, node in call.outputs.items()
        if _is_at_hand(base, lines[k].labels, node, call)
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
    made = steps.write_scan(call.formula, call.group, others | copies, str(lane))
    setting, own = _setting(call, made.formula, target, known)
    together = [*call.group.states, *(State("", (), (), node) for _, node in others.values())]
    passing = [name for name in states if skewed or name not in kept]
    rings = _find_rings(call, together, time, passing)
    nest = replace(scan.nest_of(own, sequential, lane, setting, skewed, summed), rings=rings)
    kernel = scan.write_scan(nest, setting)
    schedule = Schedule(
        steps=(ScheduleStep(kernel=kernel),),
        family="recurrence",
        candidate=Candidate(nests=((nest, ()),), setting=setting),
    )
    loops = Own(
        indexed=made.formula,
        outputs=tuple(range(len(own))),
        dtype=getattr(torch, call.compute),
        backend=call.backend,
        target=target,
        schedules=(schedule,),
        specialised=known,
        dtypes=dict(setting.dtypes),
    )
    returned = {
        **dict.fromkeys(others),
        **dict.fromkeys(name for name in states if name not in rings),
    }
    if skewed:
        returned = dict.fromkeys(others) | dict(zip(copies, kept, strict=True))
    returned |= {total.states[0].name: total.output for total in totals}
    names = tuple(returned.get(o.name) or o.name if o.name in returned else None for o in own)
    lasts = {t.output: _last_of(t, rings) for t in totals}
    return Scan(own=loops, names=names, turned=made.turned, totals=lasts, fronts=skewed)


def _last_of(total: Total, rings: Mapping[str, int]) -> Last:
    names = tuple(state.name for state in total.states)
    return Last(names, total.last, rings[names[0]], total.summed)


def _find_totals(base: Nest, call: ScanCall, others: Container[str]) -> Iterator[Total]:
    """Yield the outputs that are added up over the steps, of what these have at hand."""
    names, lines = FreeNames(call.formula.line), call.formula.line.outputs
    names.taken.update(call.formula.states)
    for k, node in call.outputs.items():
        if lines[k].name in others:
            continue
        own = (lines[k].name, lines[k].labels)
        total = find_total(own, node, call.group, names, call.formula.ranges)
        if total and _is_at_hand(base, total.states[0].indices, total.element, call):
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


def _find_summed(call: ScanCall, time: str) -> set[str]:
    """Return the indices of states that outputs of the same step are summed over."""
    every = {index for state in call.group.states for index in state.indices}
    lines, names = call.formula.line.outputs, {state.name for state in call.group.states}
    at_steps = (
        {*lines[k].labels}
        for k, node in call.outputs.items()
        if time in lines[k].labels and any(True for _ in reads_of([node], names))
    )
    return {index for labels in at_steps for index in every - labels}


def _find_rings(
    call: ScanCall, together: Iterable[State], time: str, names: Iterable[str]
) -> dict[str, int]:
    """Return how many of the last steps are needed of some states, where these are few.

    Args:
        call: whose states.
        together: what is computed in the same loop.
        time: the index of the steps.
        names: of these states.
    """
    back = dict.fromkeys(names, 0.0)
    for each_of in together:
        for each in find_reads(each_of, call.group.states, call.formula.ranges):
            if each.state in back:
                ends = each.shifts[time] or (math.inf, math.inf)
                back[each.state] = max(back[each.state], *map(abs, ends))
    return {n: 1 << int(steps).bit_length() for n, steps in back.items() if steps < MOST_STEPS}


def _setting(
    call: ScanCall, formula: Formula, target: Target, known: dict[str, int]
) -> tuple[KernelSetting, list[Output]]:
    """Return what the kernel is written with, and what it computes."""
    dtypes = {name: dtype for name, dtype in call.dtypes.items()}
    outputs = [
        Output(name=o.name, indices=o.labels, node=node, dtype=o.dtype or call.compute)
        for o, node in zip(formula.line.outputs, formula.nodes, strict=True)
    ]
    setting = make_setting(formula, outputs, dtypes, target, call.sizes, known)
    return setting, outputs


def _is_at_hand(base: Nest, labels: tuple[str, ...], node: Node, call: ScanCall) -> bool:
    """Return whether an output is computed by the same tasks, at the same steps, as the states."""
    assert base.sequential
    states = {state.name: state.indices for state in call.group.states}
    labels = base.fronts.replace_in(labels) if base.fronts else labels
    time = base.sequential[0]
    if not {*base.outer, time} <= {*labels} or not any(True for _ in reads_of([node], states)):
        return False
    every = {i for own in states.values() for i in own}
    if not {*labels} <= every or (base.block and base.lane not in labels):
        return False
    if not scan.is_at_step(node, states, base.sequential) or bounds.find_gathers(node):
        return False
    free = {*base.outer, *([str(base.lane)] if base.block else [])}

    def is_there(each: Node) -> bool:
        own = states[each.name]
        places = dict(zip(own, each.places, strict=True))
        # In the loops that compute a state only what is at the same place is there already.
        now = {*own} if {*own} == {*labels} and places[time] == at(time) else set[str]()
        return all(places[index] == at(index) for index in free | now)

    return all(map(is_there, reads_of([node], states)))
