"""How far each index runs, and what follows from it: which guards always hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pullback.define.math import node as graph
from pullback.define.math.index import (
    Affine,
    Remainder,
    divided,
    is_fixed,
    is_quotient,
    is_size,
    never_negative,
    size,
    size_of,
    split_remainders,
    undivide_range,
)
from pullback.define.math.node import ARGMAX, Node, number, place_of, quotient

# Comparisons that say which number is less.
LESS = ("lt", "le", "gt", "ge")


class Ranges:
    """The ranges of one formula's indices: an index runs over the dimension of its name.

    Attributes:
        sizes: the ranges of the other indices; `fresh` adds to them.
    """

    def __init__(self, sizes: Mapping[str, Affine] | None = None) -> None:
        self.sizes = dict(sizes or {})
        self.order: dict[str, int] = {}
        self._opened: dict[tuple[str, Affine], list[str]] = {}
        # Bodies that are asked for again, as long as there is the reduction.
        self._bodies = WeakKeyDictionary[Node, tuple[str, Node]]()

    def size(self, index: str) -> Affine:
        """Return how far an index runs."""
        return self.sizes.get(index) or size(index)

    def follow(self, extent: Affine) -> Affine:
        """Return a size by those that it follows from: of the gradient that arrives, of inputs'."""
        return extent.replaced({size_of(index): own for index, own in self.sizes.items()})

    def fresh(self, extent: Affine) -> str:
        """Return a new index."""
        name = f"~{len(self.order)}"
        self.order[name] = len(self.order)
        self.sizes[name] = extent
        return name

    def sorted(self, indices: frozenset[str]) -> list[str]:
        """Return indices in the order in which they are summed over: those of outputs first."""
        return sorted(indices, key=lambda index: (self.order.get(index, -1), index))

    def opened(self, reduction: Node, *, alone: bool = True) -> tuple[str, Node]:
        """Return a reduction's body and the index that it is bound to in it.

        Args:
            reduction: a sum, a max or an argmax.
            alone: give it an index of its own, which substitution needs. Otherwise all reductions
                of this range and nesting have the same one, and what they share stays shared;
                but for one that has that index already, in the body of another: it has the next.
        """
        if not alone and reduction in self._bodies:
            return self._bodies[reduction]
        known = [] if alone else self._opened.setdefault((reduction.bound, reduction.size), [])
        name = next((name for name in known if name not in reduction.free), None)
        if name is None:
            name = self.fresh(reduction.size)
            known.append(name)
        found = name, graph.rename_index(reduction.args[0], reduction.bound, name)
        if not alone:
            self._bodies[reduction] = found
        return found

    def inside(self, place: Affine, extent: Affine, *, is_loop: bool = False) -> Node:
        """Return the guard 0 <= place < extent, or True or False where that is certain.

        Args:
            place: of a tensor's dimension.
            extent: of the dimension.
            is_loop: whether all tensors have elements: there is no loop for others.
        """
        bounds = self.bounds(place)
        if place.nodes and bounds is not None:
            # As the node has it: what is certain of one spelling is so of the other.
            place, extent = undivide_range(place, extent)
            bounds = self.bounds(place)
        if bounds is not None:
            least, most = bounds
            # An index has values in what has elements alone; without one, the first element and the
            # last one may be none.
            is_always = never_negative if is_loop or place.free else _never_negative_if_empty
            if is_always(least) and is_always(extent - most - 1):
                return number(True)
            if never_negative(-most - 1) or never_negative(least - extent):
                return number(False)
        # `0 <= 4*k + p < 4*n` is `0 <= k < n` where p < 4.
        common = math.gcd(extent.constant, *(factor for _, factor in extent.terms))
        if common > 1 and (whole := self.divide_exactly(place, common)) is not None:
            least = divmod(extent, common)[0]
            return graph.equal(whole) if least == Affine(1) else self.inside(whole, least)
        return graph.inside(place, extent)

    def decided(self, op: str, *args: Node) -> Node | None:
        """Return True or False for a comparison of indices that is certain; None for any other."""
        if op not in LESS or any(arg.type != "int" for arg in args):
            return None
        one, other = map(place_of, args if op in ("lt", "le") else args[::-1])
        bounds = self.bounds(other - one)
        if bounds is None:
            return None
        least = int(op in ("lt", "gt"))
        if never_negative(bounds[0] - least):
            return number(True)
        return number(False) if never_negative(-bounds[1] + (least - 1)) else None

    def bounds(self, place: Affine) -> tuple[Affine, Affine] | None:
        """Return the least and the greatest value of an index; None if data decides."""
        remainders = list[Remainder]()
        if place.nodes:
            place, remainders = split_remainders(place)
        least = most = Affine(place.constant)
        for term, factor in place.terms:
            ends = self._ends(term)
            if ends is None:
                return None
            low, high = (end * factor for end in (ends if factor > 0 else ends[::-1]))
            least, most = least + low, most + high
        for own in remainders:
            reach = own.many * (own.divisor - 1)
            least, most = least + min(reach, 0), most + max(reach, 0)
        return least, most

    def _ends(self, term: str | Node) -> tuple[Affine, Affine] | None:
        """Return the least and the greatest value of a part of an index; None if data decides."""
        if is_size(term) if isinstance(term, str) else is_fixed(term):
            known = Affine(0, ((term, 1),))
            return known, known
        if isinstance(term, str) or term.op == ARGMAX:
            extent = self.size(term) if isinstance(term, str) else term.size
            return Affine(0), extent - 1
        if not is_quotient(term):
            return None
        dividend, divisor = divided(term)
        ends = self.bounds(dividend)
        return ends and (quotient(ends[0], divisor), quotient(ends[1], divisor))

    def divide(self, place: Affine, divisor: int) -> Affine:
        """Return an index divided by a number, rounded down: `(2*i + p)//2` is i where p < 2."""
        if (found := self.divide_exactly(place, divisor)) is not None:
            return found
        whole, left = divmod(place, divisor)
        for term in left.nodes:
            if is_quotient(term) and left.factor(term) == 1:
                # (e//a + r)//b is (e + a*r)//(a*b).
                inner, by = divided(term)
                rest = left - Affine(0, ((term, 1),))
                return whole + self.divide(inner + rest * by, by * divisor)
        return quotient(place, divisor)

    def divide_exactly(self, place: Affine, divisor: int) -> Affine | None:
        """Return an index divided by a number where that is a sum of indices; None if it is not."""
        place, remainders = split_remainders(place) if place.nodes else (place, [])
        whole, left = divmod(place, divisor)
        for own in remainders:
            if own.many % divisor:
                left += own.once * own.many
            else:
                whole += own.once * (own.many // divisor)
        ends = self.bounds(left)
        is_less = ends and never_negative(ends[0]) and never_negative(-ends[1] + (divisor - 1))
        return whole if is_less else None


def _never_negative_if_empty(sizes: Affine) -> bool:
    """Return whether a sum of sizes cannot be negative, each of which may be 0."""
    ends: dict[str | Node, Affine] = {term: Affine(-1, ((term, 1),)) for term, _ in sizes.terms}
    return not sizes.nodes and never_negative(sizes.replaced(ends))
