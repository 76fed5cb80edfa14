"""A product as its parts: the conditions that select it, its number, its factors and divisors.

Conditions go outermost, so that what they leave out is 0 whatever its factors are: `0*inf` would be
NaN. A condition that multiplies, `(t <= s)*exp(x[t])`, selects too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import build
from pullback.define.math.node import Node, in_order, is_number, number

# Beyond this many parts a product or sum is one part: `t = x*x; t = t*t; ...` doubles them.
MOST = 64

Key = tuple[frozenset[Node], frozenset[tuple[Node, int]], frozenset[tuple[Node, int]]]


@dataclass(frozen=True, kw_only=True)
class Term:
    """`where(conditions, factor * over / under, 0)`."""

    conditions: tuple[Node, ...] = ()
    factor: float = 1.0
    over: tuple[Node, ...] = ()
    under: tuple[Node, ...] = ()

    @property
    def key(self) -> Key:
        """What is equal in terms that differ only in their number."""
        over, under = (Counter(part).items() for part in (self.over, self.under))
        return frozenset(self.conditions), frozenset(over), frozenset(under)

    @property
    def free(self) -> frozenset[str]:
        """The indices it depends on."""
        parts = (*self.conditions, *self.over, *self.under)
        return frozenset[str]().union(*(part.free for part in parts))

    @property
    def value(self) -> Node:
        """What is selected."""
        product = None
        for node in self.over:
            product = node if product is None else build.apply("mul", product, node)
        if product is None or product.type == "real":
            product = scale(self.factor, product)
        for node in self.under:
            product = build.apply("div", product, node)
        return product

    @property
    def node(self) -> Node:
        """The whole term."""
        return select(self.conditions, self.value)


def scale(factor: float, node: Node | None) -> Node:
    """Return a multiple, with its number in front."""
    if node is None or factor == 1:
        return node or number(factor)
    if factor == -1:
        return build.apply("neg", node)
    return build.apply("mul", number(factor), node)


def select(conditions: Iterable[Node], value: Node) -> Node:
    """Return a value where all conditions hold, and 0 elsewhere."""
    within, value = split_guard(value)
    kept = [c for c in dict.fromkeys((*conditions, *within)) if not is_number(c, 1)]
    if any(is_number(condition, 0) for condition in kept):
        return number(0.0) if value.type == "real" else number(0)
    if not kept:
        return value
    both = kept[0]
    for condition in kept[1:]:
        both = build.apply("logical_and", both, condition)
    return build.apply("where", both, value, number(0))


def split_guard(node: Node) -> tuple[tuple[Node, ...], Node]:
    """Return the conditions outermost in a node, and what they select: `select` reversed."""
    found: list[Node] = []
    while node.op == "where" and node.type != "bool":
        condition, value, other = node.args
        if is_number(other, 0):
            found += split_conjunction(condition)
            node = value
        elif is_number(value, 0):
            found += split_conjunction(negate(condition))
            node = other
        else:
            break
    return tuple(dict.fromkeys(found)), node


def split_conjunction(condition: Node) -> list[Node]:
    """Return the parts of `a and b and c`."""
    return [part for part in reversed(list(in_order([condition], _both))) if not _both(part)]


def _both(condition: Node) -> tuple[Node, ...]:
    return condition.args[::-1] if condition.op == "logical_and" else ()


def negate(condition: Node) -> Node:
    """Return the negation of a condition."""
    if condition.op == "logical_not":
        return condition.args[0]
    return build.apply("logical_not", condition)


def term_of(node: Node) -> Term:
    """Return a node's parts, with common factors cancelled."""
    term = _parts(node)
    conditions = tuple(dict.fromkeys(term.conditions))
    common = Counter(term.over) & Counter(term.under)
    if not common:
        return replace(term, conditions=conditions)
    return replace(
        term,
        conditions=conditions,
        over=_remove_common(term.over, common),
        under=_remove_common(term.under, common),
    )


def join_factors(node: Node, takes: Callable[[Node], bool]) -> Node:
    """Return a product in which those factors that a test takes are one if their indices are."""
    term = term_of(node)
    own, others = [f for f in term.over if takes(f)], [f for f in term.over if not takes(f)]
    joined = group_factors(own)
    if len(joined) == len(own) or not is_whole(node, term):
        return node
    return replace(term, over=(*joined, *others)).node


def group_factors(factors: Iterable[Node]) -> tuple[Node, ...]:
    """Return factors, multiplied together if they have the same indices: that may exist already."""
    groups: dict[frozenset[str], Node] = {}
    for factor in factors:
        before = groups.get(factor.free)
        groups[factor.free] = factor if before is None else build.apply("mul", before, factor)
    return tuple(groups.values())


def is_whole(node: Node, term: Term) -> bool:
    """Return whether nothing in a product was cancelled when it became a term."""
    parts = _parts(node)
    return (len(parts.over), len(parts.under)) == (len(term.over), len(term.under))


def _parts(node: Node) -> Term:
    """Return a product's parts, nothing cancelled."""
    known: dict[Node, Term] = {}
    for part in in_order([node], _factors):
        term = _combine(part, known)
        known[part] = term if len(term.over + term.under) <= MOST else Term(over=(part,))
    return known[node]


