"""Derivatives of recurrences, which are recurrences.

A read of a state at an earlier place is made a tensor of its own, `h_1[t, d]` for `h[t - 1, d]`,
so that the step is an ordinary formula. Its gradient for `h_1`, `p[t, d]`, is computed at step t,
where it shares everything with the other gradients, and belongs to `h[t - 1, d]`: what arrives at
`h[t]` is `grad[t] + p[t + 1]`. So p is a state again, whose shifts are the opposite ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.line import Tensor
from pullback.define.math import differentiate, draft, recall, recurrence, reduce, reverse
from pullback.define.math.draft import Draft, FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at, size
from pullback.define.math.node import READ, Node, Type, read
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.subscripts import move_indices, plain_indices


@dataclass(frozen=True)
class ShiftedRead:
    """A state one or more steps away, as the step sees it.

    Attributes:
        name: of the tensor that stands for it, which no formula can write.
        gradient: the name of its gradient.
        state: which one it is.
        shifts: what its places add to the sequential indices.
    """

    name: str
    gradient: str
    state: State
    shifts: tuple[tuple[str, int], ...]

    def restore(self, places: Sequence[Affine], type: Type) -> Node:
        """Return the read of the state that a read of the tensor stands for."""
        shifts = dict(self.shifts)
        pairs = zip(self.state.indices, places, strict=True)
        own = [place + shifts.get(index, 0) for index, place in pairs]
        return read(self.state.name, own, type)


# What is computed for a name: its indices, how far they run, and its element at them.
Definitions = dict[str, State]


def backward(formula: Formula) -> Draft:
    """Return the gradients of a formula with states."""
    names = FreeNames(formula.line)
    names.taken.update(formula.states)
    steps, shifted = _shift_reads(formula, names)
    arriving = {name: names.fresh(f"l_{name}") for name, s in steps.items() if _is_real(s)}
    passed: Definitions = {}
    by_name = {each.name: each for each in shifted}
    results = recall.results_of(formula)
    results |= {s.node: read(n, map(at, s.indices)) for n, s in steps.items() if s.node.args}

    def restored(node: Node) -> Node | None:
        each = by_name.get(node.name) if node.op == READ else None
        return each and each.restore(node.places, node.type)

    def back(node: Node) -> Node:
        return _rewrite(node, restored, formula.ranges)

    def gradients(grads: Mapping[int, Node], wrt: Sequence[Tensor]) -> list[Node | None]:
        outputs = [
            (formula.line.outputs[k].labels, formula.nodes[k], grad) for k, grad in grads.items()
        ]
        given = {tensor.name: tensor.labels for tensor in wrt}
        own = {name: steps[name].indices for name in arriving}
        own |= {each.name: each.state.indices for each in shifted}
        reached: set[str] = set()
        while True:
            # A state counts once something arrives at it.
            going = [_arrives(steps[name], arriving[name]) for name in reached]
            found = reverse.gradients([*outputs, *going], {**given, **own}, formula.ranges, results)
            values = dict(zip((*given, *own), found, strict=True))
            total = {
                name: _total(steps[name], values, shifted, formula.ranges) for name in arriving
            }
            new = {name for name, value in total.items() if value is not None}
            if new == reached:
                break
            reached = new
        for name in reached:
            node = total[name]
            assert node
            passed[arriving[name]] = replace(steps[name], name=arriving[name], node=back(node))
        for each in shifted:
            if (node := values[each.name]) is not None:
                passed[each.gradient] = replace(each.state, name=each.gradient, node=back(node))
        nodes = (values[tensor.name] for tensor in wrt)
        return [None if node is None else back(node) for node in nodes]

    return _settled(draft.backward(formula, gradients), passed)


def _arrives(state: State, name: str) -> tuple[tuple[str, ...], Node, Node]:
    """Return a state's step with what arrives at it."""
    return state.indices, state.node, read(name, map(at, state.indices))


