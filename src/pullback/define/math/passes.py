"""Reductions over a long index, in passes over blocks of rows and columns.

`sum[m](exp(s[n, m] - max[r](s[n, r]))*v[m, e])` needs `s` as a matrix if each part is computed as a
whole. Here every reduction whose body is such a *tile* becomes a `Statistic`: a tensor without the
long index, which is brought up to date block by block. Nothing is recognised by its name:

1. Every range has one index wherever it is reduced over. So what is equal is one node, and the
   scores in the maximum and in the sum are computed once.
2. A statistic shares a pass with another one in its body if its value so far can be *exchanged* for
   the value that it has with a newer one: a sum of `exp(s - d)*v` is multiplied by
   `exp(-new d + old d)`, since multiplication by what lacks the index goes through the sum.
   What else needs a complete value comes a pass later.
3. Factors without the index are pulled out of a sum, and addends out of a maximum: `p/z` is divided
   once a row, when the pass is over.
4. A place of a maximum comes with the maximum: a block that has a greater one gives both.

A sum of squares about a mean takes two passes: it is not written as a difference of two sums, as
that loses digits (the decision about distances).

Sources: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (2018); T. Dao et
al., "FlashAttention" (2022); for any reductions Y. Zhao et al., "Neptune" (2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.define.math.exchange import find_rates, may_exchange
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.index import size as size_of
from pullback.define.math.node import (
    ARGMAX,
    MAX,
    READ,
    REDUCTIONS,
    SUM,
    Node,
    Type,
    close,
    equal,
    names_read,
    read,
    rename_index,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import add_parts, multiply_parts, select, split_sum, term_of
from pullback.define.math.tiles import (
    Indices,
    Pair,
    computed_parts,
    open_outputs,
    open_placed,
    products_in,
)

# A statistic that is no reduction: a tile that is an output itself.
TILE = "tile"
# A sum over tiles whose values go where the indices say, as diagonals are summed: of a bias
# `b[n - m]` the gradient. Its own index is not one of the tile.
PLACED_SUM = "placed sum"
# The name of an index while two change places.
TURNED = "~turned"


class Unfit(Exception):  # noqa: N818  (such a formula is computed as a whole)
    """What is not computed by blocks."""


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One value that is brought up to date by every block.

    Attributes:
        name: of the tensor that holds it.
        op: "sum", "max", "argmax", "tile" for one that is written block by block, or "placed sum".
        index: what is reduced over; "" for a tile, and a placed sum, which has several.
        pair: the two indices of its tiles.
        labels: its own indices.
        body: what is reduced; statistics in it are read by their names.
        level: its pass, from 0.
        running: the statistics in its body that the same pass computes.
        rates: what goes with them: `exp(rate)` is a factor of what is summed so far.
        over: what a placed sum is reduced over.
        places: for some of its labels where values go; it has the indices of `over`.
        greatest: for a place, the statistic that is the value there.
    """

    name: str
    op: str
    index: str
    pair: Pair
    labels: tuple[str, ...]
    body: Node
    level: int
    running: tuple[str, ...] = ()
    rates: tuple[Node, ...] = ()
    over: tuple[str, ...] = ()
    places: tuple[tuple[str, Affine], ...] = ()
    greatest: str = ""

    @property
    def is_added(self) -> bool:
        """Whether blocks are added up, and nothing is exchanged for a newer value."""
        return self.op in (SUM, PLACED_SUM)

    @property
    def type(self) -> Type:
        """The type of its elements."""
        return "int" if self.op == ARGMAX else self.body.type

    @property
    def is_greatest(self) -> bool:
        """Whether what is less than all else adds nothing to it."""
        return self.op in (MAX, ARGMAX)

    @property
    def node(self) -> Node:
        """Its element at its own indices."""
        return read(self.name, map(at, self.labels), self.type)

    def reduce(
        self,
        body: Node,
        size: Callable[[str], Affine],
        place: Callable[[Affine], Affine] = lambda place: place,
    ) -> Node:
        """Return what its body, or a part of that, is reduced to.

        Args:
            body: the tile.
            size: returns how far an index runs.
            place: returns a place within the part.
        """
        if self.places:
            body = select([equal(at(label) - place(own)) for label, own in self.places], body)
        for index in reversed(self.over or ([] if self.op == TILE else [self.index])):
            body = close(SUM if self.over else self.op, index, size(index), body)
        return body


