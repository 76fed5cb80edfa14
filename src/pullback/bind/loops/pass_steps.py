"""What a pass over blocks computes of one kind of them, as numbers for the runtime.

They say where each block's part of a tensor is, which products come before and after the loops, and
which loops (`csrc/runtime/python/blocks.cpp`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.loops.own_call import lay_out
from pullback.bind.loops.pass_tensors import (
    LINE,
    PassTensor,
    lay_out_halves,
    width_of,
)
from pullback.define.math.block import Operand as Part
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.index import size as size_of
from pullback.define.math.looped_block import (
    FIRST_COLUMN,
    FIRST_ROW,
    Contraction,
    LoopedBlock,
    Placing,
    Sink,
)
from pullback.define.math.node import Node
from pullback.define.math.passes import Unfit
from pullback.kernels.loops.nest import KernelText
from pullback.kernels.loops.operands import Operand

if TYPE_CHECKING:
    from pullback.bind.loops.passes import BlockPass

# What stands for a block's own numbers in a program.
ROWS, COLUMNS, FIRST = -1, -2, {FIRST_ROW: -3, FIRST_COLUMN: -4}
OWN_MEMORY = -1
# How matrices are multiplied: as real numbers are computed, or in bfloat16.
REAL, HALVES = range(2)


@dataclass
class ProgramTensors:
    """The tensors of a program, as it reads them.

    Attributes:
        tensors: by name and by how they lie: the dimension whose elements are next to each other.
        memory: the bytes that a task has of its own.
        sums: what is added up at places, by the names of the statistics.
        axes: the indices of batches, their places within `...`, and how far they run.
    """

    call: BlockPass
    tensors: dict[tuple[object, ...], Tensor] = field(
        default_factory=dict[tuple[object, ...], Tensor]
    )
    memory: int = 0
    sums: dict[str, PassTensor] = field(default_factory=dict[str, PassTensor])

    def __post_init__(self) -> None:
        self.axes = [
            (index, k, extent)
            for index, own in self.call.batches.items()
            for k, extent in enumerate(self.call.every if index == BATCH else [own])
        ]

    def laid_out(self, part: Part, unit: int | None) -> tuple[int, Tensor]:
        """Return the number of a tensor, and the tensor with elements of a dimension in a row."""
        source = self.call.sources[part.tensor]
        dim = None if unit is None else source.dimension(unit)
        key, value = (part.tensor, dim), source.value
        if source.is_state:
            return self.add(key, value)
        dtype = "int64" if value.dtype != torch.bool else "bool"
        if value.is_floating_point():
            dtype = str(self.call.compute).removeprefix("torch.")
        operand = Operand(part.tensor, dim, dtype, value.dim())
        made = self.call.laid.get_or_make(key, value, lambda given: lay_out(given, operand))
        return self.add(key, made)

    def laid_in_halves(self, part: Part, down: int, across: int) -> tuple[int, Tensor]:
        """Return the same of matrices in bfloat16: the dimensions of their rows and columns."""
        source = self.call.sources[part.tensor]
        dims = (source.dimension(down), source.dimension(across))
        if source.is_state:
            raise Unfit  # what is written stays as it is
        key = (part.tensor, HALVES, *dims)
        made = self.call.laid.get_or_make(
            key, source.value, lambda given: lay_out_halves(given, *dims)
        )
        return self.add(key, made)

    def add(self, key: tuple[object, ...], value: Tensor) -> tuple[int, Tensor]:
        """Return the number of a tensor of the program, and the tensor."""
        self.tensors.setdefault(key, value)
        return list(self.tensors).index(key), self.tensors[key]


class Steps:
    """What is computed of one kind of blocks, as numbers."""

    def __init__(self, written: ProgramTensors, block: LoopedBlock) -> None:
        self.written, self.block, self.call = written, block, written.call
        self.parts = {part.name: part for part in block.operands}
        wide = self.call.wide
        self.halves = frozenset[str]() if wide is None else block.find_halves(wide)
        self.itemsize = self.call.compute.itemsize
        tiles = self.call.held.tiles
        named = {product.name: block.identity(product) for product in block.products}
        self.held = {name: tiles[each] for name, each in named.items() if each in tiles}
        self.own = self.room()

    def room(self) -> dict[str, int]:
        """Return where values of the block are in its own memory; some where others were."""
        found: dict[str, int] = {}
        rows, width = self.call.shape[0], self.width
        tiles = [each.name for each in self.block.products if each.name not in self.held]
        weights = dict.fromkeys(each.weight for each in (*self.block.sinks, *self.block.placings))
        shared = dict(zip(weights, tiles, strict=False))
        known = {*self.parts, *self.held, *tiles, *weights}
        others = [name for name in self.block.dims if name not in known]
        end = 0
        for name in [*tiles, *weights, *others]:
            if name in shared:
                found[name] = found[shared[name]]
                continue
            found[name] = end
            many = max(rows, width) if len(self.block.dims[name]) == 1 else rows * width
            end += -(-many // LINE) * LINE * 8
        self.written.memory = max(self.written.memory, end)
        return found

    @property
    def width(self) -> int:
        """How many elements a row has in the block's own memory."""
        return width_of(self.call.shape[1])

    def program(
        self, kernels: Sequence[KernelText], addresses: Sequence[int], lanes: int
    ) -> list[int]:
        """Return the steps: products, loops, products."""
        is_new = self.call.held.is_new
        products = [p for p in self.block.products if is_new or p.name not in self.held]
        numbers = [len(products)]
        for product in products:
            numbers += self.contraction(product)
        numbers.append(len(kernels))
        for kernel, address in zip(kernels, addresses, strict=True):
            numbers += self.loop(kernel, address, lanes)
        numbers.append(len(self.block.sinks))
        for sink in self.block.sinks:
            numbers += self.sink(sink)
        numbers.append(len(self.block.placings))
        for placing in self.block.placings:
            numbers += self.placing(placing)
        return numbers

    def size(self, index: str) -> int:
        """Return how far an index runs, or what stands for that."""
        codes = {self.block.rows: ROWS, self.block.columns: COLUMNS, **FIRST}
        if index in codes:
            return codes[index]
        return self.call.number(self.block.sizes.get(index) or size_of(index))

    # --- places

    def place(self, name: str, unit: int | None) -> tuple[list[int], list[int]]:
        """Return where a value is, and the elements to the next one along each dimension.

        Args:
            name: of an operand, or of memory of the block's own.
            unit: the dimension whose elements have to be next to each other, if any.
        """
        if name in self.own:
            # A half lies where the real number was that it may be computed from.
            width = self.width * (2 if name in self.halves else 1)
            steps = [width, 1] if len(self.block.dims[name]) > 1 else [1]
            return [OWN_MEMORY, self.own[name], 0, 0, 0, 0, *[0] * len(self.written.axes)], steps
        if name in self.held:
            return self.place_held(self.held[name])
        part, batches = self.parts[name], self.block.batches[name]
        kept = [k for k, index in enumerate(batches) if index is None]
        number, value = self.written.laid_out(part, None if unit is None else kept[unit])
        source = self.call.sources[part.tensor]
        strides = [value.stride(source.dimension(k)) for k in kept]
        numbers = self.place_in(part, number, value)
        if (
            unit is not None
            and strides[unit] != 1
            and value.shape[source.dimension(kept[unit])] > 1
        ):
            raise Unfit  # what is written stays where it is
        return numbers, strides

    def place_in(self, part: Part, number: int, value: Tensor) -> list[int]:
        """Return where the first block reads a tensor, and how far the next ones are from there."""
        source, batches = self.call.sources[part.tensor], self.block.batches[part.name]
        kept = [k for k, index in enumerate(batches) if index is None]
        start, moves = 0, [0, 0, 0, 0]
        for k in kept:
            window, stride = part.windows[k], value.stride(source.dimension(k))
            if window is None:
                continue
            start += self.call.start(part, k) * stride
            for d, index in enumerate((self.block.rows, self.block.columns)):
                factor = window.place.factor(index)
                moves[d] += factor * stride
                moves[d + 2] += min(factor, 0) * stride
        steps = [self.batch_step(source, value, batches, *axis[:2]) for axis in self.written.axes]
        size = value.element_size()
        return [number, *(size * each for each in (start, *moves, *steps))]

    def place_held(self, tile: Tensor) -> tuple[list[int], list[int]]:
        """Return where a product is that is held, from some row on."""
        name = (f"held at {tile.data_ptr()}", None)
        self.written.tensors.setdefault(name, tile)
        number, size = list(self.written.tensors).index(name), tile.element_size()
        rows, columns = self.call.shape
        down = -(-self.call.extents[1] // columns) * self.width * size
        # There is one block across if its width is another one.
        across = rows * self.width * size // columns
        start = -self.call.held.first * down
        return [number, start, down, across, 0, 0], [self.width, 1]

    def batch_step(
        self,
        source: PassTensor,
        value: Tensor,
        batches: Sequence[str | None],
        index: str,
        axis: int,
    ) -> int:
        """Return the elements to the next value of an index of a batch: 0 if it lacks that."""
        if index not in batches:
            return 0
        place = batches.index(index)
        if index != BATCH:
            # It may run over a batch without dimensions, once.
            own = source.dimension(place)
            return value.stride(own) if own < value.dim() else 0
        many = value.dim() - len(batches) + 1
        own = axis - (len(self.call.every) - many)
        if own < 0 or value.shape[place + own] == 1:
            return 0
        return value.stride(place + own)

    # --- steps

    def matrix(self, node: Node, down: str, across: str) -> tuple[list[int], list[int]]:
        """Return where a factor is, and the elements to the next row and to the next column."""
        order = [place.index for place in node.places]
        unit = order.index(across)
        place, steps = self.place(node.name, None)
        if 1 not in steps:
            place, steps = self.place(node.name, unit)
        return place, [steps[order.index(down)], steps[unit]]

    def matrix_of_halves(self, node: Node, down: str, across: str) -> tuple[list[int], list[int]]:
        """Return the same of a factor in bfloat16, in whose rows elements lie side by side."""
        part = self.parts[node.name]
        kept = [k for k, index in enumerate(self.block.batches[node.name]) if index is None]
        order = [place.index for place in node.places]
        first, second = (kept[order.index(index)] for index in (down, across))
        number, value = self.written.laid_in_halves(part, first, second)
        source = self.call.sources[part.tensor]
        steps = [value.stride(source.dimension(dim)) for dim in (first, second)]
        return self.place_in(part, number, value), steps

    def contraction(self, product: Contraction) -> list[int]:
        """Return a product of matrices that comes before the loops."""
        rows, columns, bound = self.block.rows, self.block.columns, product.bound
        factors = {self.parts[node.name].tensor for node in (product.rows, product.columns)}
        wide = self.call.wide
        if wide is None or factors & wide:
            form = REAL
            a, of_a = self.matrix(product.rows, rows, bound)
            b, of_b = self.matrix(product.columns, bound, columns)
        else:
            form = HALVES
            a, of_a = self.matrix_of_halves(product.rows, rows, bound)
            b, of_b = self.matrix_of_halves(product.columns, columns, bound)
            of_b = of_b[::-1]
        c, of_c = self.place(product.name, None)
        inner = self.call.number(product.size)
        return [form, *a, *b, *c, 0, ROWS, COLUMNS, inner, *of_a, *of_b, *of_c, bits(1.0)]

    def sink(self, sink: Sink) -> list[int]:
        """Return a product that is added to a statistic."""
        if sink.weight in self.halves:
            return self.sink_of_halves(sink)
        block, index = self.block, sink.own.index
        kept = block.columns if index == block.rows else block.rows
        a, of_a = self.place(sink.weight, None)
        b, of_b = self.matrix(sink.factor, index, sink.more)
        c, of_c = self.matrix(sink.state, kept, sink.more)
        if index == block.rows:
            of_a = of_a[::-1]
        sizes = [self.size(kept), self.size(sink.more), self.size(index)]
        return [REAL, *a, *b, *c, 1, *sizes, *of_a, *of_b, *of_c, bits(sink.scale)]

    def sink_of_halves(self, sink: Sink) -> list[int]:
        """Return the same in bfloat16; turned, if what it is added to has columns side by side."""
        block, index, across = self.block, sink.own.index, sink.more
        kept = block.columns if index == block.rows else block.rows
        c, of_c = self.matrix(sink.state, kept, across)
        a, of_a = self.place(sink.weight, None)
        if of_c[1] == 1:
            of_a = of_a[::-1] if index == block.rows else of_a
            b, of_b = self.matrix_of_halves(sink.factor, index, across)
            sizes = [self.size(kept), self.size(across), self.size(index)]
        elif index == block.rows:
            b, of_b = a, of_a
            a, of_a = self.matrix_of_halves(sink.factor, across, index)
            sizes, of_c = [self.size(across), self.size(kept), self.size(index)], of_c[::-1]
        else:
            raise Unfit
        return [HALVES, *a, *b, *c, 1, *sizes, *of_a, *of_b, *of_c, bits(sink.scale)]

    def placing(self, placing: Placing) -> list[int]:
        """Return what adds values where their rows and columns say."""
        weight, [width, _] = self.place(placing.weight, None)
        tile = self.place(placing.tile, None)[0] if placing.tile else weight
        name = placing.own.name
        if name not in self.written.sums:
            self.written.sums[name] = self.call.sums(name)
        source = self.written.sums[name]
        value = self.written.tensors.setdefault((name, None), source.value)
        number = list(self.written.tensors).index((name, None))
        batches = [index if index in self.call.batches else None for index in source.labels]
        label, _ = placing.own.places[0]
        dim = source.dimension(source.labels.index(label))
        steps = [self.batch_step(source, value, batches, *axis[:2]) for axis in self.written.axes]
        to = [number, 0, 0, 0, 0, 0, *(value.element_size() * step for step in steps)]
        factors = [placing.place.factor(i) for i in (self.block.rows, self.block.columns)]
        first = placing.place - sum(
            (at(i) * placing.place.factor(i) for i in placing.place.free), Affine()
        )
        return [
            *(*weight, *tile, *to, placing.tile is not None),
            value.stride(0) * value.element_size(),
            *([0, 0, 0] if placing.tile else [self.call.number(first), *factors]),
            *(value.shape[dim], value.stride(dim), width, bits(placing.scale)),
        ]

    def loop(self, kernel: KernelText, address: int, lanes: int) -> list[int]:
        """Return a loop."""
        numbers, strides = [address, len(kernel.operands)], list[int]()
        for operand in kernel.operands:
            place, steps = self.place(operand.name, operand.unit)
            size = getattr(torch, operand.dtype).itemsize
            numbers += place
            strides += [step * size for step in steps]
        nest = kernel.nest
        tasks, each = (
            (nest.outer[0], nest.rows) if nest.outer else (nest.lane, nest.vectors * lanes)
        )
        assert tasks
        sizes = [self.size(name) for name in kernel.sizes]
        numbers += [len(strides), *strides, len(sizes), *sizes]
        return [*numbers, self.size(tasks), each]


def bits(value: float) -> int:
    """Return the bits of a number as a whole number."""
    return struct.unpack("q", struct.pack("d", value))[0]
