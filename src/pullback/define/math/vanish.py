"""Whether a sum is zero for all values of its tensors, which its terms alone do not show.

In `sum[t](w[t]*v[t])/sum[t](w[t])` with `w[t] = exp(s[t] - max[r](s[r]))` the maximum is there only
to keep `exp` from overflowing, and the gradient for it is zero. What arrives there is
`sum[t](w[t]*(v[t]/z - c/z**2))` with `c = sum[t](w[t]*v[t])` and `z = sum[t](w[t])`: multiplied by
`z**2` and multiplied out it is a sum of products over `t` and `u` that cancel, but for the names of
the indices. Nothing is rewritten by this: products that are multiplied out round differently.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import build
from pullback.define.math.index import Affine
from pullback.define.math.node import SUM, Node, number, rename_index
from pullback.define.math.ranges import Ranges
from pullback.define.math.term import split_sum, term_of

# The most products, and the most indices that each is summed over: beyond, nothing is known. All
# orders of those that have the same size are tried.
MOST_PRODUCTS = 32
MOST_BOUND = 6


class _TooMany(Exception):  # noqa: N818  (it is caught here)
    """A sum has too many products."""


@dataclass(frozen=True)
class Monomial:
    """`factor * sum[bound](over / under)`.

    Attributes:
        bound: the indices that are summed over, with their sizes.
        over: the factors; a condition is 1 or 0.
    """

    factor: float
    bound: tuple[tuple[str, Affine], ...]
    over: tuple[Node, ...]
    under: tuple[Node, ...] = ()


def is_zero(nodes: Sequence[Node], ranges: Ranges) -> bool:
    """Return whether a sum of some expressions is certainly zero, NaN and infinities apart."""
    try:
        found = [product for node in nodes for product in _expand(node, ranges)]
        found = list(_clear_divisors(found, ranges))
    except _TooMany:
        return False
    groups: list[tuple[Monomial, list[float]]] = []
    for product in found:
        for first, factors in groups:
            if _same(first, product):
                factors.append(product.factor)
                break
        else:
            groups.append((product, [product.factor]))
    return all(sum(factors) == 0 for _, factors in groups)


def _expand(node: Node, ranges: Ranges) -> list[Monomial]:
    """Return an expression multiplied out: what is neither a sum nor a product is one factor."""
    found: list[Monomial] = []
    for sign, addend in split_sum(node):
        term = term_of(addend)
        turned, under = _turn(term.under)
        parts = [Monomial(sign * term.factor, (), term.conditions, under)]
        for factor in (*term.over, *turned):
            parts = _times(parts, _expand_factor(factor, ranges))
        found += parts
    if len(found) > MOST_PRODUCTS:
        raise _TooMany
    return found


def _turn(divisors: Iterable[Node]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return what divisors multiply and divide by: `1/(x/y)`, as of a mean, is `y/x`."""
    over, under = list[Node](), list[Node]()
    for divisor in divisors:
        term = term_of(divisor)
        over += term.under
        under += [replace(term, under=()).node] if term.under else [divisor]
    return tuple(over), tuple(under)


def _expand_factor(node: Node, ranges: Ranges) -> list[Monomial]:
    """Return one factor multiplied out."""
    if node.type != "real":
        raise _TooMany
    if node.op == SUM:
        index, body = ranges.opened(node)
        summed = ((index, node.size),)
        return [
            Monomial(part.factor, part.bound + summed, part.over, part.under)
            for part in _expand(body, ranges)
        ]
    if node.op in ("add", "sub"):
        return _expand(node, ranges)
    return [Monomial(1.0, (), (node,))]


def _times(left: Iterable[Monomial], right: Sequence[Monomial]) -> list[Monomial]:
    found = [
        Monomial(x.factor * y.factor, x.bound + y.bound, x.over + y.over, x.under + y.under)
        for x in left
        for y in right
    ]
    if len(found) > MOST_PRODUCTS or any(len(part.bound) > MOST_BOUND for part in found):
        raise _TooMany
    return found


def _clear_divisors(products: Sequence[Monomial], ranges: Ranges) -> Iterable[Monomial]:
    """Yield products multiplied by all that any of them is divided by."""
    products = [_invert(product) for product in products]
    divisors: Counter[Node] = Counter()
    for product in products:
        divisors |= Counter(product.under)
    for product in products:
        left = [Monomial(product.factor, product.bound, product.over)]
        for divisor in (divisors - Counter(product.under)).elements():
            left = _times(left, _expand(divisor, ranges))
        if any(part.under for part in left):
            raise _TooMany
        yield from left


def _invert(product: Monomial) -> Monomial:
    """Return a product in which divisors of the sum's terms are factors, `1/x`."""
    names = {name for name, _ in product.bound}
    within = [node for node in product.under if node.free & names]
    inverse = tuple(build.apply("div", number(1.0), node) for node in within)
    outside = tuple(node for node in product.under if not node.free & names)
    return Monomial(product.factor, product.bound, product.over + inverse, outside)


def _same(x: Monomial, y: Monomial) -> bool:
    """Return whether two products differ only in their number and the names of their indices."""
    mine, others = (_by_size(product.bound) for product in (x, y))
    if Counter(size for _, size in x.bound) != Counter(size for _, size in y.bound):
        return False
    factors = _rename_bound(x.over, itertools.chain(*mine.values()))
    orders = (itertools.permutations(others[size]) for size in mine)
    return any(
        _rename_bound(y.over, itertools.chain(*order)) == factors
        for order in itertools.product(*orders)
    )


def _by_size(bound: Iterable[tuple[str, Affine]]) -> dict[Affine, list[str]]:
    found: dict[Affine, list[str]] = {}
    for name, size in bound:
        found.setdefault(size, []).append(name)
    return found


def _rename_bound(nodes: Iterable[Node], bound: Iterable[str]) -> Counter[Node]:
    """Return factors in which indices are named by their place; a condition counts once."""
    found: Counter[Node] = Counter()
    places = list(enumerate(bound))
    for node in nodes:
        named = node
        for place, index in places:
            if index in named.free:
                named = rename_index(named, index, f"%{place}")
        found[named] = 1 if named.type == "bool" else found[named] + 1
    return found
