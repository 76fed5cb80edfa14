"""Loops of recurrences: which states and outputs one kernel computes, and its calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pullback.bind.loops.backends import Backend
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.specialise import SMALL, make_setting
from pullback.define.math import bounds, steps
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH
from pullback.define.math.node import REDUCTIONS, Node, in_order, may_divide_by_zero
from pullback.define.math.recurrence import Group, find_reads, reads_of
from pullback.kernels.loops import scan
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.pointwise import STORED
from pullback.kernels.loops.schedule import Candidate, Schedule, ScheduleStep
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# A longer sum of sums would compute the inner ones again and again.
MOST_NESTED = 64
# Further back than this, all steps are kept.
MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The loops of one group.

    Attributes:
        own: the kernel.
        names: of what it computes: the states, then outputs; None for a state of which only the
            last steps are kept.
        turned: of each of these, the order of the dimensions that it is for.
    """

    own: Own
    names: tuple[str | None, ...]
    turned: tuple[tuple[int, ...], ...]

    @property
    def described(self) -> str:
        """How it runs, in words."""
        nest = self.own.steps[0].kernel.nest
        assert nest.sequential
        time, direction = nest.sequential
        parts = [f"'{time}' in order" if direction > 0 else f"'{time}' in reverse order"]
        shared = [*nest.outer, *([f"blocks of {nest.lane}"] if nest.block else [])]
        if shared:
            parts.append(f"threads share {', '.join(shared)}")
        if nest.lane:
            parts.append(f"lanes along {nest.lane}")
        parts += [f"of '{n}' the last {many} steps are kept" for n, many in nest.rings.items()]
        return ", ".join(parts)

    def run(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Return what it computes, by name, in the dtype that it is computed in.

        Args:
            arguments: those of the call, and the states of earlier groups; the batch of each tensor
                is one dimension.
            sizes: of every index.
        """
        wanted = [getattr(torch, output.dtype) for output in self.own.steps[0].kernel.nest.outputs]
        needed = {p.name: arguments.get(p.name) for p in self.own.indexed.line.parameters}
        values = self.own.run(needed, sizes, wanted)
        pairs = zip(self.names, values, self.turned, strict=True)
        return {n: value.permute(order).contiguous() for n, value, order in pairs if n}


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
    """

    formula: Formula
    group: Group
    dtypes: Mapping[str, str]
    compute: str
    sizes: Mapping[str, int]
    outputs: Mapping[int, Node]
    later: tuple[Node, ...]
    backend: Backend


def find_scan(call: ScanCall) -> Scan | NoLoops:
    """Return the loops of a group, or why it has none."""
    if reason := _why_none(call):
        return NoLoops(reason=reason)
    [target] = call.backend.targets("double" if call.compute == "float64" else "float")
    try:
        return _write(call, target)
    except RefusedLoops as refused:
        return NoLoops(reason=str(refused))


def _why_none(call: ScanCall) -> str | None:
    """Return why a group has no loops, as far as that shows before they are written."""
    if len(call.group.weights) != 1:
        return "it runs along a wavefront"
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
    ((time, weight),) = call.group.weights
    sequential = (time, 1 if weight > 0 else -1)
    alone = steps.write_scan(call.formula, call.group, {}, "")
    setting, own = _setting(call, alone.formula, target, {})
    base = scan.nest_of(own, sequential, setting)
    lines = call.formula.line.outputs
    others = {
        lines[k].name: (lines[k].labels, node)
        for k, node in call.outputs.items()
        if _is_at_hand(base, lines[k].labels, node, call)
    }
    made = steps.write_scan(call.formula, call.group, others, str(base.lane))
    known = _known_sizes(call, time)
    setting, own = _setting(call, made.formula, target, known)
    left = [n for k, n in call.outputs.items() if lines[k].name not in others]
    rings = _find_rings(call, time, [*left, *call.later])
    nest = replace(scan.nest_of(own, sequential, setting), rings=rings)
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
    names = tuple(None if output.name in rings else output.name for output in own)
    return Scan(own=loops, names=names, turned=made.turned)


def _find_rings(call: ScanCall, time: str, later: list[Node]) -> dict[str, int]:
    """Return the states of which only the last steps are needed, and how many of them."""
    group, ranges = call.group, call.formula.ranges
    names = {state.name for state in group.states}
    names -= {read.name for read in reads_of(later, names)}
    back = dict.fromkeys(names, 0.0)
    for state in group.states:
        for read in find_reads(state, group.states, ranges):
            if read.state in back:
                ends = read.shifts[time] or (math.inf, math.inf)
                back[read.state] = max(back[read.state], *map(abs, ends))
    return {n: 1 << int(steps).bit_length() for n, steps in back.items() if steps < MOST_STEPS}


def _known_sizes(call: ScanCall, time: str) -> dict[str, int]:
    """Return the small sizes, which a kernel is made for: not the number of steps."""
    names = {i.rstrip("'") for t in call.formula.line.tensors for i in t.labels}
    names -= {BATCH, time, *call.formula.sizes}
    return {name: n for name, n in call.sizes.items() if n <= SMALL and name in names}


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
    time = base.sequential[0]
    if not {*base.outer, time} <= {*labels} or not any(True for _ in reads_of([node], states)):
        return False
    every = {i for own in states.values() for i in own}
    if not {*labels} <= every or (base.block and base.lane not in labels):
        return False
    if not scan.is_at_step(node, states, base.sequential) or bounds.find_gathers(node):
        return False
    free = [*base.outer, *([base.lane] if base.block else [])]
    return all(
        read.places[states[read.name].index(index)].index == index
        for read in reads_of([node], states)
        for index in free
    )
