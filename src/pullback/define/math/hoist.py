"""Loop-invariant code motion for recurrences: what steps sum up, and no state decides, comes first.

The gates of a GRU are sums over the state before; in its gradient that state is an output that is
known. As a part of a step they would be summed again for each element of the gradient's own sum.
Computed for all steps at once they are products of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

from pullback.define.math import steps
from pullback.define.math.formula import Formula
from pullback.define.math.lift import Search
from pullback.define.math.node import REDUCTIONS, Node
from pullback.define.math.recurrence import Group, State, reads_of


@dataclass(frozen=True, kw_only=True)
class Hoisted:
    """A formula, and what is computed before its steps.

    Attributes:
        formula: in which that are parameters.
        before: the formula of these, in their order; None if there are none.
        parts: their names.
    """

    formula: Formula
    before: Formula | None = None
    parts: tuple[str, ...] = ()


class _Sums(Search):
    """What no state decides in the steps of a formula: sums, and functions of them within sums.

    Attributes:
        is_complete: whether all have been found, and the places are looked for that need them.
    """

    is_complete = False

    def fits(self, node: Node, state: State) -> bool:
        """Return whether an expression is one of them."""
        return not self.is_complete or node in self.contexts

    def takes(self, node: Node, state: State) -> bool:
        """Return whether an expression has a sum, and no state decides it."""
        if not node.height or node.type != "real" or not (self.depth or node.op in REDUCTIONS):
            return False
        return not any(True for _ in reads_of([node], self.formula.states))


def hoist(formula: Formula, nested: Sequence[bool], *, has_outputs: bool = False) -> Hoisted:
    """Return a formula with sums that depend on no state before its steps.

    Args:
        formula: of a recurrence.
        nested: which of its groups are changed: what `find_nested` returns. A loop computes the
            sums of others as they are.
        has_outputs: whether those of outputs are looked for, too.
    """
    found, changed = _Sums(formula), {*compress(formula.groups, nested)}
    states = [state for group in formula.groups if group in changed for state in group.states]
    needing = [(state.node, state) for state in states]
    needing += [(node, states[0]) for node in formula.elements if has_outputs]
    for node, state in needing:
        found.visit(node, (), state)
    # What was found within a sum is read wherever it is, and so is needed there, too.
    found.depth, found.is_complete = 1, True
    for node, state in needing:
        found.visit(node, (), state)
    parts = found.parts()
    if not parts:
        return Hoisted(formula=formula)
    groups = tuple(
        _rewrite_group(found, group, always=group not in changed) for group in formula.groups
    )
    tensors = tuple(steps.tensor_of(part, part.name) for part in parts)
    line = replace(formula.line, parameters=(*formula.line.parameters, *tensors))
    outputs = tuple(found.rewrite(node, always=True) for node in formula.elements)
    return Hoisted(
        formula=replace(formula, line=line, elements=outputs, groups=groups),
        before=_formula_of(formula, parts),
        parts=tuple(part.name for part in parts),
    )


def divide(formula: Formula) -> tuple[int, Hoisted] | None:
    """Return from which group on earlier states decide sums of sums, and the rest of the formula.

    There these states are given. The gradient of an attention over states sums up their scores for
    each of them: once all are known, that comes before its steps. None if there is no such group.
    """
    nested = find_nested(formula)
    for place, group in enumerate(formula.groups):
        early = [state for each in formula.groups[:place] for state in each.states]
        names = {state.name for state in early}
        reads = reads_of([state.node for state in group.states], names)
        if not nested[place] or not any(True for _ in reads):
            continue
        late = [s.node for each in formula.groups[place:] for s in each.states]
        given = {read.name for read in reads_of([*late, *formula.elements], names)}
        tensors = (steps.tensor_of(state, state.name) for state in early if state.name in given)
        line = replace(formula.line, parameters=(*formula.line.parameters, *tensors))
        rest = replace(formula, line=line, groups=formula.groups[place:])
        hoisted = hoist(rest, find_nested(rest), has_outputs=True)
        if hoisted.parts:
            return place, hoisted
    return None


def find_nested(formula: Formula) -> tuple[bool, ...]:
    """Return which groups have a sum of sums."""
    return tuple(any(s.node.height > 1 for s in group.states) for group in formula.groups)


def _formula_of(formula: Formula, parts: Sequence[State]) -> Formula:
    """Return the formula of parts, which read no state."""
    line = replace(
        formula.line,
        name=f"_{formula.line.name.removeprefix('_')}_before",
        parameters=tuple(map(steps.as_given, formula.line.parameters)),
        outputs=tuple(steps.tensor_of(part, part.name) for part in parts),
        formula="...",
    )
    return replace(formula, line=line, elements=tuple(part.node for part in parts), groups=())


def _rewrite_group(found: Search, group: Group, *, always: bool) -> Group:
    """Return a group whose states read the parts."""
    states = (replace(s, node=found.rewrite(s.node, always=always)) for s in group.states)
    return replace(group, states=tuple(states))