@dataclass(frozen=True, kw_only=True)
class Passes:
    """A formula in passes.

    Attributes:
        statistics: in an order in which each comes after those in its body.
        elements: the outputs, with statistics as reads.
        labels: the indices of each output.
        ranges: how far every index runs.
    """

    statistics: tuple[Statistic, ...]
    elements: tuple[Node, ...]
    labels: tuple[tuple[str, ...], ...]
    ranges: Mapping[str, Affine]

    @property
    def count(self) -> int:
        """How many passes there are."""
        return 1 + max((own.level for own in self.statistics), default=-1)

    def needed(self, wanted: Sequence[bool]) -> list[Statistic]:
        """Return the statistics that some outputs need."""
        roots = [e for e, asked in zip(self.elements, wanted, strict=True) if asked]
        names = set(names_read(roots))
        for own in reversed(self.statistics):
            if own.name in names:
                names |= {*names_read([own.body]), own.greatest}
        return [own for own in self.statistics if own.name in names]


def make_passes(
    nodes: Sequence[Node],
    labels: Sequence[Sequence[str]],
    sizes: Mapping[str, Affine],
    pairs: Iterable[Pair],
) -> Passes:
    """Return a formula in passes over blocks.

    Args:
        nodes: the elements of its outputs.
        labels: the indices of each.
        sizes: how far the indices run that are no dimensions.
        pairs: the indices that blocks are taken of, named as by `find_tiles`.

    Raises:
        Unfit: a statistic of all of `...` is needed.
    """
    indices, opened, named = open_outputs(nodes, labels, sizes)
    maker = Maker(indices, tuple(pairs))
    elements = [maker.output(node, own) for node, own in zip(opened, named, strict=True)]
    return Passes(
        statistics=tuple(maker.statistics.values()),
        elements=tuple(elements),
        labels=tuple(named),
        ranges=indices.ranges,
    )


