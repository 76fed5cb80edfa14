"""Expressions taken out of a formula, to be computed before its steps or with them.

An expression that is needed in several places, by other names of its indices, is computed once, and
only where some of them need it: elsewhere it may read what is outside of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pullback.define.math import build, reduce, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, at
from pullback.define.math.node import REDUCTIONS, Node, read, rename_index
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import State, reads_of
from pullback.define.math.term import negate, select, split_conjunction

Conditions = tuple[Node, ...]


@dataclass
class Search:
    """Expressions of a formula that are computed elsewhere.

    Attributes:
        formula: of which.
        contexts: of each expression, by a state's indices, the conditions under which it is needed.
        homes: of each of these, that state.
        named: what each is called.
        depth: how many sums the expression that is visited is in.
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
        self.seen: set[tuple[Node, Conditions, int]] = set()
        self.depth = 0

    def takes(self, node: Node, state: State) -> bool:
        """Return whether an expression may be one of them, if a state's indices are its own."""
        raise NotImplementedError

    def fits(self, node: Node, state: State) -> bool:
        """Return whether an expression is one of them, by a state's indices."""
        return True

    def visit(self, node: Node, conditions: Conditions, state: State) -> None:
        """Look for expressions in one that is needed under some conditions."""
        if (node, conditions, self.depth) in self.seen:
            return
        self.seen.add((node, conditions, self.depth))
        if self.takes(node, state):
            own, places = self.canonical(node, state)
            if own is not None and self.fits(own, state):
                self.homes.setdefault(own, state)
                self.contexts.setdefault(own, []).append(self.around(node, conditions, places))
                return
        if node.op in REDUCTIONS:
            self.depth += 1
            self.visit(self.ranges.opened(node, alone=False)[1], conditions, state)
            self.depth -= 1
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
            name = self.named[node] = self.names.fresh(f"part{len(self.named) + 1}")
            indices, extents = zip(*pairs, strict=True) if pairs else ((), ())
            found.append(State(name, indices, extents, guard(node, contexts)))
        return tuple(found)

    def rewrite(self, node: Node, *, always: bool = False) -> Node:
        """Return an expression that reads the parts, perhaps only what is not 0 where it is."""

        def known(each: Node) -> Node | None:
            for home in dict.fromkeys(self.homes.values()):
                if not self.takes(each, home):
                    continue
                own, places = self.canonical(each, home)
                if own in self.named and not (always and () not in self.contexts[own]):
                    indices = [i for i in home.indices if i in places]
                    return read(self.named[own], [at(places[i]) for i in indices])
            return None

        return reduce.rewrite_nodes([node], lambda each: each, self.ranges, known)[0]


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
