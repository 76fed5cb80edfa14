"""What a formula in index notation is made of that PyTorch has an operation for.

Pure recognisers on nodes: chains of sums over a product (a contraction, or a convolution where a
factor is read at `i + p`), and sums over a delta whose place is data (a scatter). Nothing is
rewritten that would lose accuracy: a product is taken as it is written and never distributed, so a
squared distance stays one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.define.formula import node as graph
from pullback.define.formula import reduce
from pullback.define.formula.index import Affine, at, is_size
from pullback.define.formula.node import (
    EQUAL,
    INSIDE,
    PLACED,
    REDUCTIONS,
    SUM,
    Node,
    in_order,
)
from pullback.define.formula.ranges import Ranges
from pullback.define.formula.term import Term, selected, term_of

# A guard 0 <= v - idx[n] + c < size becomes this many deltas at most.
MOST_DELTAS = 64

Sizes = Mapping[str, Affine]
Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Product:
    """`factor * sum[bound](where(conditions, over / under, 0))`.

    Attributes:
        bound: the indices that are summed over, with their sizes, the outermost first.
    """

    bound: tuple[tuple[str, Affine], ...]
    conditions: tuple[Node, ...] = ()
    factor: float = 1.0
    over: tuple[Node, ...] = ()
    under: tuple[Node, ...] = ()

    @property
    def free(self) -> frozenset[str]:
        """All indices in it, the bound ones among them."""
        parts = (*self.conditions, *self.over, *self.under)
        return frozenset[str]().union(*(part.free for part in parts))


def product_of(node: Node) -> Product:
    """Return a chain of sums as one sum over a product."""
    bound: list[tuple[str, Affine]] = []
    conditions: list[Node] = []
    factor = 1.0
    while True:
        bound.append((node.bound, node.size))
        term = term_of(node.args[0])
        conditions += term.conditions
        factor *= term.factor
        if term.under or [part.op for part in term.over] != [SUM]:
            break
        node = term.over[0]
    return Product(
        bound=tuple(bound),
        conditions=tuple(dict.fromkeys(conditions)),
        factor=factor,
        over=term.over,
        under=term.under,
    )


def is_contraction(product: Product) -> bool:
    """Return whether the sum may be taken factor by factor, by products of matrices.

    Not of whole numbers, of which PyTorch has no fast product. Conditions are put on one factor,
    and where that has all indices nothing is won.
    """
    if len(product.over) < 2 or any(part.type != "real" for part in product.over):
        return False
    return not (product.conditions and any(part.free >= product.free for part in product.over))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """`y[v, ..] = sum[bound](where(v == place, value, 0))`: values are added where data says.

    Attributes:
        places: for each of the output's indices that the data decides, where values go.
        bound: what is summed over.
        value: what is added; it has none of those indices.
    """

    places: tuple[tuple[str, Affine], ...]
    bound: tuple[tuple[str, Affine], ...]
    value: Node


def scatter_of(product: Product, sizes: Sizes) -> Scatter | None:
    """Return a product as a scatter; None if no condition makes it one.

    Args:
        product: a sum.
        sizes: how far its free indices run.
    """
    bound = dict(product.bound)
    ranges = Ranges({**sizes, **bound})
    places: dict[str, Affine] = {}
    left = list(product.conditions)
    body = Term(over=product.over, under=product.under).value
    for condition in product.conditions:
        found = _decided(condition, [v for v in sizes if v not in places], bound)
        if found is None:
            continue
        index, place, step = found
        if step is not None:
            bound[step[0]] = ranges.sizes[step[0]] = step[1]
        others = {index: place}
        left = [reduce.substituted(c, others, ranges) for c in left if c is not condition]
        body = reduce.substituted(body, others, ranges)
        places = {v: p.replaced({index: place}) for v, p in places.items()}
        places[index] = place
    if not places:
        return None
    value = selected(left, body)
    if value.free & places.keys() or any(p.free & places.keys() for p in places.values()):
        return None
    return Scatter(places=tuple(places.items()), bound=tuple(bound.items()), value=value)


def _decided(
    condition: Node, candidates: list[str], bound: Mapping[str, Affine]
) -> tuple[str, Affine, tuple[str, Affine] | None] | None:
    """Return an output's index, its place by data, and a new index that is in that place."""
    if condition.op not in (EQUAL, INSIDE) or not condition.places[0].nodes:
        return None
    place = condition.places[0]
    step: tuple[str, Affine] | None = None
    if condition.op == INSIDE:
        if condition.size.terms or condition.size.constant > MOST_DELTAS:
            return None
        step = (f"+{len(bound)}", condition.size)
        place = place - at(step[0])
    for index in candidates:
        solution = reduce.solved(graph.equal(place), index)
        if solution is not None:
            return index, solution, step
    return None


class Program:
    """What is known of a formula's nodes, each worked out once for all calls.

    Attributes:
        sizes: how far the outputs' indices run that are no dimensions.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = dict(sizes)
        self._identity: dict[Node, tuple[int, tuple[str, ...]]] = {}
        self._interned: dict[Key, int] = {}
        self._orders: dict[Node, tuple[Node, ...]] = {}
        self._products: dict[Node, Product] = {}
        self._scatters: dict[Key, Scatter | None] = {}

    def identity(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """Return a number that nodes share which differ in their free indices' names, and these.

        The names come in the order in which the node has them first, so the values of two nodes
        of one number are the same tensor, with these names on its dimensions.
        """
        if node not in self._identity:
            for part in in_order([node]):
                if part not in self._identity:
                    self._identity[part] = self._identified(part)
        return self._identity[node]

    def _identified(self, node: Node) -> tuple[int, tuple[str, ...]]:
        bound = node.bound if node.op in REDUCTIONS else None
        names: dict[str, int] = {}
        places = node.places if node.op in PLACED else ()
        for place in places:
            for term, _ in place.terms:
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
        return self._interned.setdefault(key, len(self._interned)), tuple(names)

    def _terms(self, place: Affine, order: Mapping[str | None, int]) -> list[object]:
        found: list[object] = []
        for term, factor in place.terms:
            if isinstance(term, Node):
                number, names = self._identity[term]
                found.append((number, *(order[name] for name in names), factor))
            else:
                found.append((term if is_size(term) else order[term], factor))
        return found

    def order(self, node: Node) -> tuple[Node, ...]:
        """Return what is computed element by element on the way to a node, operands first."""
        if node not in self._orders:
            self._orders[node] = tuple(in_order([node], elementwise))
        return self._orders[node]

    def product(self, node: Node) -> Product:
        """Return a sum as a sum over a product."""
        if node not in self._products:
            self._products[node] = product_of(node)
        return self._products[node]

    def scatter(self, node: Node, sizes: Sizes) -> Scatter | None:
        """Return a sum as a scatter; None if it is none."""
        key = (node, *sizes.items())
        if key not in self._scatters:
            self._scatters[key] = scatter_of(self.product(node), sizes)
        return self._scatters[key]


def elementwise(node: Node) -> tuple[Node, ...]:
    """Return the operands of which each element of a node takes one."""
    return () if node.op in REDUCTIONS or node.op in PLACED else node.args


def _index_in(term: str) -> tuple[str, ...]:
    return () if is_size(term) else (term,)
