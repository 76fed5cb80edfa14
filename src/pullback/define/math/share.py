"""What one of several processes computes of its part of a dimension: its statistics, and places.

Places are counted through all processes, from the number of a process's first element, so that
masks and sizes mean what they say. A place that data gives is in one process; in the others 0 is
read, so that what is read is the sum over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pullback.define.math import build, node
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, at, size_of
from pullback.define.math.index import size as extent_of
from pullback.define.math.node import (
    INSIDE,
    PLACED,
    READ,
    SUM,
    Node,
    close,
    number,
    place_of,
    read,
    remake,
    rename_index,
)
from pullback.define.math.passes import Maker, Unfit
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.split import SplitFollower, is_own, is_picked
from pullback.define.math.term import term_of
from pullback.define.math.tiles import Indices, Pair, open_chain


@dataclass(frozen=True, kw_only=True)
class Split:
    """One dimension of an operator that is split.

    Attributes:
        indexed: the operator.
        dims: the dimension, and the indices that always have its size.
        absent: the tensors that are None.
        first: the number of a process's first element.
        every: how many there are in all.
    """

    indexed: Formula
    dims: tuple[str, ...]
    absent: frozenset[str]
    first: Node
    every: Node

    def follower(self, formula: Formula) -> SplitFollower:
        """Return what follows one of its formulas."""
        return SplitFollower(formula, dims=self.dims, first=self.first)


class Parts(Maker):
    """Finds the statistics of a part, with places counted through all processes."""

    def __init__(self, indices: Indices, split: Split, *, completes: bool) -> None:
        """Begin.

        Args:
            indices: of the formula.
            split: the dimension.
            completes: whether what data says where to read becomes a statistic, too.
        """
        super().__init__(indices, ())
        self.own = split
        self.completes = completes
        self.extent = extent_of(split.dims[0])
        self.first, self.every = (Affine(0, ((n, 1),)) for n in (split.first, split.every))
        self.labels = {tensor.name: tensor.labels for tensor in split.indexed.line.tensors}
        self.has_picks = False

    @property
    def split(self) -> set[str]:
        """The indices that run over a part."""
        return {i for i, extent in self.indices.ranges.items() if extent == self.extent}

    def output(self, node: Node, labels: tuple[str, ...]) -> Node:
        """Return an output's element, with statistics as reads."""
        del labels
        return self.completed(self.rewritten(node))

    def completed(self, root: Node) -> Node:
        """Return an expression in which what one process reads is a statistic."""
        if not self.completes:
            return root

        def known(part: Node) -> Node | None:
            if not self.is_picked(part):
                return None
            labels = self.order(part.free, frozenset(), part)
            return self.add(SUM, "", frozenset(), part, labels, ())

        return rewrite_nodes([root], lambda part: part, self.ranges, known)[0]

    def is_picked(self, part: Node) -> bool:
        """Return whether a value is linear in what one process reads."""
        if is_picked(part, self.own.first, self.extent):
            return True
        if part.op != SUM:
            return False
        body = part.args[0]
        guards = (is_own(c, self.own.first, self.extent) for c in term_of(body).conditions)
        return self.is_picked(body) or any(guards)

    def replaced(self, node: Node) -> Node | None:
        """Return what stands for a reduction or a place."""
        return self.counted(node) if node.op in PLACED else super().replaced(node)

    def reduced(self, node: Node) -> Node:
        """Return the read of a reduction's value, or the reduction with such reads in it.

        Of several sums that over the part is the last: what is merged lacks the others' indices.
        """
        if node.op != SUM or node.type != "real":
            return super().reduced(node)
        bound, term = open_chain(node)
        own = [index for index, extent in bound.items() if extent == self.extent]
        if len(own) != 1 or own[0] == node.bound:
            return super().reduced(node)
        value, names = term.node, dict[str, Affine]()
        for index in (*own, *(index for index in bound if index not in own)):
            name = self.indices.of(bound[index], {*node.free, *names})
            value, names[name] = rename_index(value, index, name), bound[index]
        for name, extent in reversed(names.items()):
            value = close(SUM, name, extent, value)
        return super().reduced(value)

    def pair_of(self, index: str, node: Node, body: Node) -> Pair | None:
        """Return the index of a reduction over the part."""
        del body
        is_own = index in self.split and not node.free & self.split
        return frozenset((index,)) if is_own else None

    def order(self, free: Iterable[str], pair: Pair, body: Node) -> tuple[str, ...]:
        """Return a statistic's indices."""
        del pair, body
        return tuple(sorted(free, key=lambda index: (index != BATCH, index)))

    def counted(self, part: Node) -> Node | None:
        """Return a read, an index or a condition whose places are counted through all processes."""
        others: dict[str | Node, Affine] = {
            term: place_of(self.rewritten(term)) for place in part.places for term in place.nodes
        }
        others |= {index: at(index) + self.first for index in self.split}
        others[size_of(self.own.dims[0])] = self.every
        if part.op == INSIDE:
            return inside(part.places[0].replaced(others), part.size.replaced(others))
        if part.op != READ:
            return remake(part, (), lambda place: place.replaced(others))
        return self.counted_read(part, others)

    def counted_read(self, part: Node, others: Mapping[str | Node, Affine]) -> Node:
        """Return a read; one at a place that data gives is 0 in all processes but one."""
        labels = self.labels[part.name]
        places: list[Affine] = []
        guards: list[Node] = []
        for label, place in zip(labels, part.places, strict=True):
            whole = place.replaced(others)
            if label.rstrip("'") not in self.own.dims:
                places.append(whole)
            elif place.index in self.split:
                places.append(place)
            else:
                if part.type != "real" or place.free & self.split:
                    raise Unfit
                places.append(whole - self.first)
                guards.append(inside(places[-1], self.extent))
        value = read(part.name, places, part.type)
        if not guards:
            return value
        if len(guards) > 1:
            raise Unfit
        self.has_picks = True
        return build.apply("where", guards[0], value, number(0.0))


def inside(place: Affine, size: Affine) -> Node:
    """Return the condition 0 <= place < size, where the size may be a scalar."""
    if not size.nodes:
        return node.inside(place, size)
    over = build.apply("le", number(0), node.index(place))
    return build.apply("logical_and", over, build.apply("lt", node.index(place), node.index(size)))
