"""What decides which loops the states of a recurrence have, and what these have at hand."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from pullback.bind.dense.places import is_certain
from pullback.bind.loops.backends import Backend
from pullback.bind.loops.specialise import make_setting
from pullback.define.math import bounds
from pullback.define.math.formula import Formula
from pullback.define.math.index import at
from pullback.define.math.lower import product_of, scatter_of
from pullback.define.math.node import REDUCTIONS, SUM, Node, in_order, may_divide_by_zero
from pullback.define.math.parts import open_sums
from pullback.define.math.recurrence import Group, State, find_reads, reads_of
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.state_sums import set_apart
from pullback.define.math.steps import simplified
from pullback.kernels.loops import scan, scan_nest
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.pointwise import STORED
from pullback.kernels.loops.schedule import segment
from pullback.kernels.loops.scope import RefusedLoops
from pullback.kernels.loops.target import Target

# A longer sum of sums would compute the inner ones again and again.
MOST_NESTED = 64
# Further back than this, all steps are kept.
MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class ScanCall:
    """What decides which loops a group has.

    Attributes:
        formula: whose group.
        group: which one.
        there: the states of a walk over the same steps before it, of which only some are kept.
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
    there: Group | None = None
    counted: frozenset[str] = frozenset()

    @property
    def groups(self) -> tuple[Group, ...]:
        """The states that are computed, as groups."""
        return (self.there, self.group) if self.there else (self.group,)

    @property
    def states(self) -> dict[str, State]:
        """The states that are computed, by name."""
        return {state.name: state for group in self.groups for state in group.states}


def why_none(call: ScanCall) -> str | None:
    """Return why a group has no loops, as far as that shows before they are written."""
    nodes = [state.node for state in call.states.values()]
    if any(map(may_divide_by_zero, in_order([*nodes, *call.outputs.values()]))):
        return "whole numbers are divided, where PyTorch looks for zero"
    extents = Extents(call.sizes)
    parts = in_order(nodes, lambda node: () if scatters(node, call) else node.args)
    nested = (
        n.size for n in parts if n.op in REDUCTIONS and n.height > 1 and not scatters(n, call)
    )
    if any((extents.number(size) or 0) > MOST_NESTED for size in nested):
        return "it sums what is a sum itself, which PyTorch does one by one"
    names = call.states.keys()
    gathers = (gather for node in nodes for gather in bounds.find_gathers(node))
    if any(any(map(bool, reads_of(g.conditions, names))) for g in gathers):
        return "a state says whether an element that data says is read"
    strange = {*call.dtypes.values()} - STORED.keys()
    return f"no own loops read or write {min(strange)}" if strange else None


def picks_by_states(formula: Formula) -> bool:
    """Return whether a state, as an output, says which element is read, perhaps one outside."""
    names = {output.name for output in formula.line.outputs}
    gathers = (gather for node in formula.nodes for gather in bounds.find_gathers(node))
    return any(
        not is_certain(formula, gather) and any(True for _ in reads_of(gather.place.nodes, names))
        for gather in gathers
    )


def scatters(node: Node, call: ScanCall) -> bool:
    """Return whether a sum adds up rows where data says, each of which a loop adds up alone."""
    return bool(rows_of(node, call))


def rows_of(node: Node, call: ScanCall) -> frozenset[str]:
    """Return the indices that data decides, where a sum adds up."""
    if node.op != SUM:
        return frozenset()
    sizes = {index: call.formula.ranges.size(index) for index in node.free}
    found = scatter_of(product_of(node), sizes)
    return found.rows if found else frozenset()


def has_rows_in_lanes(node: Node, lane: str | None, call: ScanCall, target: Target) -> bool:
    """Return whether an element has such sums, of which each lane would have one of its own."""
    if target.keeps_states:
        return False  # each is a thread
    return any(lane in rows_of(part, call) for part in in_order([node]))


def find_setting(
    call: ScanCall, formula: Formula, target: Target, known: dict[str, int]
) -> tuple[KernelSetting, list[Output]]:
    """Return what the kernel is written with, and what it computes."""
    outputs = [
        Output(name=o.name, indices=o.labels, node=node, dtype=o.dtype or call.compute)
        for o, node in zip(formula.line.outputs, formula.nodes, strict=True)
    ]
    setting = make_setting(formula, outputs, {**call.dtypes}, target, call.sizes, known)
    found, segmented = segment(outputs, setting)
    if not found.segments:
        return setting, outputs
    if found.places:
        raise RefusedLoops("a maximum decides where a state is added to another")
    return replace(segmented, segments=tuple(found.segments)), found.outputs


def is_part(base: Nest, labels: tuple[str, ...], node: Node, call: ScanCall) -> bool:
    """Return whether an output is a sum over the lanes, of which each task computes a part."""
    if base.lane is None or not base.block or base.lane in labels:
        return False
    missing = (*(i for i in base.outer if i not in labels), base.lane)
    sizes = call.formula.ranges
    element = open_sums(node, {index: sizes.size(index) for index in missing})
    return element is not None and is_at_hand(base, (*labels, *missing), element, call)


def set_sums_apart(call: ScanCall, base: Nest) -> tuple[ScanCall, Container[str]]:
    """Return a call in which the sums of a step come before all that reads them.

    So several rows of them are computed side by side, and the rest is not. With it come the names
    of the states that they are.
    """
    if base.rows == 1 or call.there:
        return call, ()
    own = {state.name: state.indices for state in call.states.values()}
    sums = scan_nest.find_mixed([state.node for state in call.states.values()], own, base.lane)
    formula, group, reads = set_apart(call.formula, call.group, sums)
    nodes = rewrite_nodes([*call.outputs.values()], simplified, formula.ranges, reads.get)
    outputs = dict(zip(call.outputs, nodes, strict=True))
    apart = {each.name for each in reads.values()}
    return replace(call, formula=formula, group=group, outputs=outputs), apart


def find_sums(call: ScanCall, time: str) -> list[frozenset[str]]:
    """Return which indices of states each output of the same step is summed over."""
    every = {index for state in call.states.values() for index in state.indices}
    lines, names = call.formula.line.outputs, call.states.keys()
    at_steps = (
        {*lines[k].labels}
        for k, node in call.outputs.items()
        if time in lines[k].labels and any(True for _ in reads_of([node], names))
    )
    return [frozenset(every - labels) for labels in at_steps]


def find_rings(
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


def is_at_hand(base: Nest, labels: tuple[str, ...], node: Node, call: ScanCall) -> bool:
    """Return whether an output is computed by the same tasks, at the same steps, as the states."""
    assert base.sequential
    states = {name: state.indices for name, state in call.states.items()}
    own_walk = {state.name for state in call.group.states}
    labels = base.fronts.replace_in(labels) if base.fronts else labels
    time = base.sequential[0]
    if not {*base.outer, time} <= {*labels} or not any(True for _ in reads_of([node], states)):
        return False
    every = {i for own in states.values() for i in own}
    if not {*labels} <= every or (base.block and base.lane not in labels):
        return False
    if not scan.is_at_step(node, own_walk, base.sequential) or bounds.find_gathers(node):
        return False
    free = {*base.outer, *([str(base.lane)] if base.block else [])}

    def is_there(each: Node) -> bool:
        own = states[each.name]
        places = dict(zip(own, each.places, strict=True))
        # In the loops that compute a state only what is at the same place is there already.
        is_now = each.name in own_walk and {*own} == {*labels} and places[time] == at(time)
        now = {*own} if is_now else set[str]()
        return all(places[index] == at(index) for index in free | now)

    return all(map(is_there, reads_of([node], states)))