class Maker:
    """Finds statistics and their passes.

    Attributes:
        statistics: those found so far, by name.
        values: for reductions, what is read in their place.
    """

    def __init__(self, indices: Indices, pairs: Sequence[Pair]) -> None:
        self.indices = indices
        self.pairs = pairs
        self.ranges = Ranges()
        self.statistics: dict[str, Statistic] = {}
        self.values: dict[Node, Node] = {}

    def output(self, node: Node, labels: tuple[str, ...]) -> Node:
        """Return an output's element, with statistics as reads."""
        value = self.rewritten(node)
        pair = next((own for own in self.pairs if own <= value.free), None)
        if pair is None or value.op == READ:
            return value
        return self.add(TILE, "", pair, value, labels, ())

    def rewritten(self, node: Node) -> Node:
        """Return an expression with statistics as reads."""
        return rewrite_nodes([node], lambda part: part, self.ranges, self.replaced)[0]

    def replaced(self, node: Node) -> Node | None:
        """Return what stands for a reduction; None for any other node, and if none is in it."""
        if node.op not in REDUCTIONS:
            return None
        if node not in self.values:
            self.values[node] = self.reduced(node)
        return self.values[node]

    def reduced(self, node: Node) -> Node:
        """Return the read of a reduction's value, or the reduction with such reads in it."""
        if (value := self.placed(node)) is not None:
            return value
        if (node := self.indices.ordered(node, self.pairs)) in self.values:
            return self.values[node]
        index, body = self.indices.opened(node)
        rewritten = self.rewritten(body)
        pair = self.pair_of(index, node, rewritten)
        if pair is None:
            return node if rewritten is body else close(node.op, index, node.size, rewritten)
        turned = self.turned(index, pair, rewritten)
        if turned is None:
            return self.statistic(node.op, index, pair, rewritten)
        (other,) = pair - {index}
        return rename_index(self.statistic(node.op, other, pair, turned), index, other)

    def turned(self, index: str, pair: Pair, body: Node) -> Node | None:
        """Return a body with rows as columns, if others have the scores so; else None.

        Rows and columns of the same range may be both: `s[n, i]` is summed over i, and `s[i, n]`.
        """
        if len({str(self.indices.ranges.get(i)) for i in pair}) > 1 or len(pair) < 2:
            return None
        known = {node for own in self.statistics.values() for node in products_in(own.body, pair)}
        if not known or not known.isdisjoint(products_in(body, pair)):
            return None
        (other,) = pair - {index}
        for old, new in ((index, TURNED), (other, index), (TURNED, other)):
            body = rename_index(body, old, new)
        return None if known.isdisjoint(products_in(body, pair)) else body

    def statistic(self, op: str, index: str, pair: Pair, rewritten: Node) -> Node:
        """Return the read of what a body is reduced to over an index."""
        if op == ARGMAX:
            return self.place(index, pair, rewritten)
        body, pulled = self.pull(op, rewritten, index)
        labels = self.order(rewritten.free - {index}, pair, body)
        return self.add(op, index, pair, body, labels, pulled)

    def place(self, index: str, pair: Pair, body: Node) -> Node:
        """Return the read of the first place where a body is greatest.

        Nothing is pulled out of it: without the rest other places might be equal.
        """
        labels = self.order(body.free - {index}, pair, body)
        value = self.add(MAX, index, pair, body, labels, ())
        return self.add(ARGMAX, index, pair, body, labels, (), greatest=value.name)

    def placed(self, node: Node) -> Node | None:
        """Return the read of a sum whose values go where a tile's indices say; else None."""
        found = open_placed(node, self.indices)
        if found is None:
            return None
        body = self.rewritten(found.body)
        free = [part.free & found.moving for part in computed_parts(body)]
        pair = next((p for p in self.pairs if any(p <= own for own in free)), None)
        if pair is None:
            return None
        labels = self.order({found.names.get(i, i) for i in node.free}, pair, body)
        value = self.add(
            PLACED_SUM, "", pair, body, labels, (), over=found.over, places=found.places
        )
        for old, new in found.names.items():
            value = rename_index(value, new, old)
        return value

    def pair_of(self, index: str, node: Node, body: Node) -> Pair | None:
        """Return the indices of a reduction's tiles; None if it is no statistic.

        One whose value is a tile itself is a contraction, which is a part of the tile's body.
        """
        if any(pair <= node.free for pair in self.pairs):
            return None
        parts = list(computed_parts(body))
        return next(
            (p for p in self.pairs if index in p and any(p <= part.free for part in parts)), None
        )

    def order(self, free: Iterable[str], pair: Pair, body: Node) -> tuple[str, ...]:
        """Return a statistic's indices: those of all tiles first, so that these are batches."""
        outer = frozenset[str].intersection(
            *(part.free for part in computed_parts(body) if pair <= part.free)
        )
        inner = {*free} - (outer - pair)
        ranks = {index: (index != BATCH, index in inner, index not in pair) for index in free}
        order = tuple(sorted(ranks, key=lambda index: (ranks[index], index)))
        every = size_of(BATCH)
        if any(self.indices.ranges.get(index) == every for index in order):
            raise Unfit
        return order

    def add(  # noqa: PLR0913, PLR0917  (all of a statistic)
        self,
        op: str,
        index: str,
        pair: Pair,
        body: Node,
        labels: tuple[str, ...],
        pulled: Sequence[tuple[int, Node]],
        **more: Any,  # noqa: ANN401  (of a placed sum, or a place)
    ) -> Node:
        """Return the value of a statistic, which comes in the earliest pass."""
        body = self.completed(body) if index else body
        inside = [self.statistics[n] for n in names_read([body]) if n in self.statistics]
        level = 0
        for other in inside:
            same = (other.index, other.pair) == (index, pair)
            shares = (
                same and index not in other.labels and may_exchange(op, body, index, other.node)
            )
            level = max(level, other.level + (not shares))
        running = tuple(other.name for other in inside if other.level == level)
        own = Statistic(
            name=f"__s{len(self.statistics)}",
            op=op,
            index=index,
            pair=pair,
            labels=labels,
            body=body,
            level=level,
            running=running,
            rates=find_rates(body, running) if running else (),
            **more,
        )
        known = (each for each in self.statistics.values() if replace(own, name=each.name) == each)
        own = next(known, own)
        self.statistics[own.name] = own
        if op == MAX:
            return add_parts([(1, own.node), *pulled])
        return multiply_parts([(1, own.node), *pulled])

    def completed(self, root: Node) -> Node:
        """Return what a statistic is of; a process that has a part alone makes more of them."""
        return root

    def pull(self, op: str, body: Node, index: str) -> tuple[Node, list[tuple[int, Node]]]:
        """Return a body without what has statistics in it and lacks the index, and that.

        Of a maximum addends with their signs; of a sum factors, with -1 for divisors. From under a
        condition nothing is pulled out: where none is selected, it might be 0 times infinity.
        """

        def is_own(node: Node) -> bool:
            return index not in node.free and any(n in self.statistics for n in names_read([node]))

        if body.type != "real":
            return body, []
        if op == MAX:
            parts = split_sum(body)
            out = [part for part in parts if is_own(part[1])]
            kept = [part for part in parts if part not in out]
            return (add_parts(kept), out) if out and kept else (body, [])
        term = term_of(body)
        out = [(1, f) for f in term.over if is_own(f)] + [(-1, f) for f in term.under if is_own(f)]
        if op != SUM or term.conditions or not out:
            return body, []
        rest = replace(
            term,
            over=tuple(f for f in term.over if not is_own(f)),
            under=tuple(f for f in term.under if not is_own(f)),
        )
        return (rest.node, out) if index in rest.free else (body, [])
