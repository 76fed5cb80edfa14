"""Sums over states that a recurrence keeps for its gradients, as those in the gates of a GRU.

Without them they are summed up again, in products of matrices, of states that are outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pullback.define.line import Tensor
from pullback.define.math import derived, recall, steps
from pullback.define.math.draft import FreeNames, is_real
from pullback.define.math.formula import Formula, element
from pullback.define.math.index import BATCH, at
from pullback.define.math.node import READ, SUM, Node, in_order, is_number, names_read, read
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.statistics import Keeping, Rows, returning


def keep_sums(formula: Formula, *, in_single: bool = False) -> Keeping | None:
    """Return a recurrence that keeps the sums of its steps over states; None if nothing reads them.

    Args:
        formula: of a recurrence.
        in_single: whether they are kept in single precision, since the tensors are in half.
    """
    plain = derived.backward(formula)
    if plain is None:
        return None
    kept = _name_sums(formula, plain.formula, "float32" if in_single else None)
    reading = _recall(plain.formula, kept)
    used = names_read([*reading.elements, *(s.node for s in reading.states.values())])
    returned = {node: tensor for node, tensor in kept.items() if tensor.name in used}
    if not returned:
        return None
    forward = returning(formula, [*returned.items()])
    taken = (replace(tensor, detached=False) for tensor in returned.values())
    name, parameters = f"{forward.line.name}_grad", (*reading.line.parameters, *taken)
    line = replace(reading.line, name=name, parameters=parameters)
    return Keeping(forward=forward, backward=replace(plain, formula=replace(reading, line=line)))


def _name_sums(formula: Formula, gradients: Formula, dtype: str | None) -> dict[Node, Tensor]:
    """Return the sums that may be kept, each with the output that it becomes."""
    names = FreeNames(formula.line)
    names.taken.update(FreeNames(gradients.line).taken, formula.states, gradients.states)
    kept: dict[Node, Tensor] = {}
    for node, state in _find_sums(formula).items():
        if any(True for _ in reads_of([node], gradients.states)):
            continue  # of states that are no outputs: these are computed again
        dims = steps.dims_of(index for index in state.indices if index in node.free)
        kept[node] = Tensor(name=names.fresh("summed"), dims=dims, dtype=dtype, detached=True)
    return kept


def _recall(gradients: Formula, kept: Mapping[Node, Tensor]) -> Formula:
    """Return the gradients with reads of what is kept, which their line does not take yet."""
    results: dict[Node, Node] = {}
    for node, own in kept.items():
        # What one branch reads is the same, wherever that is selected.
        for each in (node, *_branches_of(node)):
            results.setdefault(each, element(own, gradients.line.qualname))

    def recalled(*nodes: Node) -> tuple[Node, ...]:
        return recall.recall_results(nodes, results, gradients.ranges)

    groups = tuple(
        replace(group, states=tuple(replace(s, node=recalled(s.node)[0]) for s in group.states))
        for group in gradients.groups
    )
    return replace(gradients, elements=recalled(*gradients.elements), groups=groups)


def set_apart(
    formula: Formula, group: Group, nodes: Sequence[Node]
) -> tuple[Formula, Group, dict[Node, Node]]:
    """Return a formula in which some sums over states are states of their own, before all others.

    Args:
        formula: a recurrence.
        group: of it, which has the sums.
        nodes: the sums; those that lack an index of the states stay where they are.

    Returns:
        The formula, its group, and the read that stands for each sum.
    """
    names, sums = FreeNames(formula.line), dict[Node, State]()
    names.taken.update(formula.states)
    for node in nodes:
        like = next((s for s in group.states if frozenset(s.indices) == node.free), None)
        if like and node.type == "real":
            sums[node] = replace(like, name=names.fresh("summed"), node=node)
    reads = {node: read(s.name, map(at, s.indices)) for node, s in sums.items()}
    before = [state.node for state in group.states]
    after = rewrite_nodes(before, steps.simplified, formula.ranges, reads.get)
    readers = (replace(s, node=node) for s, node in zip(group.states, after, strict=True))
    return *formula.with_states(group, (*sums.values(), *readers)), reads


def find_factor(formula: Formula) -> Rows | None:
    """Return a tensor that sums over states multiply them by, whose rows these are; None if none.

    It says how much it takes to sum up again.
    """
    tensors = {tensor.name: tensor for tensor in formula.line.tensors if is_real(tensor)}
    if formula.line.returns_gradients:
        return None
    return next((rows for node in _find_sums(formula) for rows in _factors_of(node, tensors)), None)


def _find_sums(formula: Formula) -> dict[Node, State]:
    """Return the sums over states that each step computes, with what they are where it has none."""
    found: dict[Node, State] = {}
    for state in (state for group in formula.groups for state in group.states):
        left, seen = [state.node], set[Node]()
        if any(index != BATCH and steps.plain(index) != index for index in state.indices):
            continue
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            if _is_total(node) and any(True for _ in reads_of([node], formula.states)):
                found.setdefault(node, state)
            else:
                # Of its branches one may be what cannot be computed at each step.
                left += node.args[:1] if node.op == "where" else node.args
    return found


def _is_total(node: Node) -> bool:
    """Return whether a value is a sum, which one a condition may say; or none."""
    if node.op == "where":
        return all(_is_total(each) or is_number(each, 0) for each in node.args[1:])
    return node.op == SUM and node.type == "real"


def _branches_of(node: Node) -> Iterator[Node]:
    """Yield the sums that conditions select from."""
    for each in node.args[1:] if node.op == "where" else ():
        if _is_total(each):
            yield each
            yield from _branches_of(each)


def _factors_of(node: Node, tensors: Mapping[str, Tensor]) -> Iterator[Rows]:
    """Yield the tensors by which a sum multiplies states, with the dimension of the sum."""
    for total in in_order([node]):
        reads = in_order(total.args) if total.op == SUM else ()
        for part in reads:
            own = tensors.get(part.name) if part.op == READ else None
            if own is None or own.many or own.optional or own.has_batch:
                continue
            along = [d for d, place in enumerate(part.places) if place.index == total.bound]
            if len(along) == 1:
                yield Rows(tensor=own.name, reduced=(along[0],))
