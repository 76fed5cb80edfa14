"""The formula of one block of rows and columns: what it reads, and what statistics become.

Its indices begin at 0 within the block. Numbers of rows and columns are read from tensors, so that
one formula serves for all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.define.line import Line, Tensor
from pullback.define.math import build
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, affine, at, is_size
from pullback.define.math.index import size as size_of
from pullback.define.math.node import (
    ARGMAX,
    MAX,
    PLACED,
    READ,
    SUM,
    Node,
    close,
    in_order,
    number,
    place_of,
    read,
    remake,
)
from pullback.define.math.node import index as index_of
from pullback.define.math.passes import PLACED_SUM, TILE, Statistic
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes, substitute
from pullback.define.math.steps import dims_of
from pullback.define.math.tiles import Pair

# Stands for the text of a formula that nobody reads; in one, outputs may have indices of their own.
UNWRITTEN = "..."

# Below the largest number of float32. What a sum has to be multiplied by is larger only before
# there is anything in it, or if it is infinite in the end, which is then computed again.
LARGEST = 3e38

# The indices of tensors, by name.
Labels = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Window:
    """What a block reads along one dimension: from the least place to the greatest.

    Attributes:
        place: the part of the place that the block decides.
        low: what the rest is at least, from other indices.
        high: what it is at most.
    """

    place: Affine
    low: Affine
    high: Affine


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A part of a tensor, which the formula of a block takes.

    Attributes:
        name: in that formula.
        tensor: whose part it is.
        windows: for each dimension; None for all of it.
    """

    name: str
    tensor: str
    windows: tuple[Window | None, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """What is computed of one block.

    Attributes:
        formula: of the statistics that change.
        operands: what it takes.
        updates: these statistics, each with what becomes of its value: "add" or "set".
    """

    formula: Formula
    operands: tuple[Operand, ...]
    updates: tuple[tuple[Statistic, str], ...]

    @cached_property
    def products(self) -> int:
        """How many products of matrices it has."""
        return sum(node.op == SUM for node in in_order(self.formula.elements))


def tensor_of(name: str, labels: Iterable[str]) -> Tensor:
    """Return a tensor of a line with some indices."""
    return Tensor(name=name, dims=dims_of(labels))


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the formula of a block is written for.

    Attributes:
        pair: the indices of rows and columns.
        ranges: how far all indices run.
        sizes: how far those run that are no rows or columns.
        tensors: the indices of all tensors that a block may read.
        numbers: for rows and columns, the tensor of their numbers.
        running: the statistics that others exchange; none if all have their final values.
    """

    pair: Pair
    ranges: Ranges
    sizes: Mapping[str, Affine]
    tensors: Labels
    numbers: Mapping[str, str]
    running: frozenset[str]


def exchanges(own: Statistic, running: frozenset[str]) -> bool:
    """Return whether a sum so far is multiplied when other statistics change."""
    return not running.isdisjoint(own.running) and bool(own.rates)


class BlockMaker:
    """Writes the formula of a block, whose indices begin at 0."""

    def __init__(self, around: Surroundings, bodies: Mapping[str, Node]) -> None:
        self.around = around
        self.bodies = bodies
        self.operands: dict[tuple[object, ...], Operand] = {}
        self.latest: dict[Node, Node] = {}
        self.before: dict[Node, Node] = {}

    def make(self, statistics: Sequence[Statistic]) -> Block:
        """Return the block in which some statistics change."""
        elements = [self.update(own) for own in statistics]
        operands = tuple(self.operands.values())
        line = Line(
            namespace="pullback",
            name="block",
            parameters=tuple(
                tensor_of(
                    each.name,
                    (
                        label if label == BATCH else f"{each.name}_{k}"
                        for k, label in enumerate(self.around.tensors[each.tensor])
                    ),
                )
                for each in operands
            ),
            outputs=tuple(tensor_of(own.name, own.labels) for own in statistics),
            formula=UNWRITTEN,
        )
        return Block(
            formula=Formula(line=line, elements=tuple(elements), sizes=self.around.sizes),
            operands=operands,
            updates=tuple(
                (own, "add" if own.is_added and not exchanges(own, self.around.running) else "set")
                for own in statistics
            ),
        )

    def body(self, own: Statistic) -> Node:
        """Return what is reduced, with the latest statistics in it."""
        body = self.local(self.bodies[own.name])
        return self.replaced(body, self.latest) if self.latest else body

    def update(self, own: Statistic) -> Node:
        """Return what a statistic becomes, or what is added to it."""
        part = own.reduce(self.body(own), self.size, self.by_data)
        if own.op in (TILE, PLACED_SUM):
            return part
        value = self.local(own.node)
        if own.op == ARGMAX:
            return self.first_place(own, part)
        if own.op == MAX:
            part = build.apply("maximum", value, part)
        elif exchanges(own, self.around.running):
            part = build.apply("add", self.exchange(own, value), part)
        if own.name in self.around.running:
            new = (
                part
                if own.op == MAX or exchanges(own, self.around.running)
                else build.apply("add", value, part)
            )
            self.latest[value], self.before[value] = regular(own, new), regular(own, value)
        return part

    def first_place(self, own: Statistic, part: Node) -> Node:
        """Return the first place of a maximum, in whatever order blocks come.

        Args:
            own: the statistic.
            part: the place within the block.
        """
        most = close(MAX, own.index, self.size(own.index), self.body(own))
        before = self.local(read(own.greatest, map(at, own.labels), own.body.type))
        value, new = self.local(own.node), build.apply("maximum", before, most)
        numbers = index_of(self.by_data(at(own.index)))
        place = substitute(numbers, {own.index: place_of(part)}, self.around.ranges)
        is_later = build.apply("logical_and", same(before, new), build.apply("ge", place, value))
        is_less = build.apply("logical_not", same(most, new))
        return build.apply("where", build.apply("logical_or", is_less, is_later), value, place)

    def size(self, index: str) -> Affine:
        """Return how far an index runs within the block."""
        return size_of(index) if index in self.around.pair else self.around.ranges.size(index)

    def exchange(self, own: Statistic, value: Node) -> Node:
        """Return a sum so far, as it would be with the latest statistics in it."""
        rate: Node | None = None
        for each in own.rates:
            local = self.local(each)
            new, old = (self.replaced(local, others) for others in (self.latest, self.before))
            change = build.apply("sub", new, old)
            rate = change if rate is None else build.apply("add", rate, change)
        if rate is None:
            return value
        # Before anything was seen the sum is 0 as a rule, and 0 times infinity would be NaN.
        factor = build.apply("minimum", build.apply("exp", rate), number(LARGEST))
        return build.apply("mul", value, factor)

    def replaced(self, node: Node, others: Mapping[Node, Node]) -> Node:
        """Return an expression with others in place of statistics."""
        return rewrite_nodes([node], lambda part: part, self.around.ranges, others.get)[0]

    def local(self, node: Node) -> Node:
        """Return an expression whose indices begin at 0 within the block."""
        return rewrite_nodes([node], lambda part: part, self.around.ranges, self.placed)[0]

    def placed(self, node: Node) -> Node | None:
        """Return what stands for a read, an index or a condition."""
        if node.op == READ:
            return self.read(node)
        if node.op in PLACED and node.free & self.around.pair:
            return remake(node, (), self.by_data)
        return None

    def by_data(self, place: Affine) -> Affine:
        """Return a place in which the numbers of rows and columns are read."""
        others: dict[str | Node, Affine] = {
            term: place_of(self.local(term)) for term in place.nodes
        }
        for name in sorted(place.free & self.around.pair):
            whole = read(self.around.numbers[name], [at(name)], "int")
            others[name] = place_of(self.read(whole))
        return place.replaced(others)

    def read(self, node: Node) -> Node:
        """Return a read of a part of its tensor."""
        windows: list[Window | None] = []
        places: list[Affine] = []
        for place in node.places:
            if place.nodes:
                windows.append(None)
                places.append(self.by_data(place))
            elif place.free & self.around.pair:
                window, local = self.window(place)
                windows.append(window)
                places.append(local)
            else:
                windows.append(None)
                places.append(place)
        key = (node.name, *windows)
        if key not in self.operands:
            self.operands[key] = Operand(
                name=f"__o{len(self.operands)}", tensor=node.name, windows=tuple(windows)
            )
        return read(self.operands[key].name, places, node.type)

    def window(self, place: Affine) -> tuple[Window, Affine]:
        """Return what a block reads along a dimension, and the place within that."""
        decided, low, high, local = affine(place.constant, {}), Affine(), Affine(), Affine()
        for term, factor in place.terms:
            assert isinstance(term, str)
            own = Affine(0, ((term, factor),))
            if is_size(term):
                decided += own
                continue
            local += own
            in_pair = term in self.around.pair
            extent = size_of(term) if in_pair else self.around.ranges.size(term)
            reach = (extent - 1) * factor
            if factor < 0:
                local -= reach
            if in_pair:
                decided += own
            elif factor < 0:
                low += reach
            else:
                high += reach
        return Window(place=decided, low=low, high=high), local


def same(x: Node, y: Node) -> Node:
    """Return whether two values are the same, where NaN is the same as NaN."""
    equal = build.apply("eq", x, y)
    if x.type != "real":
        return equal
    both = build.apply("logical_and", build.apply("isnan", x), build.apply("isnan", y))
    return build.apply("logical_or", equal, both)


def regular(own: Statistic, value: Node) -> Node:
    """Return a statistic with something else in place of what it is before anything was seen."""
    before, other = (-math.inf, 0.0) if own.op == MAX else (0.0, 1.0)
    is_before = build.apply("eq", value, number(before))
    return build.apply("where", is_before, number(other), value)
