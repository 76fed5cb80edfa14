"""Sums that multiply the same matrix as one: `c*(A @ k) + e*(B @ k)` is `(c*A + e*B) @ k`.

A loss that is normalized over rows and over columns has two such sums in each gradient. Of tiles, a
product costs far more than the factors: they are multiplied in where a tile is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce

from pullback.define.math.formula import Formula
from pullback.define.math.node import (
    REDUCTIONS,
    SUM,
    Node,
    close,
    in_order,
    names_read,
    rename_indices,
)
from pullback.define.math.term import Term, add_parts, select, split_sum, term_of
from pullback.define.math.tiles import Indices, Pair, computed_parts, find_tiles, open_outputs


@dataclass(frozen=True, kw_only=True)
class Product:
    """An addend `outside * sum[index](tile * matrix)`.

    Attributes:
        sign: of the addend.
        addend: as it is written.
        outside: what the sum is multiplied by; no reduction is in it.
        sum: the reduction.
        index: what it is over.
        tile: what is of rows and columns.
        matrix: the factors that have an index more.
    """

    sign: int
    addend: Node
    outside: Term
    sum: Node
    index: str
    tile: Term
    matrix: tuple[Node, ...]

    def key(self, known: Set[str]) -> object:
        """Return what is equal in products that are one sum, of a sum of tiles.

        A factor that may not be multiplied into a tile has to remain outside of it.
        """

        def remains(factor: Node) -> bool:
            return not (factor.free <= self.tile.free and {*names_read([factor])} <= known)

        over, under = (
            frozenset(Counter(filter(remains, part)).items())
            for part in (self.outside.over, self.outside.under)
        )
        matrix = frozenset(Counter(self.matrix).items())
        return self.index, self.sum.size, self.tile.conditions, self.tile.free, matrix, over, under


def factor_products(formula: Formula, known: Set[str]) -> Formula:
    """Return a formula in which sums of tiles that multiply the same are one sum.

    Args:
        formula: most often of gradients.
        known: the tensors that may be multiplied into a tile. Multiplied by an infinite number of a
            user, values of both signs would be NaN, and their sum is infinite.
    """
    labels = [output.labels for output in formula.line.outputs]
    indices, opened, named = open_outputs(formula.nodes, labels, formula.sizes)
    tiles = find_tiles(opened, indices)
    pairs = sorted({pair for pair, node in tiles if node.op in REDUCTIONS}, key=sorted)
    elements = list[Node]()
    for node, names, own in zip(opened, named, labels, strict=True):
        element = _factor(node, indices, pairs, known)
        elements.append(rename_indices(element, names, own))
    return replace(formula, elements=tuple(elements))


def _factor(node: Node, indices: Indices, pairs: Sequence[Pair], known: Set[str]) -> Node:
    """Return an output's element in which sums that go together are one."""
    groups: dict[object, list[Product]] = {}
    kept: list[tuple[int, Node]] = []
    for sign, addend in split_sum(node):
        if product := _read_product(sign, addend, indices, pairs):
            groups.setdefault(product.key(known), []).append(product)
        else:
            kept.append((sign, addend))
    if all(len(group) == 1 for group in groups.values()):
        return node
    return add_parts([*map(_join, groups.values()), *kept])


def _read_product(
    sign: int, addend: Node, indices: Indices, pairs: Sequence[Pair]
) -> Product | None:
    """Return an addend as a product; None if it is none."""
    outside = term_of(addend)
    sums = [factor for factor in outside.over if factor.op == SUM]
    others = tuple(factor for factor in outside.over if factor.op != SUM)
    if len(sums) != 1 or outside.conditions:
        return None
    if any(node.op in REDUCTIONS for node in in_order([*others, *outside.under])):
        return None
    index, body = indices.opened(sums[0])
    computed = [part.free for part in computed_parts(body)]
    pair = next((p for p in pairs if index in p and any(p <= free for free in computed)), None)
    if pair is None or not pair <= {index, *addend.free}:
        return None
    term = term_of(body)
    (row,) = pair - {index}
    tiled = replace(term, over=tuple(f for f in term.over if row in f.free)).free
    matrix = tuple(f for f in term.over if row not in f.free and f.free - tiled)
    # Tiles come first: so they are the same products where the other index is summed over.
    inside = sorted((f for f in term.over if f not in matrix), key=lambda f: not pair <= f.free)
    if not matrix or not inside:
        return None
    return Product(
        sign=sign,
        addend=addend,
        outside=replace(outside, over=others),
        sum=sums[0],
        index=index,
        tile=replace(term, over=tuple(inside)),
        matrix=matrix,
    )


def _join(group: Sequence[Product]) -> tuple[int, Node]:
    """Return products that go together as one, with its sign."""
    first = group[0]
    if len(group) == 1:
        return first.sign, first.addend
    over = _common(each.outside.over for each in group)
    under = _common(each.outside.under for each in group)
    tile = add_parts((each.sign, _scaled_tile(each, over, under)) for each in group)
    body = Term(over=(tile, *first.matrix)).node
    total = close(SUM, first.index, first.sum.size, select(first.tile.conditions, body))
    return 1, Term(over=(*over.elements(), total), under=tuple(under.elements())).node


def _common(factors: Iterable[tuple[Node, ...]]) -> Counter[Node]:
    """Return the factors that all have."""
    return reduce(Counter.__and__, map(Counter, factors))


def _scaled_tile(product: Product, over: Counter[Node], under: Counter[Node]) -> Node:
    """Return a tile with the factors of its sum, but for those that remain outside."""
    outside, tile = product.outside, product.tile
    return Term(
        factor=outside.factor * tile.factor,
        over=(*tile.over, *(Counter(outside.over) - over).elements()),
        under=(*tile.under, *(Counter(outside.under) - under).elements()),
    ).node
