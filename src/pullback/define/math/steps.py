"""The steps of a recurrence as formulas: what is computed at one time, or along one front.

A step's formula has no sequential index. Where one index is sequential, what is read at a time is
a tensor of its own, `x_1[d]` for `x[t - 1, d]`, and a condition such as `t == 0` is known; so steps
of the same conditions share a formula. Along a front of several sequential indices, two tensors say
where its elements are, `i_[f]` and `j_[f]`, and everything is read there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.dimension import Batch, Dim, Name
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.math import absent, build, reduce
from pullback.define.math.draft import FreeNames, is_real
from pullback.define.math.formula import Formula
from pullback.define.math.functions import TABLE
from pullback.define.math.index import BATCH, Affine, at, size
from pullback.define.math.node import (
    EQUAL,
    INSIDE,
    PLACED,
    READ,
    Node,
    Type,
    in_order,
    number,
    read,
    rename_index,
    scalar,
)
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.subscripts import move_indices

DTYPES: dict[Type, str | None] = {"real": None, "int": "int64", "bool": "bool"}


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A tensor at one time.

    Attributes:
        name: of the parameter that it is.
        of: which tensor.
        places: for each of its dimensions where it is read; None for all of it.
    """

    name: str
    of: str
    places: tuple[Affine | None, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step as a formula: its outputs are the states, without the sequential indices.

    Attributes:
        formula: with parameters for `slices`, and for what is read as a whole.
        slices: what is read at one time alone.
        time: the name of the scalar that is the sequential index, if it is needed.
        places, along: of a front, which tensors say where its elements are, and their dimension.
    """

    formula: Formula
    slices: tuple[Slice, ...] = ()
    time: str | None = None
    places: tuple[str, ...] = ()
    along: str = ""


def tensor_of(state: State, name: str) -> Tensor:
    """Return a state as a tensor of a line."""
    return Tensor(name=name, dims=dims_of(state.indices), dtype=DTYPES[state.node.type])


def dims_of(indices: Iterable[str]) -> tuple[Dim, ...]:
    """Return the dimensions of a tensor of some indices."""
    return tuple(Batch() if i == BATCH else Name(name=plain(i)) for i in indices)


def plain(index: str) -> str:
    """Return an index as the name of a dimension: `n_` for the second n of `x[n, n]`."""
    return f"d{index}" if index.isdecimal() else index.replace("'", "_")


def present(formula: Formula, missing: frozenset[str], wanted: Sequence[bool]) -> Formula:
    """Return a formula without tensors that are None, whose unwanted outputs are not computed."""
    nodes = absent.drop_absent(formula.nodes, {*missing}) if missing else formula.nodes
    nodes = [n if asked else number(0.0) for n, asked in zip(nodes, wanted, strict=True)]
    needed, groups = [*nodes], list[Group]()
    for group in reversed(formula.groups):
        if any(True for _ in reads_of(needed, [s.name for s in group.states])):
            own = [s.node for s in group.states]
            own = absent.drop_absent(own, {*missing}) if missing else own
            states = [replace(s, node=n) for s, n in zip(group.states, own, strict=True)]
            groups.insert(0, replace(group, states=tuple(states)))
            needed += own
    return replace(formula, elements=tuple(nodes), groups=tuple(groups))


def rest_of(formula: Formula, names: Mapping[str, str]) -> Formula:
    """Return the formula of the outputs, to which states are tensors by other names.

    They are optional: outputs that read others than are given are not to be asked for.
    """
    states = formula.states
    seen = {r.name for r in reads_of(formula.nodes, states)}
    tensors = [replace(tensor_of(states[n], names[n]), optional=True) for n in names if n in seen]
    line = replace(
        formula.line,
        name=f"_{formula.line.name.removeprefix('_')}_outputs",
        parameters=(*map(as_given, formula.line.parameters), *tensors),
        formula="...",
        stands_for=formula.line.called,
    )
    nodes = [_renamed(node, names, formula) for node in formula.nodes]
    return replace(formula, line=line, elements=tuple(nodes), groups=())


def with_states(formula: Formula) -> tuple[Formula, list[tuple[str, Tensor]]]:
    """Return the formula in which states are parameters and what they become is returned first.

    Returns also: of each state its name, and the parameter that it is.
    """
    free = FreeNames(formula.line)
    names = {name: free.fresh(f"{name}_") for name in formula.states}
    rest, states = rest_of(formula, names), list(formula.states.values())
    parameters = [p for p in rest.line.parameters if p.name not in names.values()]
    tensors = [tensor_of(state, names[state.name]) for state in states]
    nodes = [
        _named_plainly(_renamed(state.node, names, formula), state.indices) for state in states
    ]
    outputs = outputs_of(nodes, [state.indices for state in states])
    outputs = [replace(output, name=free.fresh(output.name)) for output in outputs]
    line = replace(
        rest.line,
        parameters=(*parameters, *tensors),
        outputs=(*outputs, *rest.line.outputs),
    )
    made = replace(rest, line=line, elements=(*nodes, *rest.elements))
    return made, list(zip(names, tensors, strict=True))


def as_given(parameter: Tensor | Scalar) -> Tensor | Scalar:
    """Return a parameter that has to be given, a real tensor in the dtype of the states."""
    if isinstance(parameter, Scalar):
        return replace(parameter, default=None)
    return replace(parameter, dtype=None) if is_real(parameter) else parameter


def _renamed(node: Node, names: Mapping[str, str], formula: Formula) -> Node:
    def known(each: Node) -> Node | None:
        if each.op != READ or each.name not in names:
            return None
        return read(names[each.name], each.places, each.type)

    return reduce.rewrite_reads([node], lambda each: each, formula.ranges, known)[0]


def conditions_of(group: Group) -> tuple[Node, ...]:
    """Return the conditions that the time alone decides."""
    ((time, _),) = group.weights
    found = in_order(state.node for state in group.states)
    return tuple(n for n in found if n.op in (INSIDE, EQUAL) and is_of(n.places[0], time))


def is_of(place: Affine, time: str) -> bool:
    """Return whether the time alone decides a place."""
    return place.free == frozenset({time}) and not place.nodes


def write_step(formula: Formula, group: Group, known: Mapping[Node, bool]) -> Step:
    """Return the formula of one time.

    Args:
        formula: whose states the group is of.
        group: of one sequential index.
        known: what is known of its conditions.
    """
    ((time, _),) = group.weights
    names = _free_names(formula)
    made: dict[tuple[str, tuple[Affine | None, ...]], Slice] = {}
    clock = scalar(names.fresh(f"{plain(time)}_"), "int")
    ranges = formula.ranges

    def replaced(node: Node) -> Node | None:
        if node in known:
            return number(known[node])
        if time not in node.free or node.op not in PLACED:
            return None
        taken = [is_of(place, time) for place in node.places]
        others = [place for place, own in zip(node.places, taken, strict=True) if not own]
        if node.op != READ or any(time in place.free for place in others):
            return reduce.substitute(node, {time: Affine(0, ((clock, 1),))}, ranges)
        key = (
            node.name,
            tuple(p if own else None for p, own in zip(node.places, taken, strict=True)),
        )
        if key not in made:
            name = names.fresh(f"{node.name}_{len(made)}")
            made[key] = Slice(name=name, of=node.name, places=key[1])
        return read(made[key].name, others, node.type)

    nodes = reduce.rewrite_nodes(with_others(formula, group), simplified, ranges, replaced)
    # A condition may have gone, and what it selected.
    slices = {s.name: s for s in made.values()}
    indices = [tuple(i for i in state.indices if i != time) for state in group.states]
    step = formula_of(formula, group, nodes, indices, names, slices)
    used = {p.name for p in step.line.parameters}
    return Step(
        formula=step,
        slices=tuple(s for s in slices.values() if s.name in used),
        time=clock.name if clock.name in used else None,
    )


def formula_of_some(
    formula: Formula, group: Group, nodes: Sequence[Node], indices: Sequence[tuple[str, ...]]
) -> Formula:
    """Return the formula of some elements at the indices of states, which may read these whole."""
    return formula_of(formula, group, nodes, indices, _free_names(formula), {})


def _free_names(formula: Formula) -> FreeNames:
    names = FreeNames(formula.line)
    names.taken.update(formula.states)
    return names


def with_others(
    formula: Formula, group: Group, *, alike: bool = False, apart: Container[str] = ()
) -> list[Node]:
    """Return the states' elements, in which others of the same place are written out.

    If `alike`, only those with the same indices, of the same element or its neighbours: others are
    read, for what a sum reads would be computed again for each of its terms. So are those `apart`.
    """
    # One for all: what is opened gets a name that is new to these ranges alone.
    sequential, ranges = {index for index, _ in group.weights}, formula.ranges
    done: dict[str, tuple[State, Node]] = {}

    def known(node: Node) -> Node | None:
        if node.op != READ or node.name not in done or node.name in apart:
            return None
        state, element = done[node.name]
        places = dict(zip(state.indices, node.places, strict=True))
        here = all(places[index] == at(index) for index in sequential)
        shifts = [place - at(index) for index, place in places.items()]
        is_near = state.indices == current[0].indices and not any(s.terms for s in shifts)
        here &= not alike or is_near
        return move_indices(element, places, ranges) if here else None

    current: list[State] = []
    for state in group.states:
        current[:] = [state]
        [node] = reduce.rewrite_reads([state.node], simplified, ranges, known)
        done[state.name] = state, node
    return [done[state.name][1] for state in group.states]


def simplified(node: Node) -> Node:
    """Return a node whose operands have changed, as it is built of them."""
    return build.rebuild(node, node.args) if node.op in TABLE or node.op == "powi" else node


def write_front(formula: Formula, group: Group) -> Step:
    """Return the formula of some elements of one front."""
    names = _free_names(formula)
    along = names.fresh("front")
    sequential = [index for index, _ in group.weights]
    where = {index: names.fresh(f"{plain(index)}_") for index in sequential}
    places = {i: Affine(0, ((read(where[i], [at(along)], "int"), 1),)) for i in sequential}
    nodes = [reduce.substitute(n, places, formula.ranges) for n in with_others(formula, group)]
    indices = [
        (*(i for i in state.indices if i not in sequential), along) for state in group.states
    ]
    tensors = [
        Tensor(name=name, dims=(Name(name=along),), dtype="int64") for name in where.values()
    ]
    step = formula_of(formula, group, nodes, indices, names, {}, tensors)
    return Step(formula=step, places=tuple(where.values()), along=along)


def formula_of(  # noqa: PLR0913, PLR0917  (the parts of a step)
    formula: Formula,
    group: Group,
    nodes: Sequence[Node],
    indices: Sequence[tuple[str, ...]],
    names: FreeNames,
    slices: Mapping[str, Slice],
    more: Sequence[Tensor] = (),
) -> Formula:
    """Return the formula of a step, whose parameters are what it reads."""
    nodes = [_named_plainly(node, own) for node, own in zip(nodes, indices, strict=True)]
    states, tensors = formula.states, {t.name: t for t in formula.line.tensors}
    found = dict[str, Tensor | Scalar]((tensor.name, tensor) for tensor in more)
    for node in in_order(nodes):
        if node.op == READ and node.name not in found:
            found[node.name] = _parameter(node.name, node.type, slices, states, tensors)
        elif node.op == "scalar" and node.name not in found:
            known = {s.name: s for s in formula.line.scalars}
            own = known.get(node.name) or Scalar(name=node.name, type="int")
            found[node.name] = replace(own, default=None)
    labels = {i for own in indices for i in own}
    if BATCH in labels:
        # It says how large the batch is, where nothing else does.
        name = names.fresh("batch_")
        found[name] = Tensor(name=name, dims=(Batch(),))
    outputs = [replace(o, name=names.fresh(o.name)) for o in outputs_of(nodes, indices)]
    line = Line(
        namespace=formula.line.namespace,
        name=f"_{formula.line.name.removeprefix('_')}_step",
        parameters=tuple(found.values()),
        outputs=tuple(outputs),
        formula="...",
        stands_for=formula.line.called,
    )
    pairs = (pair for s in group.states for pair in zip(s.indices, s.extents, strict=True))
    extents = {plain(i): extent for i, extent in pairs if i != BATCH and size(plain(i)) != extent}
    return Formula(
        line=line,
        elements=tuple(nodes),
        sizes={**formula.sizes, **extents},
        accuracy=formula.accuracy,
    )


def outputs_of(nodes: Sequence[Node], indices: Iterable[tuple[str, ...]]) -> list[Tensor]:
    """Return the outputs of some elements at some indices."""
    return [
        Tensor(name=f"next_{k}", dims=dims_of(own), dtype=DTYPES[node.type])
        for k, (node, own) in enumerate(zip(nodes, indices, strict=True))
    ]


def _named_plainly(node: Node, indices: Iterable[str]) -> Node:
    """Return an expression in which indices have names that a line can give to a dimension."""
    for index in indices:
        if index != BATCH and plain(index) != index:
            node = rename_index(node, index, plain(index))
    return node


def _parameter(
    name: str,
    type: Type,
    slices: Mapping[str, Slice],
    states: Mapping[str, State],
    tensors: Mapping[str, Tensor],
) -> Tensor:
    """Return a tensor that a step reads."""
    own = slices.get(name)
    of = own.of if own else name
    dims = tensors[of].dims if of in tensors else dims_of(states[of].indices)
    if own:
        dims = tuple(d for d, place in zip(dims, own.places, strict=True) if place is None)
    return Tensor(name=name, dims=dims, dtype=DTYPES[type])