def _total(
    state: State,
    values: Mapping[str, Node | None],
    shifted: Iterable[ShiftedRead],
    ranges: Ranges,
) -> Node | None:
    """Return what arrives at a state: from where it is read at its own place, and elsewhere."""
    parts = [values[state.name]]
    for each in shifted:
        if each.state.name != state.name or values[each.name] is None:
            continue
        shifts = dict(each.shifts)
        places = [at(index) - shifts.get(index, 0) for index in state.indices]
        parts.append(reduce.pad(each.gradient, places, state.extents, ranges))
    found: Node | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else differentiate.plus(found, part)
    return found


def _shift_reads(formula: Formula, names: FreeNames) -> tuple[Definitions, list[ShiftedRead]]:
    """Return the steps, in which earlier elements of states are tensors of their own."""
    found: dict[tuple[str, tuple[tuple[str, int], ...]], ShiftedRead] = {}
    steps: Definitions = {}

    for group in formula.groups:
        own = {state.name: state for state in group.states}
        sequential = {index for index, _ in group.weights}

        def known(
            node: Node, own: Mapping[str, State] = own, sequential: set[str] = sequential
        ) -> Node | None:
            if node.op != READ or node.name not in own:
                return None
            state = own[node.name]
            shifts, places = list[tuple[str, int]](), list[Affine]()
            for index, place in zip(state.indices, node.places, strict=True):
                shift = place - at(index)
                if index in sequential and shift.terms:
                    return None
                if index in sequential and shift.constant:
                    shifts.append((index, shift.constant))
                places.append(at(index) if index in sequential else place)
            if not shifts:
                return None
            key = (state.name, tuple(shifts))
            if key not in found:
                name, gradient = f"~{len(found)}", names.fresh(f"p{len(found) + 1}")
                found[key] = ShiftedRead(name, gradient, state, tuple(shifts))
            return read(found[key].name, places, node.type)

        for state in group.states:
            steps[state.name] = replace(state, node=_rewrite(state.node, known, formula.ranges))
    return steps, list(found.values())


def _rewrite(node: Node, known: Callable[[Node], Node | None], ranges: Ranges) -> Node:
    """Return an expression with other expressions in place of some reads."""
    return reduce.rewrite_reads([node], lambda each: each, ranges, known, simplifies=True)[0]


def jvp(formula: Formula) -> Draft:
    """Return the tangents of a formula with states: states of the same order."""
    names = FreeNames(formula.line)
    names.taken.update(formula.states)
    states = {s.name: s for g in formula.groups for s in g.states if _is_real(s)}
    moved = {name: names.fresh(f"tangent_{name}") for name in states}
    passed: Definitions = {}

    def pushed(outputs: Sequence[Node], given: Mapping[str, Node]) -> list[Node | None]:
        reads = {name: read(moved[name], map(at, s.indices)) for name, s in states.items()}
        reached: dict[str, Node] = {}
        while True:
            known = {**given, **{name: reads[name] for name in reached}}
            tangents = differentiate.jvp([s.node for s in states.values()], known, formula.ranges)
            new = {n: t for n, t in zip(states, tangents, strict=True) if t is not None}
            if new == reached:
                break
            reached = new
        for name, node in reached.items():
            passed[moved[name]] = replace(states[name], name=moved[name], node=node)
        known = {**given, **{name: reads[name] for name in reached}}
        return differentiate.jvp(outputs, known, formula.ranges)

    made = draft.jvp(formula, pushed)
    # The tangent of an output that is a state is an output that is a state.
    outputs = {o.name for o in formula.line.outputs}
    renamed: dict[str, str] = {}
    for tensor, (place, _) in zip(made.outputs, made.nodes.items(), strict=True):
        own = formula.line.outputs[place].name
        if own in moved and own in outputs:
            renamed[moved[own]] = tensor.name
    return _settled(made, passed, renamed)


def _is_real(state: State) -> bool:
    return state.node.type == "real"


