"""Elements that a constant place of an index selects, one expression for each place.

The gradient for `x[n, k, d]`, of which `x[n, 0, d]` and `x[n, 2, d]` are read, is
`where(k == 0, ..., 0) + where(k == 2, ..., 0)`. Computed for all k, most of each addend is zeros;
by cases, each of them is computed at its place alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pullback.define.math import reduce, steps
from pullback.define.math.index import Affine, is_size
from pullback.define.math.node import EQUAL, Node, in_order, number
from pullback.define.math.ranges import Ranges

# An index that is compared with more places is no choice between a few tensors.
MOST = 16


@dataclass(frozen=True, kw_only=True)
class Cases:
    """An expression by the places of one of its indices, which no case has.

    Attributes:
        index: which index.
        at: the expression at each place that the index is compared with.
        rest: the expression at all other places.
    """

    index: str
    at: Mapping[int, Case]
    rest: Node

    @property
    def nodes(self) -> Iterator[Node]:
        """The expressions of all cases."""
        for case in self.at.values():
            yield from case.nodes if isinstance(case, Cases) else (case,)
        yield self.rest


Case = Node | Cases


def by_cases(node: Node, ranges: Ranges) -> Case:
    """Return an expression by cases, if constants say all that an index does in it."""
    for index, conditions in _find_conditions(node).items():
        none = _where(node, dict.fromkeys(conditions, False), ranges)
        if len(conditions) > MOST or index in none.free:
            continue
        found: dict[int, Case] = {}
        for place in sorted(conditions.values()):
            known = {each: own == place for each, own in conditions.items()}
            at = reduce.substitute(_where(node, known, ranges), {index: Affine(place)}, ranges)
            found[place] = by_cases(at, ranges)
        return Cases(index=index, at=found, rest=none)
    return node


def _find_conditions(node: Node) -> Mapping[str, Mapping[Node, int]]:
    """Return which conditions compare each free index with which place."""
    found: dict[str, dict[Node, int]] = {}
    for each in in_order([node]):
        if each.op != EQUAL or len(each.places[0].terms) != 1:
            continue
        ((term, factor),) = each.places[0].terms
        if isinstance(term, str) and not is_size(term) and term in node.free and abs(factor) == 1:
            found.setdefault(term, {})[each] = -each.places[0].constant * factor
    return found


def _where(node: Node, known: Mapping[Node, bool], ranges: Ranges) -> Node:
    """Return an expression in which some conditions are known."""

    def replaced(each: Node) -> Node | None:
        return number(known[each]) if each in known else None

    return reduce.rewrite_nodes([node], steps.simplified, ranges, replaced)[0]
