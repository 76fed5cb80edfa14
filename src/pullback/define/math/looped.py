"""A block as products of matrices, and what one loop computes between them.

Products come first: their values, of rows and columns, lie in memory of their own. A loop over the
rows computes all the rest in one go: maxima and sums of its row, and the values that are multiplied
with a matrix afterwards, as the weights of an attention are with `v`. These last products are
added to what the earlier blocks gave, which the loop has multiplied by what it has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from pullback.define.math import build
from pullback.define.math.block import BlockMaker, Surroundings, exchanges
from pullback.define.math.index import Affine, at
from pullback.define.math.index import size as size_of
from pullback.define.math.looped_block import (
    FIRST_COLUMN,
    FIRST_ROW,
    BlockValue,
    Contraction,
    LoopedBlock,
    Placing,
    Sink,
)
from pullback.define.math.lower import product_of
from pullback.define.math.node import (
    READ,
    REDUCTIONS,
    SUM,
    Node,
    in_order,
    is_number,
    names_read,
    place_of,
    read,
)
from pullback.define.math.node import index as number_of
from pullback.define.math.passes import PLACED_SUM, TILE, Statistic, Unfit
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import Term, term_of


class LoopedMaker(BlockMaker):
    """Writes a block as products and loops. Indices of batches are in none of them.

    Attributes:
        batches: these indices.
        inner: how far indices run within a block.
    """

    def __init__(
        self,
        around: Surroundings,
        bodies: Mapping[str, Node],
        rows: str,
        batches: frozenset[str],
    ) -> None:
        super().__init__(around, bodies)
        (columns,) = around.pair - {rows}
        self.rows, self.columns, self.batches = rows, columns, batches
        self.inner = Ranges(around.sizes)
        self.products: dict[Node, Contraction] = {}
        self.weights: dict[Node, str] = {}
        self.vectors: dict[Node, str] = {}
        self.sinks: list[Sink] = []
        self.summed: list[BlockValue] = []
        self.placings: list[Placing] = []
        self.dims: dict[str, tuple[Affine, ...]] = {}
        self.of_batches: dict[str, tuple[str | None, ...]] = {}

    def looped(self, statistics: Sequence[Statistic]) -> LoopedBlock:
        """Return the block in which some statistics change.

        Raises:
            Unfit: something in it is neither a product of matrices nor computed by a loop.
        """
        values: list[BlockValue] = []
        scaled: list[BlockValue] = []
        for own in statistics:
            if own.op == PLACED_SUM:
                self.placings.append(self.placing(own))
                continue
            if self.batches - frozenset(own.labels):
                raise Unfit
            more = [i for i in own.labels if i not in self.batches | self.around.pair]
            if more:
                scaled += self.sink(own, more)
            else:
                values.append(self.value(own))
        values += [
            BlockValue(name=name, indices=(self.rows, self.columns), node=weight)
            for weight, name in self.weights.items()
        ]
        scaled = [self.hoisted(each, self.is_vector) for each in scaled]
        columns = [each for each in values if each.indices == (self.columns,)]
        rows = [self.hoisted(each, self.is_of_columns) for each in values if each not in columns]
        for node, name in self.vectors.items():
            (index,) = node.free
            vector = BlockValue(name=name, indices=(index,), node=node)
            (columns if index == self.columns else rows).append(vector)
        self.require_apart(columns, rows, scaled)
        return LoopedBlock(
            rows=self.rows,
            columns=self.columns,
            products=tuple(self.products.values()),
            of_columns=tuple(columns),
            of_rows=tuple(rows),
            scaled=tuple(scaled),
            summed=tuple(self.hoisted(each, self.is_vector) for each in self.summed),
            sinks=tuple(self.sinks),
            placings=tuple(self.placings),
            operands=tuple(self.operands.values()),
            sizes=self.around.sizes,
            dims=self.dims,
            batches=self.of_batches,
        )

    def value(self, own: Statistic) -> BlockValue:
        """Return what a statistic without another index becomes."""
        node = self.update(own)
        if own.op == SUM and not exchanges(own, self.around.running):
            node = build.apply("add", self.local(own.node), node)
        state = self.local(own.node)
        indices = tuple(i for i in own.labels if i in self.around.pair)
        if not indices or (own.op != TILE and len(indices) > 1):
            raise Unfit
        return BlockValue(name=state.name, indices=indices, node=node)

    def sink(self, own: Statistic, more: Sequence[str]) -> list[BlockValue]:
        """Add the product that changes a statistic; return what it is multiplied by before."""
        if own.op != SUM or len(more) > 1 or own.name in self.around.running:
            raise Unfit
        body, state = self.body(own), self.local(own.node)
        if not is_number(body, 0):
            self.multiply_into(own, state, body, more[0])
        if not exchanges(own, self.around.running):
            return []
        return [self.of_statistic(own, state, self.exchange(own, state))]

    def multiply_into(self, own: Statistic, state: Node, body: Node, more: str) -> None:
        """Add a product with a matrix that is added to a statistic with one more index, or a sum.

        What would be a difference of two products, as in the gradients of squared distances, is
        added up term by term: nothing cancels that does not in the line.
        """
        term = term_of(body)
        factors = [factor for factor in term.over if more in factor.free]
        others = tuple(factor for factor in term.over if more not in factor.free)
        weight = replace(term, factor=1.0, over=others)
        if not factors or more in weight.free or body.type != "real":
            raise Unfit
        name = self.tile(weight.node)
        if len(factors) > 1 or not self.is_matrix(factors[0], own.index, more):
            if term.conditions or has_any_reduction(factors):
                raise Unfit
            tile = read(name, [at(self.rows), at(self.columns)])
            part = Term(factor=term.factor, over=(tile, *factors)).node
            part = own.reduce(part, self.size, self.by_data)
            self.summed.append(self.of_statistic(own, state, build.apply("add", state, part)))
            return
        self.sinks.append(
            Sink(
                own=own,
                state=state,
                weight=name,
                factor=factors[0],
                more=more,
                scale=term.factor,
                is_guarded=bool(term.conditions),
            )
        )

    def of_statistic(self, own: Statistic, state: Node, node: Node) -> BlockValue:
        """Return what is written to a block's part of a statistic."""
        indices = tuple(index for index in own.labels if index not in self.batches)
        return BlockValue(name=state.name, indices=indices, node=node)

    def placing(self, own: Statistic) -> Placing:
        """Return what adds a tile's values to where its indices say."""
        if (
            len(own.places) != 1
            or own.type != "real"
            or {*own.over} - self.batches - self.around.pair
        ):
            raise Unfit
        label, place = own.places[0]
        if {*own.labels} - self.batches - {label}:
            raise Unfit
        term = term_of(self.body(own))
        weight = self.tile(replace(term, factor=1.0).node)
        is_affine = not place.nodes and place.free <= self.around.pair
        return Placing(
            own=own,
            weight=weight,
            place=place,
            tile=None if is_affine else self.tile(number_of(self.by_data(place))),
            scale=term.factor,
        )

    def tile(self, node: Node) -> str:
        """Return the name of a value of rows and columns."""
        name = self.weights.setdefault(node, f"__w{len(self.weights)}")
        self.dims[name] = (size_of(self.rows), size_of(self.columns))
        return name

    def is_matrix(self, node: Node, *indices: str) -> bool:
        """Return whether a node is read as a matrix of two indices."""
        is_read = node.op == READ and node.type == "real" and len(node.places) == len(indices)
        return is_read and {place.index for place in node.places} == {*indices}

    # --- vectors

    def is_vector(self, node: Node) -> bool:
        """Return whether something is computed of only rows, or only columns."""
        return node.op != READ and len(node.free) == 1 and node.free <= self.around.pair

    def is_of_columns(self, node: Node) -> bool:
        """Return whether something is computed of only columns, by a reduction over the rows."""
        return node.free == frozenset({self.columns}) and has_reduction([node], self.rows)

    def hoisted(self, each: BlockValue, takes: Callable[[Node], bool]) -> BlockValue:
        """Return a value in which some vectors are read, which a loop before it writes."""

        def replaced(node: Node) -> Node | None:
            if not takes(node):
                return None
            (index,) = node.free
            name = self.vectors.setdefault(node, f"__f{len(self.vectors)}")
            self.dims[name] = (size_of(index),)
            return read(name, [at(index)], node.type)

        (node,) = rewrite_nodes([each.node], _same, self.around.ranges, replaced)
        return replace(each, node=node)

    def require_apart(
        self,
        columns: Sequence[BlockValue],
        rows: Sequence[BlockValue],
        scaled: Sequence[BlockValue],
    ) -> None:
        """Refuse what the loops do not compute in this order, or one batch at a time."""
        written = {each.name for each in columns if each.name in self.of_batches}
        nodes = [[each.node for each in group] for group in (columns, rows, scaled)]
        summed = [each.node for each in self.summed]
        if (
            any(node.free & self.batches for node in in_order([*chain(*nodes), *summed]))
            or has_reduction(nodes[0], self.columns)
            or has_reduction(nodes[1], self.rows)
            or has_any_reduction(nodes[2])
            or not written.isdisjoint(names_read(nodes[1]))
        ):
            raise Unfit

    # --- products

    def body(self, own: Statistic) -> Node:
        """Return what is reduced; products of matrices in it are read."""
        return rewrite_nodes([super().body(own)], _same, self.around.ranges, self.product)[0]

    def product(self, node: Node) -> Node | None:
        """Return what stands for a product of matrices; None for any other node."""
        if node.op != SUM or not self.around.pair <= node.free:
            return None
        product = product_of(node)
        (bound, size), *others = product.bound
        inner = [factor for factor in product.over if bound in factor.free]
        outer = tuple(factor for factor in product.over if bound not in factor.free)
        rest = Term(
            conditions=product.conditions, factor=product.factor, over=outer, under=product.under
        )
        if others or len(inner) != 2 or bound in rest.free or node.type != "real":
            return None
        ordered = sorted(inner, key=lambda factor: self.rows not in factor.free)
        for factor, index in zip(ordered, (self.rows, self.columns), strict=True):
            if factor.op != READ or {place.index for place in factor.places} != {index, bound}:
                return None
        first, second = ordered
        key = build.apply("mul", first, second)
        if key not in self.products:
            name = f"__t{len(self.products)}"
            self.dims[name] = (size_of(self.rows), size_of(self.columns))
            self.products[key] = Contraction(
                name=name, rows=first, columns=second, bound=bound, size=size
            )
        tile = read(self.products[key].name, [at(self.rows), at(self.columns)])
        return replace(rest, over=(tile, *rest.over)).node

    # --- reads

    def by_data(self, place: Affine) -> Affine:
        """Return a place in which rows and columns are counted from where the block begins."""
        others: dict[str | Node, Affine] = {
            term: place_of(self.local(term)) for term in place.nodes
        }
        firsts = {self.rows: FIRST_ROW, self.columns: FIRST_COLUMN}
        others |= {index: at(index) + size_of(first) for index, first in firsts.items()}
        return place.replaced(others)

    def read(self, node: Node) -> Node:
        """Return a read of a part of its tensor, without batches."""
        found = super().read(node)
        operand = next(each for each in self.operands.values() if each.name == found.name)
        own = tuple(place.index if place.index in self.batches else None for place in found.places)
        if self.of_batches.setdefault(found.name, own) != own:
            raise Unfit
        kept = [k for k, index in enumerate(own) if index is None]
        labels = self.around.tensors[operand.tensor]
        self.dims[found.name] = tuple(
            self.inner.size(labels[k]) if window is None else self.length(found.places[k])
            for k in kept
            for window in [operand.windows[k]]
        )
        return read(found.name, [found.places[k] for k in kept], found.type)

    def length(self, place: Affine) -> Affine:
        """Return how many places a block reads along a dimension."""
        ends = self.inner.bounds(place)
        assert ends
        return ends[1] + 1


def _same(node: Node) -> Node:
    return node


def has_reduction(nodes: Iterable[Node], index: str) -> bool:
    """Return whether a reduction over rows, or over columns, is in some nodes."""
    return any(part.op in REDUCTIONS and part.size == size_of(index) for part in in_order(nodes))


def has_any_reduction(nodes: Iterable[Node]) -> bool:
    """Return whether a reduction is in some nodes."""
    return any(part.op in REDUCTIONS for part in in_order(nodes))
