"""Passes over blocks of rows and columns, as formulas: of vectors before, and of each block.

The formula of a block takes parts of the tensors and the statistics so far, and returns what the
statistics become. So whatever runs formulas runs it. Where conditions are known on a block they are
written in, and the formula is one without them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from pullback.define.line import Line
from pullback.define.math import build, intervals
from pullback.define.math.block import (
    UNWRITTEN,
    Block,
    BlockMaker,
    Labels,
    Surroundings,
    exchanges,
    tensor_of,
)
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, at, size
from pullback.define.math.looped import LoopedMaker
from pullback.define.math.looped_block import LoopedBlock
from pullback.define.math.node import (
    INDEX,
    NUMBER,
    PLACED,
    READ,
    REDUCTIONS,
    SCALAR,
    Node,
    close,
    in_order,
    index,
    names_read,
    number,
    read,
)
from pullback.define.math.passes import PLACED_SUM, Passes, Statistic, Unfit
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import join_factors, term_of
from pullback.define.math.tiles import Indices, computed_parts, is_outer

# Of every condition: holds everywhere, nowhere, or not known.
Truths = tuple[bool | None, ...]


class Sweep:
    """One pass over the blocks of one pair of indices.

    Attributes:
        statistics: that it computes.
        pair: the two indices; `rows` and `columns`.
        running: the names of those statistics that others exchange.
        conditions: on indices and whole numbers, which may be known on a block.
        vectors: what is computed before, each with its name: it has only rows or only columns.
    """

    def __init__(
        self,
        whole: Passes,
        statistics: Sequence[Statistic],
        tensors: Labels,
        *,
        settled: bool,
        rows: str = "",
    ) -> None:
        """Make a pass.

        Args:
            whole: the formula.
            statistics: some of one pass and pair.
            tensors: the indices of the formula's tensors.
            settled: whether all statistics that are read have their final values.
            rows: the index whose blocks are gone through outside; chosen if none is given.
        """
        self.statistics = tuple(statistics)
        self.pair = statistics[0].pair
        self.rows, self.columns = _choose_rows(statistics)
        if rows == self.columns:
            self.rows, self.columns = self.columns, self.rows
        self.settled = settled
        names = {name for own in statistics for name in own.running}
        self.running = frozenset() if settled else frozenset(names)
        self.indices = Indices(dict(whole.ranges))
        self.ranges = Ranges(self.indices.ranges)
        every = {own.name: own.labels for own in whole.statistics}
        self.whole = whole
        self.tensors = {**tensors, **every}
        self.vectors: dict[Node, str] = {}
        self.bodies = {own.name: self._with_vectors(own.body) for own in statistics}
        if any(map(self._has_total, self.bodies.values())):
            raise Unfit  # it decides where something of rows and of columns is
        self.conditions = intervals.find_conditions(list(self.bodies.values()), self.pair)
        self.data = [node for c in self.conditions for node in self._data_in(c)]
        for node in (*(index(at(name)) for name in sorted(self.pair)), *self.data):
            self._vector(node)
        self._bodies: dict[Truths, Mapping[str, Node]] = {}
        self._blocks: dict[object, Block] = {}
        self._made: dict[Block, tuple[Mapping[str, Node], list[Statistic]]] = {}
        self._looped: dict[Block, LoopedBlock | None] = {}
        # Blocks are written for calls of several threads, with the same names of indices.
        self._lock = threading.Lock()

    @cached_property
    def batches(self) -> dict[str, Affine]:
        """How far the indices run that values of a block have beside rows and columns."""
        return self._batches(lambda part: True)

    @cached_property
    def batches_in_memory(self) -> dict[str, Affine]:
        """The same where loops sum up outer functions as they compute them."""
        return self._batches(lambda part: not is_outer(part))

    def _batches(self, counts: Callable[[Node], bool]) -> dict[str, Affine]:
        found: dict[str, Affine] = {}
        sizes = {**self.whole.ranges, BATCH: size(BATCH)}
        for own in self.statistics:
            for part in computed_parts(own.body, inside=sizes):
                if self.pair <= part.free and counts(part):
                    found |= {name: sizes[name] for name in part.free - self.pair}
        return found

    @property
    def outer(self) -> dict[str, Affine]:
        """How far those of them run that all of a block has: each value of theirs is a block."""
        every = [own for own in self.statistics if own.op != PLACED_SUM]
        return {
            index: extent
            for index, extent in self.batches.items()
            if not index.startswith("#") and all(self._has_all(index, own) for own in every)
        }

    def _has_all(self, index: str, own: Statistic) -> bool:
        """Return whether a statistic has an index, and all factors of rows and columns have it."""
        factors = [f for f in term_of(own.body).over if self.pair <= f.free]
        return index in own.labels and all(index in factor.free for factor in factors)

    # --- vectors

    def _with_vectors(self, root: Node) -> Node:
        """Return a body in which what lacks rows or columns is read, not computed."""
        moved: dict[Node, Node] = {}

        def operands(node: Node) -> tuple[Node, ...]:
            if self._is_vector(node):
                moved[node] = self._vector(node)
            elif node.op in REDUCTIONS:
                moved[node] = self._reopened(node)
            elif node.op not in PLACED and not self._is_condition(node):
                return node.args
            return ()

        for _ in in_order([root], operands):
            pass
        moved = {old: new for old, new in moved.items() if old is not new}
        return (
            rewrite_nodes([root], lambda part: part, self.ranges, moved.get)[0] if moved else root
        )

    def _reopened(self, node: Node) -> Node:
        """Return a reduction whose body has vectors as reads."""
        opened, body = self.indices.opened(node)
        # Of x[n, d]*m[k, d]*a[k, d] the last two are one vector: that is a product of matrices.
        joined = join_factors(body, lambda factor: len(factor.free & self.pair) == 1)
        changed = self._with_vectors(joined)
        return node if changed is body else close(node.op, opened, node.size, changed)

    def _is_condition(self, node: Node) -> bool:
        found = intervals.find_conditions([node], self.pair)
        return bool(found) and node.type == "bool" and not self._has_total(node)

    def _has_total(self, root: Node) -> bool:
        """Return whether a value needs all rows or all columns: a block has only its own."""
        extents = [self.whole.ranges[index] for index in self.pair]
        return any(
            node.op in REDUCTIONS and node.size in extents and not node.free & self.pair
            for node in in_order([root])
        )

    def _is_vector(self, node: Node) -> bool:
        """Return whether a value is computed before: it has only rows or only columns.

        Or it is made of a total of all of them, perhaps the place of a maximum.
        """
        is_of_all = not node.free & self.pair and self._has_total(node)
        if not (is_of_all or len(node.free & self.pair) == 1) or node.op in (NUMBER, SCALAR):
            return False
        if any(map(self.indices.is_of_batch, node.free - {BATCH})):
            return False  # it has the index of a sum over the batch
        if node.op == READ:
            return is_of_all or any(place.nodes for place in node.places)
        if self._is_condition(node) or any(name.startswith("#") for name in node.free):
            return False
        return self.running.isdisjoint(names_read([node]))

    def _vector(self, node: Node) -> Node:
        """Return the read of a vector."""
        name = self.vectors.setdefault(node, f"__v{len(self.vectors)}")
        labels = self._labels(node)
        self.tensors[name] = labels
        return read(name, map(at, labels), node.type)

    def _labels(self, node: Node) -> tuple[str, ...]:
        return tuple(sorted(node.free, key=lambda i: (i != BATCH, i in self.indices.ranges, i)))

    def _data_in(self, condition: Node) -> Iterator[Node]:
        """Yield the whole numbers in a condition that data gives, of rows or of columns."""
        for node in in_order([condition], _until_data):
            is_data = node.type == "int" and node.op not in (NUMBER, INDEX)
            if is_data and len(node.free & self.pair) == 1:
                yield node

    @cached_property
    def before(self) -> Formula:
        """The vectors, for all rows or all columns."""
        line = Line(
            namespace="pullback",
            name="vectors",
            parameters=tuple(
                tensor_of(name, self.tensors[name])
                for name in names_read(self.vectors)
                if name in self.tensors
            ),
            outputs=tuple(tensor_of(n, self.tensors[n]) for n in self.vectors.values()),
            formula=UNWRITTEN,
        )
        return Formula(line=line, elements=tuple(self.vectors), sizes=self.indices.ranges)

    @cached_property
    def around(self) -> Surroundings:
        """What the formula of a block is written for."""
        return Surroundings(
            pair=self.pair,
            ranges=self.ranges,
            sizes={i: s for i, s in self.indices.ranges.items() if i not in self.pair},
            tensors=self.tensors,
            numbers={name: self.vectors[index(at(name))] for name in self.pair},
            running=self.running,
        )

    @cached_property
    def again(self) -> list[Sweep]:
        """The passes that compute what was exchanged again, from final statistics."""
        exchanged = [own for own in self.statistics if exchanges(own, self.running)]
        return [
            Sweep(
                self.whole,
                [own for own in exchanged if own.index == over],
                self.tensors,
                settled=True,
            )
            for over in dict.fromkeys(own.index for own in exchanged)
        ]

    # --- blocks

    @cached_property
    def has_loops(self) -> bool:
        """Whether any block is products of matrices and loops."""
        return self.looped_anywhere is not None

    @cached_property
    def looped_anywhere(self) -> LoopedBlock | None:
        """A block of which nothing is known, as products of matrices and loops."""
        block = self.block((None,) * len(self.conditions), lambda _: False)
        return None if block is None else self.looped(block)

    def truths(self, bounds: intervals.Bounds) -> Truths:
        """Return which conditions hold on a block."""
        return tuple(intervals.holds(condition, bounds) for condition in self.conditions)

    def block(self, truths: Truths, is_finite: Callable[[Node], bool]) -> Block | None:
        """Return what is computed of blocks on which conditions are known; None for nothing.

        Args:
            truths: of the conditions.
            is_finite: whether a value of only rows, or only columns, is finite everywhere.
        """
        with self._lock:
            bodies = self._decided(truths)

            def certain(node: Node) -> bool:
                return not self.running.isdisjoint(names_read([node])) or is_finite(node)

            left: dict[str, Statistic] = {}
            for own in self.statistics:
                neutral = "least" if own.is_greatest else "zero"
                value = intervals.certain_value(bodies[own.name], self.pair, certain)
                # What is exchanged for a newer value changes with that, though nothing is added.
                is_exchanged = exchanges(own, self.running) and not left.keys().isdisjoint(
                    own.running
                )
                if value != neutral or is_exchanged:
                    left[own.name] = own
            key = (truths, *left)
            if left and key not in self._blocks:
                made = self._blocks[key] = BlockMaker(self.around, bodies).make([*left.values()])
                self._made[made] = bodies, [*left.values()]
            return self._blocks.get(key)

    def looped(self, block: Block) -> LoopedBlock | None:
        """Return a block as products of matrices and loops; None if it is anything else."""
        with self._lock:
            if block not in self._looped:
                bodies, statistics = self._made[block]
                maker = LoopedMaker(self.around, bodies, self.rows, frozenset(self.outer))
                try:
                    self._looped[block] = maker.looped(statistics)
                except Unfit:
                    self._looped[block] = None
            return self._looped[block]

    def _decided(self, truths: Truths) -> Mapping[str, Node]:
        """Return the bodies with known conditions written in."""
        if truths not in self._bodies:
            decided = {
                condition: number(truth)
                for condition, truth in zip(self.conditions, truths, strict=True)
                if truth is not None
            }
            roots = list(self.bodies.values())
            changed = rewrite_nodes(roots, _simpler, self.ranges, decided.get)
            self._bodies[truths] = dict(
                zip(self.bodies, changed if decided else roots, strict=True)
            )
        return self._bodies[truths]


def _until_data(node: Node) -> tuple[Node, ...]:
    """Return the operands of conditions, and the data in the places of indices."""
    return node.args if node.type == "bool" or node.op == INDEX else ()


def _choose_rows(statistics: Sequence[Statistic]) -> tuple[str, str]:
    """Return the index whose blocks are gone through outside, and the one inside."""
    over = [own.index for own in statistics if own.index]
    columns = over[0] if over else max(statistics[0].pair)
    (rows,) = statistics[0].pair - {columns}
    return rows, columns


def _simpler(node: Node) -> Node:
    return build.rebuild(node, node.args)
