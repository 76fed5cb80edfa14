"""Loop-invariant code motion for recurrences: what steps sum up, and no state decides, comes first.

The gates of a GRU are sums over the state before; in its gradient that state is an output that is
known. As a part of a step they would be summed again for each element of the gradient's own sum.
Computed for all steps at once they are products of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.define.math import build, reduce, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, at
from pullback.define.math.node import REDUCTIONS, Node, read, rename_index
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.term import negate, select, split_conjunction

Conditions = tuple[Node, ...]


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


def hoist(formula: Formula) -> Hoisted:
    """Return a formula with sums that depend on no state before its steps.

    Only groups with a sum of sums are changed: a loop computes others as they are.
    """
    found = _Search(formula)
    nested = [g for g in formula.groups if any(state.node.height > 1 for state in g.states)]
    for state in (state for group in nested for state in group.states):
        found.visit(state.node, (), state)
    parts = found.parts()
    if not parts:
        return Hoisted(formula=formula)
    groups = tuple(
        found.rewrite_group(group, always=group not in nested) for group in formula.groups
    )
    tensors = tuple(steps.tensor_of(part, part.name) for part in parts)
    line = replace(formula.line, parameters=(*formula.line.parameters, *tensors))
    outputs = tuple(found.rewrite(node, always=True) for node in formula.elements)
    return Hoisted(
        formula=replace(formula, line=line, elements=outputs, groups=groups),
        before=_formula_of(formula, parts),
        parts=tuple(part.name for part in parts),
    )


def _formula_of(formula: Formula, parts: Sequence[State]) -> Formula:
    """Return the formula of parts, which read no state."""
    line = replace(
        formula.line,
        name=f"_{formula.line.name.removeprefix('_')}_before",
        parameters=tuple(map(steps.without_default, formula.line.parameters)),
        outputs=tuple(steps.tensor_of(part, part.name) for part in parts),
        formula="...",
    )
    return replace(formula, line=line, elements=tuple(part.node for part in parts), groups=())


@dataclass
class _Search:
    """What no state decides in the steps of a formula.

    Attributes:
        formula: whose steps.
        contexts: of each expression, by a state's indices, the conditions under which it is needed.
        homes: of each of these, that state.
        named: what each is called.
    """

    formula: Formula
    contexts: dict[Node, list[Conditions]] = field(
        default_factory=dict[Node, "list[Conditions]"], init=False
    )
    homes: dict[Node, State] = field(default_factory=dict[Node, State], init=False)
    named: dict[Node, str] = field(default_factory=dict[Node, str], init=False)

    def __post_init__(self) -> None:
        self.ranges = Ranges(self.formula.ranges.sizes)
        self.names = FreeNames(self.formula.line)
        self.names.taken.update(self.formula.states)
        self.seen: set[tuple[Node, Conditions]] = set()

    def visit(self, node: Node, conditions: Conditions, state: State) -> None:
        """Look for expressions in one that is needed under some conditions."""
        if not node.height or (node, conditions) in self.seen:
            return
        self.seen.add((node, conditions))
        if node.type == "real" and not any(True for _ in reads_of([node], self.formula.states)):
            own, places = self.canonical(node, state)
            if own is not None:
                self.homes.setdefault(own, state)
                self.contexts.setdefault(own, []).append(self.around(node, conditions, places))
                return
        if node.op in REDUCTIONS:
            self.visit(self.ranges.opened(node, alone=False)[1], conditions, state)
        elif node.op == "where":
            condition, yes, no = node.args
            self.visit(condition, conditions, state)
            self.visit(yes, (*conditions, *split_conjunction(condition)), state)
            self.visit(no, (*conditions, negate(condition)), state)
        else:
            for each in node.args:
                self.visit(each, conditions, state)

    def around(self, node: Node, conditions: Conditions, places: Mapping[str, str]) -> Conditions:
        """Return the conditions that an expression's indices decide, by a state's indices."""
        found = [c for c in conditions if c.free <= node.free and not c.height]
        found = [c for c in found if not any(True for _ in reads_of([c], self.formula.states))]
        for new, old in places.items():
            found = [rename_index(c, old, new) for c in found] if new != old else found
        return tuple(dict.fromkeys(found))

    def canonical(self, node: Node, state: State) -> tuple[Node | None, dict[str, str]]:
        """Return an expression by indices of a state, and which of its own each of these is.

        None if it has an index of another range.
        """
        free = dict(zip(state.indices, state.extents, strict=True))
        if any(index != BATCH and steps.plain(index) != index for index in free):
            return None, {}
        places = {index: index for index in node.free if index in free}
        for own in sorted(node.free - free.keys()):
            same = [i for i, n in free.items() if n == self.ranges.size(own) and i not in places]
            if not same:
                return None, {}
            places[same[0]] = own
            node = rename_index(node, own, same[0])
        return node, places

    def parts(self) -> tuple[State, ...]:
        """Return what was found, as states without steps."""
        found: list[State] = []
        for node, contexts in self.contexts.items():
            home = self.homes[node]
            pairs = [p for p in zip(home.indices, home.extents, strict=True) if p[0] in node.free]
            name = self.named[node] = self.names.fresh(f"part{len(found) + 1}")
            indices, extents = zip(*pairs, strict=True) if pairs else ((), ())
            found.append(State(name, indices, extents, guard(node, contexts)))
        return tuple(found)

    def rewrite(self, node: Node, *, always: bool = False) -> Node:
        """Return an expression that reads the parts, perhaps only what is not 0 where it is."""

        def known(each: Node) -> Node | None:
            if not each.height or each.type != "real":
                return None
            for home in dict.fromkeys(self.homes.values()):
                own, places = self.canonical(each, home)
                if own in self.named and not (always and () not in self.contexts[own]):
                    indices = [i for i in home.indices if i in places]
                    return read(self.named[own], [at(places[i]) for i in indices])
            return None

        return reduce.rewrite_nodes([node], lambda each: each, self.ranges, known)[0]

    def rewrite_group(self, group: Group, *, always: bool) -> Group:
        """Return a group whose states read the parts."""
        states = (replace(s, node=self.rewrite(s.node, always=always)) for s in group.states)
        return replace(group, states=tuple(states))


def guard(node: Node, contexts: Sequence[Conditions]) -> Node:
    """Return an expression that is 0 where nothing needs it: there it may read what is outside."""
    if () in contexts:
        return node
    needed: Node | None = None
    for conditions in dict.fromkeys(contexts):
        both = conditions[0]
        for each in conditions[1:]:
            both = build.apply("logical_and", both, each)
        needed = both if needed is None else build.apply("logical_or", needed, both)
    assert needed
    return select([needed], node)
