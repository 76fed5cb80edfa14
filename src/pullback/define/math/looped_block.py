"""What is computed of one block of rows and columns by products of matrices and loops, as data."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from pullback.define.math.block import Operand
from pullback.define.math.index import Affine
from pullback.define.math.node import Node, names_read
from pullback.define.math.passes import Statistic

# The sizes that say where a block begins.
FIRST_ROW, FIRST_COLUMN = "__row", "__column"


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """`sum[bound](rows * columns)`, a product of matrices whose value is one of rows and columns.

    Attributes:
        name: of its value.
        rows: the factor that has rows; a read.
        columns: the factor that has columns.
        bound: the index that is summed over.
        size: how far that runs.
    """

    name: str
    rows: Node
    columns: Node
    bound: str
    size: Affine


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A product of matrices that is added to a statistic: `sum[index](scale * weight * factor)`.

    Attributes:
        own: the statistic.
        state: its part for the block; a read.
        weight: the name of the value of rows and columns.
        factor: a read, of the index that is summed over and of one more.
        more: that one.
        scale: a number.
        is_guarded: whether conditions select what is added, so that 0 times the factor has to be 0.
    """

    own: Statistic
    state: Node
    weight: str
    factor: Node
    more: str
    scale: float
    is_guarded: bool


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Values that are added where their rows and columns say: `state[place] += scale * weight`.

    Attributes:
        own: the statistic.
        weight: the name of the value of rows and columns.
        place: where they go, if that is affine.
        tile: or the name of the places, a value of rows and columns too.
        scale: a number.
    """

    own: Statistic
    weight: str
    place: Affine
    tile: str | None
    scale: float


@dataclass(frozen=True, kw_only=True)
class BlockValue:
    """A value that the loop of a block computes.

    Attributes:
        name: of what it is written to: an operand, or memory of the block's own.
        indices: its dimensions.
        node: its element.
    """

    name: str
    indices: tuple[str, ...]
    node: Node


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopedBlock:
    """What is computed of one block, in this order.

    Attributes:
        rows: the index of rows.
        columns: the index of columns.
        products: before the loops.
        of_columns: written first, by a loop over the columns.
        of_rows: written by a loop over the rows: vectors, and values of rows and columns.
        scaled: written after these: statistics with one more index.
        summed: written last, added up over rows or columns: what is multiplied there with no
            matrix, but with something that is computed of rows and columns and one more index.
        sinks: products after the loops.
        placings: what is added after them, value by value.
        operands: the parts of tensors that are read or written.
        sizes: how far the indices run that are no rows or columns.
        dims: how far the dimensions run of each operand, and of memory of the block's own; without
            those of batches.
        batches: of each operand, the index of a batch that each dimension of its tensor has; None
            of one that the block goes through.
    """

    rows: str
    columns: str
    products: tuple[Contraction, ...]
    of_columns: tuple[BlockValue, ...]
    of_rows: tuple[BlockValue, ...]
    scaled: tuple[BlockValue, ...]
    summed: tuple[BlockValue, ...]
    sinks: tuple[Sink, ...]
    placings: tuple[Placing, ...]
    operands: tuple[Operand, ...]
    sizes: Mapping[str, Affine]
    dims: Mapping[str, tuple[Affine, ...]]
    batches: Mapping[str, tuple[str | None, ...]]

    def identity(self, product: Contraction) -> object:
        """Return what is equal for equal products, whatever else blocks of a pass compute."""
        parts = {part.name: part for part in self.operands}
        factors = [
            (parts[factor.name].tensor, parts[factor.name].windows, factor.places)
            for factor in (product.rows, product.columns)
        ]
        return *factors, product.bound, product.size

    def find_halves(self, wide: Set[str]) -> frozenset[str]:
        """Return the values of rows and columns that may be bfloat16.

        Args:
            wide: the tensors with which bfloat16 is not multiplied.
        """
        parts = {part.name: part.tensor for part in self.operands}
        others = {sink.weight for sink in self.sinks if parts[sink.factor.name] in wide}
        return self.multiplied - others

    @cached_property
    def multiplied(self) -> frozenset[str]:
        """The names of values of rows and columns that nothing reads but products of matrices."""
        groups = (self.of_columns, self.of_rows, self.scaled, self.summed)
        others = {*names_read(each.node for group in groups for each in group)}
        others |= {name for each in self.placings for name in (each.weight, each.tile) if name}
        return frozenset(sink.weight for sink in self.sinks) - others

    @property
    def tensors(self) -> dict[str, None]:
        """The names of the tensors that are read or written."""
        names = [*(o.tensor for o in self.operands), *(each.own.name for each in self.placings)]
        return dict.fromkeys(names)

    @property
    def writes_columns(self) -> bool:
        """Whether something is written that blocks of other rows write too."""
        return bool(
            self.of_columns
            or any(sink.own.index == self.rows for sink in self.sinks)
            or any(self.columns in each.indices for each in self.summed)
        )
