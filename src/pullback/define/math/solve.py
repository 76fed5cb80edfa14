"""What conditions say of an index of a sum: where it is, in which block, whether anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math.index import Affine, at, divided, is_quotient, never_negative
from pullback.define.math.node import EQUAL, INSIDE, SUM, Node, in_order
from pullback.define.math.ranges import Ranges
from pullback.define.math.term import Term, term_of


def solve(condition: Node, index: str) -> Affine | None:
    """Return what an index is where a delta holds; None if the delta does not say."""
    if condition.op != EQUAL:
        return None
    place = condition.places[0]
    factor = place.factor(index)
    if abs(factor) != 1 or any(index in part.free for part in place.nodes):
        return None
    return (place - at(index) * factor) * -factor


def solve_for(condition: Node, index: str, term: Term) -> Affine | None:
    """Return what an index is where a delta holds; None if it does not say, or is left as it is."""
    solution = solve(condition, index)
    return None if solution is None or _scatters(condition, index, term) else solution


def _scatters(delta: Node, index: str, term: Term) -> bool:
    """Return whether a delta says where values go that come from a product of matrices.

    `sum[n, m](where(c == n - m, f(s[n, m]), 0))` adds up diagonals. Solved for n it would be of
    c and m, and so would be all that is reduced for each n: no product of matrices is left of that.
    It is solved all the same where values are nothing but a product with one sum, as of a
    convolution, or have more indices than what is computed, as with a row of `q`.
    """
    value, bound = replace(term, conditions=()), set[str]()
    while not value.under and [factor.op for factor in value.over] == [SUM]:
        (inner,) = value.over
        bound.add(inner.bound)
        value = replace(term_of(inner.args[0]), conditions=())
    wide = value.free - bound
    decided = {i for i in delta.places[0].free - wide if solve(delta, i) is not None}
    others = delta.places[0].free - decided - {index}
    if not decided or not others:
        return False
    factors = [factor for factor in (*value.over, *value.under) if factor.height]
    if len(factors) == 1 and factors[0].op == SUM:
        return False
    return any(
        _is_product(part, index, others)
        for factor in factors
        if factor.free >= wide
        for part in in_order([factor])
        if part.op == SUM
    )


def _is_product(reduction: Node, index: str, others: set[str] | frozenset[str]) -> bool:
    """Return whether a sum is of a factor with an index times one with another of some indices."""
    factors = [factor.free for factor in term_of(reduction.args[0]).over]
    first = [free for free in factors if index in free]
    second = [free for free in factors if others & free]
    return bool(first and second) and not any(others & free for free in first)


def find_block_place(condition: Node, index: str, ranges: Ranges) -> Affine:
    """Return what a condition asks to be inside its size, with an index in no quotient if it may.

    Both of `0 <= k - 4*(i//4) < 4` and `0 <= i - 4*(k//4) < 4` say that i and k are in one block.
    """
    [place], wide = condition.places, condition.size.constant
    for quotient in filter(is_quotient, place.nodes):
        dividend, divisor = divided(quotient)
        if index in quotient.free and divisor == wide == abs(place.factor(quotient)):
            other = place if place.factor(quotient) < 0 else -place + (wide - 1)
            rest = other + Affine(0, ((quotient, divisor),))
            if index not in rest.free:
                return dividend - ranges.divide(rest, divisor) * divisor
    return place


def selects_something(conditions: Sequence[Node], index: str, ranges: Ranges) -> bool:
    """Return whether conditions certainly hold for a value of an index: of one that is inside."""
    [condition, *others] = conditions
    if others or condition.op != INSIDE:
        return False
    [place], extent = condition.places, ranges.size(index)
    rest = place - at(index)
    bounds = ranges.bounds(rest) if index not in rest.free else None
    if bounds is None:
        return False
    least, most = bounds
    return never_negative(least + extent - 1) and never_negative(condition.size - 1 - most)
