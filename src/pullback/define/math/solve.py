"""What conditions say of an index of a sum: where it is, in which block, whether anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math.index import (
    Affine,
    at,
    divided,
    is_quotient,
    never_negative,
    split_remainders,
)
from pullback.define.math.node import EQUAL, INSIDE, PLACED, SUM, Node, in_order, quotient
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
    if solution is None:
        return _solve_block(condition, index, term)
    return None if _scatters(condition, index, term) else solution


def _solve_block(condition: Node, index: str, term: Term) -> Affine | None:
    """Return which block another index is in: i is h//2 where `0 <= h - 2*i < 2`.

    None if something else has both indices: of a window, `h - 2*i` is the place in it.
    """
    if condition.op != INSIDE or condition.size.terms:
        return None
    [place], wide = condition.places, condition.size.constant
    factor = place.factor(index)
    rest = place - at(index) * factor
    if abs(factor) != wide or index in rest.free or not rest.free:
        return None
    others = [*(c for c in term.conditions if c is not condition), *term.over, *term.under]
    places = (p for part in in_order(others) if part.op in PLACED for p in part.places)
    if any(index in own.free and not rest.free.isdisjoint(own.free) for own in places):
        return None
    return quotient(rest if factor < 0 else -rest + (wide - 1), wide)


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
    for part in filter(is_quotient, place.nodes):
        dividend, divisor = divided(part)
        if index in part.free and divisor == wide == abs(place.factor(part)):
            other = place if place.factor(part) < 0 else -place + (wide - 1)
            rest = other + Affine(0, ((part, divisor),))
            if index not in rest.free:
                return dividend - ranges.divide(rest, divisor) * divisor
    return place


def find_residue(condition: Node, index: str, ranges: Ranges) -> tuple[Affine, int, Node] | None:
    """Return where an index first is, every how many places it is again, and whether anywhere.

    Where `(k + e) % c == v`, k is (v - e) % c, c more, and so on, if v is inside c. None if a
    condition says nothing of that kind.
    """
    if condition.op != EQUAL:
        return None
    for own in split_remainders(condition.places[0])[1]:
        sign, others = own.dividend.factor(index), condition.places[0] - own.once * own.many
        more = own.dividend - at(index) * sign
        if abs(sign) != 1 or abs(own.many) != 1 or index in (more.free | others.free):
            continue
        value = others * -own.many
        first = (value - more) * sign
        is_first = sign > 0 and more == Affine()  # where the value is inside
        if not is_first and ranges.divide_exactly(first, own.divisor) != Affine():
            first -= quotient(first, own.divisor) * own.divisor
        return first, own.divisor, ranges.inside(value, Affine(own.divisor))
    return None


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