def _factors(node: Node) -> tuple[Node, ...]:
    """Return the operands that a product's parts are in."""
    if node.op == "where" and node.type != "bool":
        value = split_guard(node)[1]
        return () if value is node else (value,)
    return node.args if node.type == "real" and node.op in ("mul", "div", "neg") else ()


def _combine(node: Node, known: Mapping[Node, Term]) -> Term:  # noqa: PLR0911  (one a kind)
    """Return a node's parts from those of its factors."""
    inner = [known[factor] for factor in _factors(node)]
    match node.op, inner:
        case "number", _ if node.type == "real" and math.isfinite(node.number):
            return Term(factor=node.number)
        case "real", _ if node.args[0].type == "bool":
            return Term(conditions=tuple(split_conjunction(node.args[0])))
        case "where", [term]:
            return replace(term, conditions=split_guard(node)[0] + term.conditions)
        case "neg", [term]:
            return replace(term, factor=-term.factor)
        case "mul", [x, y]:
            return _product(x, y)
        case "div", [x, y]:
            return _product(x, _inverse(y) or Term(under=(node.args[1],)))
        case _:
            return Term(over=(node,))


def _product(x: Term, y: Term) -> Term:
    return Term(
        conditions=x.conditions + y.conditions,
        factor=x.factor * y.factor,
        over=x.over + y.over,
        under=x.under + y.under,
    )


def _inverse(term: Term) -> Term | None:
    # Only division by a power of two is exact; any other is kept as it is written.
    fraction, exponent = math.frexp(term.factor)
    if term.under or term.conditions or abs(fraction) != 0.5 or abs(exponent) > 1000:
        return None
    return Term(factor=1 / term.factor, under=term.over)


def _remove_common(nodes: tuple[Node, ...], common: Counter[Node]) -> tuple[Node, ...]:
    left = Counter(common)
    kept: list[Node] = []
    for node in nodes:
        if left[node]:
            left[node] -= 1
        else:
            kept.append(node)
    return tuple(kept)


def split_sum(node: Node) -> list[tuple[int, Node]]:
    """Return the addends of a sum or difference of real numbers, each with its sign."""
    found: list[tuple[int, Node]] = []
    left = [(1, node)]
    while left:
        sign, part = left.pop()
        if part.type != "real" or len(found) + len(left) > MOST:
            found.append((sign, part))
        elif part.op in ("add", "sub"):
            first, second = part.args
            left += [(sign if part.op == "add" else -sign, second), (sign, first)]
        elif part.op == "neg":
            left.append((-sign, part.args[0]))
        else:
            found.append((sign, part))
    return found


def add_parts(parts: Iterable[tuple[int, Node]]) -> Node:
    """Return a sum of parts with signs."""
    total: Node | None = None
    for sign, node in parts:
        if total is None:
            total = scale(sign, node)
        else:
            total = build.apply("add" if sign > 0 else "sub", total, node)
    assert total is not None
    return total


def multiply_parts(parts: Sequence[tuple[int, Node]]) -> Node:
    """Return the product of factors, where those with -1 are divisors."""
    over = tuple(factor for sign, factor in parts if sign > 0)
    return Term(over=over, under=tuple(factor for sign, factor in parts if sign < 0)).node


class Combination:
    """A sum of terms in which equal ones are counted and opposite ones cancel.

    So the maximum that keeps a softmax from overflowing drops out of its gradient.
    """

    # Beyond this many ways to be selected, the terms are added after all: each way is propagated
    # through the rest of the graph on its own, and their number could double at every step.
    MOST = 8

    def __init__(self) -> None:
        self.terms: dict[Key, tuple[Term, Node | None]] = {}

    def add(self, node: Node) -> None:
        """Add the terms of a node."""
        for sign, addend in split_sum(node):
            conditions, value = split_guard(addend)
            term = term_of(addend)
            term = replace(term, factor=sign * term.factor)
            before = self.terms.get(term.key)
            # As it was written, where nothing was lifted out of it or cancelled.
            whole = term.conditions == conditions and is_whole(value, term)
            written = scale(sign, value) if whole else None
            if before is None:
                self.terms[term.key] = (term, written)
            elif total := before[0].factor + term.factor:
                self.terms[term.key] = (replace(before[0], factor=total), None)
            else:
                del self.terms[term.key]

    @property
    def total(self) -> Node | None:
        """The whole sum; None if nothing is left of it."""
        parts = [select(conditions, value) for conditions, value in self.parts()]
        return _sum(parts) if parts else None

    def parts(self) -> list[tuple[tuple[Node, ...], Node]]:
        """Return the sum's parts, each with the conditions that select it."""
        groups: dict[frozenset[Node], tuple[tuple[Node, ...], list[Node]]] = {}
        for term, written in self.terms.values():
            _, values = groups.setdefault(frozenset(term.conditions), (term.conditions, []))
            values.append(written or term.value)
        found = [(conditions, _sum(values)) for conditions, values in groups.values()]
        if len(found) <= self.MOST:
            return found
        return [((), _sum([select(conditions, value) for conditions, value in found]))]


def _sum(values: list[Node]) -> Node:
    return add_parts((1, value) for value in values)
