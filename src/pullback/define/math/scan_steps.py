"""The steps of a recurrence as one formula for all times: what differs between them is data.

`steps` has a formula for each set of conditions, `t == 0` or not, as suits PyTorch's operations. A
model that another runtime repeats has one body, to which conditions are tensors without dimensions,
and the last elements of each state are a tensor: `h[t - 1, d]` reads the place before its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.define.dimension import Name
from pullback.define.line import Tensor
from pullback.define.math import reduce, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import PLACED, READ, Node, in_order, read
from pullback.define.math.recurrence import Group, State, find_reads
from pullback.define.math.steps import Slice

# Further back than this, all elements of a state are at hand in each step.
MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class Window:
    """The elements of a state that steps read.

    Attributes:
        name: of the parameter that it is.
        dim: which of its dimensions is the time.
        size: how many there are, those before the step in their order; None for all of them.
        label: of that dimension.
    """

    name: str
    dim: int
    size: int | None
    label: str


@dataclass(frozen=True, kw_only=True)
class ScanStep:
    """One step as a formula: its outputs are the states, without the sequential index.

    Attributes:
        formula: with parameters for all of these, and for what is read as a whole.
        time: the sequential index, and 1 or -1 for its direction.
        slices: what is read at one time alone.
        conditions: by the names of the tensors that say whether they hold.
        clock: the name of the tensor that is the time, if it is needed.
        windows: by the names of the states that are read.
    """

    formula: Formula
    time: tuple[str, int]
    slices: tuple[Slice, ...]
    conditions: Mapping[str, Node]
    clock: str
    windows: Mapping[str, Window]

    @property
    def needs_clock(self) -> bool:
        """Whether the time has to be known, by the formula or to change a state in its place."""
        is_read = any(parameter.name == self.clock for parameter in self.formula.line.parameters)
        return is_read or any(window.size is None for window in self.windows.values())


def write_scan_step(formula: Formula, group: Group) -> ScanStep:
    """Return the formula of all times of a group with one sequential index."""
    ((time, weight),) = group.weights
    names = FreeNames(formula.line)
    names.taken.update(formula.states)
    # One for all: what is opened gets a name that is new to these ranges alone.
    ranges = formula.ranges
    windows = _find_windows(formula, group, names)
    flags = {
        node: read(names.fresh(f"is_{k}"), (), "bool")
        for k, node in enumerate(steps.conditions_of(group))
    }
    clock = read(names.fresh(f"{steps.plain(time)}_"), (), "int")
    made: dict[tuple[str, tuple[Affine | None, ...]], Slice] = {}

    def replaced(node: Node) -> Node | None:
        if node in flags:
            return flags[node]
        if time not in node.free or node.op not in PLACED:
            return None
        taken = [steps.is_of(place, time) for place in node.places]
        others = [place for place, own in zip(node.places, taken, strict=True) if not own]
        is_own = node.op == READ and node.name in windows
        if node.op != READ or is_own or any(time in place.free for place in others):
            now = reduce.substitute(node, {time: Affine(0, ((clock, 1),))}, ranges)
            return _in_window(now, node, windows[node.name], time, weight) if is_own else now
        places = tuple(p if own else None for p, own in zip(node.places, taken, strict=True))
        key = (node.name, places)
        if key not in made:
            made[key] = Slice(
                name=names.fresh(f"{node.name}_{len(made)}"), of=node.name, places=places
            )
        return read(made[key].name, others, node.type)

    nodes = reduce.rewrite_nodes(
        steps.with_others(formula, group), steps.simplified, ranges, replaced
    )
    used = {node.name for node in in_order(nodes) if node.op == READ}
    slices = {s.name: s for s in made.values() if s.name in used}
    states = {state.name: state for state in group.states}
    conditions = {flag.name: node for node, flag in flags.items() if flag.name in used}
    more = [
        *(Tensor(name=name, dims=(), dtype="bool") for name in conditions),
        *([Tensor(name=clock.name, dims=(), dtype="int64")] if clock.name in used else []),
        *(_window_tensor(w, states[name]) for name, w in windows.items() if w.name in used),
    ]
    indices = [tuple(i for i in state.indices if i != time) for state in group.states]
    return ScanStep(
        formula=steps.formula_of(formula, group, nodes, indices, names, slices, more),
        time=(time, 1 if weight > 0 else -1),
        slices=tuple(slices.values()),
        conditions=conditions,
        clock=clock.name,
        windows={name: w for name, w in windows.items() if w.name in used},
    )


def _find_windows(formula: Formula, group: Group, names: FreeNames) -> dict[str, Window]:
    """Return how many steps back each state is read."""
    ((time, _),) = group.weights
    back: dict[str, float] = {}
    for state in group.states:
        for each in find_reads(state, group.states, formula.ranges):
            far = max(map(abs, each.shifts[time] or (float("inf"),)))
            back[each.state] = max(back.get(each.state, 0), far)
    return {
        state.name: Window(
            name=names.fresh(f"{state.name}_window"),
            dim=state.indices.index(time),
            size=int(back[state.name]) if back[state.name] <= MOST_STEPS else None,
            label=names.fresh(f"{state.name}_steps"),
        )
        for state in group.states
        if back.get(state.name)
    }


def _in_window(now: Node, node: Node, window: Window, time: str, weight: int) -> Node:
    """Return a read of a state as one of its window.

    Args:
        now: the read at the time of the step.
        node: the same at any time.
        window: of the state.
        time: the sequential index.
        weight: positive if it goes up.
    """
    places = list(now.places)
    if window.size is not None:
        # Going up, the window ends before t; going down, it begins after it.
        here = Affine(window.size if weight > 0 else -1)
        places[window.dim] = node.places[window.dim].replaced({time: here})
    return read(window.name, places, node.type)


def _window_tensor(window: Window, state: State) -> Tensor:
    """Return a window as a parameter of the step."""
    dims = list(steps.dims_of(state.indices))
    if window.size is not None:
        dims[window.dim] = Name(name=window.label)
    return Tensor(name=window.name, dims=tuple(dims), dtype=steps.DTYPES[state.node.type])
