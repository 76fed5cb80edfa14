"""How far each index runs, and what follows from it: which guards always hold."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pullback.define.math import node as graph
from pullback.define.math.index import Affine, is_fixed, is_size, never_negative, size
from pullback.define.math.node import ARGMAX, Node, number


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

    def inside(self, place: Affine, extent: Affine) -> Node:
        """Return the guard 0 <= place < extent, or True or False where that is certain."""
        bounds = self.bounds(place)
        if bounds is not None:
            least, most = bounds
            if never_negative(least) and never_negative(extent - most - 1):
                return number(True)
            if never_negative(-most - 1) or never_negative(least - extent):
                return number(False)
        return graph.inside(place, extent)

    def bounds(self, place: Affine) -> tuple[Affine, Affine] | None:
        """Return the least and the greatest value of an index; None if data decides."""
        least = most = Affine(place.constant)
        for term, factor in place.terms:
            if is_size(term) if isinstance(term, str) else is_fixed(term):
                known = Affine(0, ((term, factor),))
                least, most = least + known, most + known
                continue
            if isinstance(term, Node) and term.op != ARGMAX:
                return None
            extent = self.size(term) if isinstance(term, str) else term.size
            reach = (extent - 1) * factor
            least, most = (least, most + reach) if factor > 0 else (least + reach, most)
        return least, most