def _settled(
    drafted: Draft, passed: Mapping[str, State], renamed: Mapping[str, str] | None = None
) -> Draft:
    """Return a derivative with the states that it needs, those of the original among them.

    What was an output of the original is read back; what was a part is computed again.

    Args:
        drafted: whose nodes may read everything that has a name.
        passed: the names that came with the derivative.
        renamed: the names of states that are outputs of the derivative.
    """
    formula, renamed = drafted.original, renamed or {}
    ranges = formula.ranges
    at_hand = {output.name for output in formula.line.outputs}
    own = {name: s for name, s in formula.states.items() if name not in at_hand}
    definitions, roots = {**own, **passed}, list(drafted.nodes.values())
    while True:
        definitions = _needed(definitions, roots)
        name = next((n for n in definitions if _is_part(n, definitions, roots)), None)
        if name is None:
            break
        part = definitions.pop(name)
        roots = [written_out(root, part, ranges) for root in roots]
        definitions = {
            n: replace(s, node=written_out(s.node, part, ranges)) for n, s in definitions.items()
        }

    for name in [name for name in definitions if name in passed]:
        definitions, roots = _recall_product(name, definitions, roots)

    def known(node: Node) -> Node | None:
        if node.op != READ or node.name not in renamed:
            return None
        return read(renamed[node.name], node.places, node.type)

    states = [
        replace(s, name=renamed.get(n, n), node=_rewrite(s.node, known, ranges))
        for n, s in definitions.items()
    ]
    nodes = dict(zip(drafted.nodes, (_rewrite(r, known, ranges) for r in roots), strict=True))
    groups = recurrence.make_groups(states, ranges, formula.line.qualname)
    return replace(drafted, nodes=nodes, groups=groups)


def _recall_product(
    name: str, definitions: Definitions, roots: list[Node]
) -> tuple[Definitions, list[Node]]:
    """Return definitions and expressions that read a state where they have it as a factor."""
    product = recall.StateProduct.of(definitions[name], definitions)
    if product is None:
        return definitions, roots
    others = {n: s for n, s in definitions.items() if n != name}
    known = {n: replace(s, node=product.recall(s.node)) for n, s in others.items()}
    return {**definitions, **known}, [product.recall(root) for root in roots]


def _needed(definitions: Mapping[str, State], roots: Sequence[Node]) -> Definitions:
    """Return the definitions that some expressions need."""
    uses = {n: {r.name for r in reads_of([s.node], definitions)} for n, s in definitions.items()}
    first = {r.name for r in reads_of(roots, definitions)}
    found = first.union(*(recurrence.reach(name, uses) for name in first))
    return {name: state for name, state in definitions.items() if name in found}


def _is_part(name: str, definitions: Mapping[str, State], roots: Sequence[Node]) -> bool:
    """Return whether a definition is written out where it is read: it is no state, or needs not be.

    It needs not be one if it is read at its own place alone.
    """
    state = definitions[name]
    uses = {n: {r.name for r in reads_of([s.node], definitions)} for n, s in definitions.items()}
    if name not in recurrence.reach(name, uses):
        return True
    own = tuple(map(at, state.indices))
    steps = [s.node for s in definitions.values()]
    return (
        all(r.places == own for r in reads_of(steps, [name]))
        and all(plain_indices(list(r.places)) is not None for r in reads_of(roots, [name]))
        and name not in uses[name]
    )


def written_out(root: Node, part: State, ranges: Ranges) -> Node:
    """Return an expression in which a name stands for its value."""

    def known(node: Node) -> Node | None:
        if node.op != READ or node.name != part.name:
            return None
        places = dict(zip(part.indices, node.places, strict=True))
        return move_indices(part.node, places, ranges)

    return _rewrite(root, known, ranges)


def add_dimension(
    groups: Sequence[Group], change: Callable[[Sequence[Node]], Sequence[Node]], dimension: str
) -> tuple[Group, ...]:
    """Return groups whose states have one dimension more, their first.

    Args:
        groups: the groups.
        change: gives the reads in some expressions that index.
        dimension: its name.
    """
    return tuple(
        replace(
            group,
            states=tuple(
                replace(
                    state,
                    indices=(dimension, *state.indices),
                    extents=(size(dimension), *state.extents),
                    node=change([state.node])[0],
                )
                for state in group.states
            ),
        )
        for group in groups
    )
