"""Facts about a formula's nodes: which are equal but for indices' names, what PyTorch can do."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.define.math.index import Affine, is_size, size
from pullback.define.math.lower import (
    Bag,
    Product,
    Scatter,
    Sizes,
    Stencil,
    bag_of,
    product_of,
    scatter_of,
    stencil_of,
)
from pullback.define.math.node import INSIDE, PLACED, REDUCTIONS, Node, in_order

Key = tuple[object, ...]
# Operands that are nested deeper than this are computed one by one.
MOST_DEPTH = 100


class FormulaFacts:
    """Facts about a formula's nodes, each worked out once for all calls.

    Attributes:
        sizes: how far the outputs' indices run that are no dimensions.
        roots: the outputs.
        is_deep: whether Python's stack may be too small to go from operand to operand.
    """

    def __init__(self, sizes: Sizes, roots: Sequence[Node]) -> None:
        self.sizes = dict(sizes)
        self._identity: dict[Node, tuple[int, tuple[str, ...]]] = {}
        self._interned: dict[Key, int] = {}
        # Not the table's length: two threads could take the same number for two nodes.
        self._fresh = itertools.count()
        self._products: dict[Node, Product] = {}
        self._ranges: dict[Affine, Affine] = {}
        self._stencils: dict[Node, Stencil | None] = {}
        self._bags: dict[Node, Bag | None] = {}
        self._scatters: dict[Key, Scatter | None] = {}
        depths: dict[Node, int] = {}
        for part in in_order(roots):
            depths[part] = 1 + max((depths[arg] for arg in part.args), default=0)
        self.is_deep = max(depths.values(), default=0) > MOST_DEPTH
        # Nodes with the same number are computed once, so they use their operands once.
        edges = {
            (self.identity(arg)[0], self.identity(part)[0], place)
            for part in in_order(roots)
            for place, arg in enumerate(part.args)
        }
        self._uses = Counter(self.identity(root)[0] for root in roots)
        self._uses.update(used for used, _, _ in edges)

    def size(self, index: str) -> Affine:
        """Return how far an index of an output runs."""
        return self.range(self.sizes.get(index) or size(index))

    def range(self, size: Affine) -> Affine:
        """Return the one object that stands for a size, so that equal sizes compare quickly."""
        return self._ranges.setdefault(size, size)

    def identity(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """Return a number shared by nodes that are equal but for indices' names, and these names.

        The names come in the order in which they appear in the node, so two nodes with the same
        number have the same tensor as their value, with these names on its dimensions.
        """
        if node not in self._identity:
            for part in in_order([node]):
                if part not in self._identity:
                    self._identity[part] = self._identify(part)
        return self._identity[node]

    def _identify(self, node: Node) -> tuple[int, tuple[str, ...]]:
        bound = node.bound if node.op in REDUCTIONS else None
        names: dict[str, int] = {}
        places = node.places if node.op in PLACED else ()
        for place in places:
            for term, _ in self._in_order(place):
                own = self._identity[term][1] if isinstance(term, Node) else _index_in(term)
                for name in own:
                    names.setdefault(name, len(names))
        for arg in node.args if not places else ():
            for name in self._identity[arg][1]:
                if name != bound:
                    names.setdefault(name, len(names))
        order = {**names, bound: -1}
        if places:
            own_data = (
                node.name if node.op == "read" else node.size if node.op == INSIDE else None,
                *((place.constant, *self._terms(place, order)) for place in places),
            )
            key: Key = (node.op, own_data)
        else:
            data = (None, node.size) if bound else repr(node.data)
            args = (
                (self._identity[arg][0], *(order[name] for name in self._identity[arg][1]))
                for arg in node.args
            )
            key = (node.op, node.type, data, *args)
        return self._interned.setdefault(key, next(self._fresh)), tuple(names)

    def _in_order(self, place: Affine) -> list[tuple[str | Node, int]]:
        """Return the terms of a place in an order that does not depend on indices' names."""

        def rank(item: tuple[str | Node, int]) -> tuple[int, int]:
            term, factor = item
            if isinstance(term, Node):
                return 2, self._identity[term][0]
            return (1, 0) if is_size(term) else (0, factor)

        return sorted(place.terms, key=rank)

    def _terms(self, place: Affine, order: Mapping[str | None, int]) -> list[object]:
        found: list[object] = []
        for term, factor in self._in_order(place):
            if isinstance(term, Node):
                number, names = self._identity[term]
                found.append((number, *(order[name] for name in names), factor))
            else:
                found.append((term if is_size(term) else order[term], factor))
        return found

    def is_for_one(self, node: Node) -> bool:
        """Return whether a value is used at most once."""
        return self._uses[self.identity(node)[0]] == 1

    def product(self, node: Node) -> Product:
        """Return a sum as a sum over a product."""
        if node not in self._products:
            found = product_of(node)
            bound = tuple((index, self.range(own)) for index, own in found.bound)
            self._products[node] = replace(found, bound=bound)
        return self._products[node]

    def stencil(self, node: Node) -> Stencil | None:
        """Return a sum as a convolution; None if it is not one."""
        if node not in self._stencils:
            self._stencils[node] = stencil_of(self.product(node))
        return self._stencils[node]

    def bag(self, node: Node) -> Bag | None:
        """Return a sum as one over rows that data picks; None if it is not one."""
        if node not in self._bags:
            self._bags[node] = bag_of(self.product(node))
        return self._bags[node]

    def scatter(self, node: Node, sizes: Sizes) -> Scatter | None:
        """Return a sum as a scatter; None if it is not one."""
        key = (node, *sizes.items())
        if key not in self._scatters:
            self._scatters[key] = scatter_of(self.product(node), sizes)
        return self._scatters[key]


def elementwise(node: Node) -> tuple[Node, ...]:
    """Return the operands that a node uses element by element."""
    return () if node.op in REDUCTIONS or node.op in PLACED else node.args


def _index_in(term: str) -> tuple[str, ...]:
    return () if is_size(term) else (term,)
