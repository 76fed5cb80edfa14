"""Gradients of formulas in index notation.

The gradient that arrives at a node is an expression of the node's own free indices: an operand that
lacks one of them gets the sum over it. A read `x[e]` gives `gx[k] = sum(where(e == k, grad, 0))`
over its indices, where deltas are solved, so that most gradients are gathers. Guards, deltas and
argmax are constants, so the gradient is a formula of the same language, and so is its gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pullback.define.math import reduce, vanish
from pullback.define.math.differentiate import Reverse, written_out
from pullback.define.math.index import Affine, at, split_remainders
from pullback.define.math.node import ARGMAX, MAX, Node, equal, place_of, rename_indices
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.solve import solve
from pullback.define.math.term import Combination, select, split_guard


def gradients(
    outputs: Sequence[tuple[tuple[str, ...], Node, Node]],
    wrt: Mapping[str, tuple[str, ...]],
    ranges: Ranges | None = None,
    results: Mapping[Node, Node] | None = None,
    kept: Mapping[Node, Node] | None = None,
) -> list[Node | None]:
    """Return the gradient for each tensor; None if it is zero.

    Args:
        outputs: their indices, their elements and the gradients that arrive for those.
        wrt: the tensors, with the indices that their gradients are written with.
        ranges: of the indices, where they are not the dimensions of their name.
        results: nodes whose values need not be computed, each with the read of its value.
        kept: reads that outputs have, each with what it is the value of.
    """
    ranges = ranges or Ranges()
    chain = IndexedReverse(list(wrt), ranges, results, kept)
    places = {
        name: tuple(ranges.fresh(ranges.size(index)) for index in indices)
        for name, indices in wrt.items()
    }
    totals = {name: Combination() for name in wrt}
    arriving = [
        (node, reduce.sums_over(sorted({*indices} - node.free), grad, ranges))
        for indices, node, grad in outputs
    ]
    for node, adjoint in chain.reads(arriving):
        at_place = zip(places[node.name], node.places, strict=True)
        deltas = [each for place, read in at_place for each in is_at(at(place), read, ranges)]
        placed = select(deltas, adjoint)
        totals[node.name].add(reduce.sums_over(ranges.sorted(node.free), placed, ranges))
    found = [total.total for total in totals.values()]
    return [
        None if node is None else rename_indices(node, places[name], indices)
        for node, (name, indices) in zip(found, wrt.items(), strict=True)
    ]


def is_at(place: Affine, read: Affine, ranges: Ranges) -> list[Node]:
    """Return the conditions that a read is at a place: digit by digit, where it has some.

    `2*i + k % 2` is at h where i is h//2 and k % 2 is h % 2.
    """
    for own in split_remainders(read)[1]:
        whole = ranges.divide_exactly(read, own.divisor)
        if whole is not None and whole.free:
            digit = read - whole * own.divisor
            higher = ranges.divide(place, own.divisor)
            return [
                *is_at(higher, whole, ranges),
                equal(place - higher * own.divisor - digit),
            ]
    return [equal(place - read)]


class IndexedReverse(Reverse):
    """The chain rule in which a gradient has the indices of its own node."""

    def __init__(
        self,
        wrt: Sequence[str],
        ranges: Ranges,
        results: Mapping[Node, Node] | None = None,
        kept: Mapping[Node, Node] | None = None,
    ) -> None:
        super().__init__(wrt, ranges, results, kept)
        self.ranges = ranges
        self.written = {read: node for node, read in (results or {}).items()} | dict(kept or {})
        self.parts: dict[Node, Combination] = {}

    def give(self, node: Node, grad: Node, source: Node) -> None:
        """Add a part to a node's gradient, summed over the indices that the node lacks.

        These are all such indices of `source`, even one along which the part is constant.
        """
        missing = self.ranges.sorted(source.free - node.free)
        summed = reduce.sums_over(missing, grad, self.ranges)
        self.parts.setdefault(node, Combination()).add(summed)

    def arrived(self, node: Node) -> list[Node]:
        """Return a node's gradient, one part for each set of conditions."""
        parts = self.parts[node].parts() if node in self.parts else []
        found = [select(conditions, value) for conditions, value in parts]
        # A result that a maximum only keeps from overflowing does not depend on it: no argmax.
        return [] if _is_maximum(node) and self._is_zero(found) else found

    def _is_zero(self, found: Sequence[Node]) -> bool:
        """Return whether a sum is zero, which may show only if results are written out."""
        # A result is written with what is kept, and that with others that are.
        for _ in self.written:
            found = rewrite_nodes(found, lambda node: node, self.ranges, self._written)
        return vanish.is_zero(found, self.ranges)

    def _written(self, node: Node) -> Node | None:
        """Return the expression of what a node reads; None if it reads no result."""
        return written_out(node, self.written, self.ranges)

    def pulled(self, node: Node, place: int, grad: Node) -> Node | None:
        """Return what a node's gradient gives its operand, selected as the gradient is.

        Conditions go around the product: `where(c, grad * y, 0)` and not `where(c, grad, 0) * y`,
        which is NaN where c does not hold and y overflows.
        """
        conditions, value = split_guard(grad)
        if node.op == MAX:
            here = at(self.graph.open(node)[0]) - place_of(self.find_place(node, conditions))
            return select([*conditions, equal(here)], value)
        part = super().pulled(node, place, value)
        return None if part is None else select(conditions, part)

    def find_place(self, largest: Node, conditions: Iterable[Node]) -> Node:
        """Return where a maximum is: within another one, at the other one's place.

        So both places of a window are of the window alone, and a forward may keep them.
        """
        found = reduce.argmax_of(largest)
        for condition in conditions:
            for index in found.free:
                solution = solve(condition, index)
                if solution and any(part.op == ARGMAX for part in solution.nodes):
                    found = reduce.substitute(found, {index: solution}, self.ranges)
        return found


def _is_maximum(node: Node, deep: int = 3) -> bool:
    """Return whether a node is a maximum over an index, or of one and others, or one that is safe.

    So `max(max[m](a[n, m]), s)`, and `where(t > -inf, t, 0)` of a maximum t. Only so `deep`: what
    is written of itself has as many ways down as 2 has powers.
    """
    of_some = deep > 0 and node.op in {"maximum", "minimum", "where", "clamp"}
    return node.op == MAX or (of_some and any(_is_maximum(arg, deep - 1) for arg in node.args))
