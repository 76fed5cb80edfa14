"""A pass over blocks by products of matrices and generated loops, of the tensors of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense import contraction
from pullback.bind.dense.parts import Part, Parts, dimension, reach
from pullback.bind.loops import block_loops
from pullback.bind.loops.own_call import convert_scalar
from pullback.bind.loops.pass_tensors import Held, PassTensor
from pullback.bind.loops.passes import BlockPass
from pullback.define.math.block import Block, Window
from pullback.define.math.blocks import Sweep
from pullback.define.math.looped_block import LoopedBlock, Sink
from pullback.define.math.passes import Unfit

if TYPE_CHECKING:
    from pullback.bind.dense.blocks import Blocks

# Of what is added up over rows, and has so many times fewer elements for each column, it takes less
# to turn the result.
MANY_ROWS = 8


class LoopedPass:
    """One pass of a call.

    Attributes:
        own: the call, whose statistics it brings up to date.
        sweep: the pass.
    """

    def __init__(self, own: Blocks, sweep: Sweep) -> None:
        self.own = own
        self.sweep = sweep

    def run(self, found: Sequence[tuple[Parts, Block | None]], held: Held) -> bool:
        """Run some of its blocks; return False if that cannot be."""
        own, sweep = self.own, self.sweep
        kinds = list(dict.fromkeys(block for _, block in found if block is not None))
        written = [sweep.looped(block) for block in kinds]
        known = [block for block in written if block is not None]
        if len(known) < len(kinds) or not self.are_finite(known):
            return False
        indexed, wide = own.passing.indexed, self.find_wide()
        scalars = {s.name: convert_scalar(s, own.scalars[s.name]) for s in indexed.line.scalars}
        loops = block_loops.compile_loops(
            tuple(known),
            own.call.compute,
            tuple(scalars),
            indexed.accuracy,
            wide=wide,
        )
        if loops is None:
            return False
        if wide is not None:
            self.turn_sums_over_rows(known, wide)
        numbers = {block: k for k, block in enumerate(kinds)}
        end = max(p.start + p.length for p in (parts[sweep.rows] for parts, _ in found))
        sources = {
            name: self.source(name)
            for name in dict.fromkeys(n for block in known for n in block.tensors)
        }
        try:
            BlockPass(
                blocks=known,
                kinds=[-1 if block is None else numbers[block] for _, block in found],
                shape=own.sides(sweep),
                extents=(end, own.extent(sweep.columns)),
                batches={i: own.number(size) for i, size in sweep.outer.items()},
                every=[int(extent) for extent in own.space.batch],
                sources=sources,
                start=lambda part, k: self.start(sources[part.tensor], part.windows[k], k),
                number=own.number,
                compute=own.call.compute,
                scalars=tuple(scalars.values()),
                wide=wide,
                laid=own.laid,
                held=held,
            ).run(loops)
        except Unfit:
            if not own.is_half:
                return False
            own.is_half = False
            return self.run(found, held)
        own.empty.clear()
        return True

    def find_wide(self) -> frozenset[str] | None:
        """Return the tensors of the call that have more digits than the bfloat16 it multiplies."""
        if not self.own.is_half:
            return None
        given = self.own.call.arguments.items()
        real = {n: t for n, t in given if isinstance(t, Tensor) and t.is_floating_point()}
        return frozenset(name for name, tensor in real.items() if tensor.dtype != torch.bfloat16)

    def turn_sums_over_rows(self, known: Sequence[LoopedBlock], wide: frozenset[str]) -> None:
        """Let columns lie side by side in what products in bfloat16 add up over many rows.

        Else each block's weights are turned for the product, and what is added up is not.
        """
        for block in known:
            written = {each.name for each in (*block.scaled, *block.summed)}
            halves = block.find_halves(wide)
            for sink in block.sinks:
                is_sum = sink.own.index == block.rows and sink.weight in halves
                if is_sum and sink.state.name not in written:
                    self.turn(sink, block.columns)

    def turn(self, sink: Sink, columns: str) -> None:
        """Let columns lie side by side in a statistic, if it has few elements for each of them."""
        values, name, labels = self.own.values, sink.own.name, sink.own.labels
        value = self.own.tensor(name)
        place, more = (
            dimension(labels, labels.index(index)) % value.dim() for index in (columns, sink.more)
        )
        turned = value.movedim(place, -1)
        are_few = self.own.extent(self.sweep.rows) < MANY_ROWS * value.shape[more]
        if are_few or turned.is_contiguous():
            return
        if name in self.own.empty:
            shape, dtype, device = turned.shape, value.dtype, value.device
            del value, turned, values[name]  # never are both there
            turned = torch.zeros(shape, dtype=dtype, device=device)
        values[name] = turned.contiguous().movedim(-1, place)

    def are_finite(self, known: Sequence[LoopedBlock]) -> bool:
        """Return whether all is finite that is multiplied by 0 where a condition does not hold."""
        parts = {part.name: part.tensor for block in known for part in block.operands}
        guarded = {s.factor.name for block in known for s in block.sinks if s.is_guarded}
        return all(contraction.is_finite(self.own.tensor(parts[name])) for name in guarded)

    def source(self, name: str) -> PassTensor:
        """Return a tensor of the pass."""
        return PassTensor(
            value=self.own.tensor(name),
            labels=self.sweep.tensors[name],
            is_state=any(own.name == name for own in self.sweep.statistics),
        )

    def start(self, source: PassTensor, window: Window | None, k: int) -> int:
        """Return where along a dimension the first block begins to read, of one row and column.

        Raises:
            Unfit: some block would read outside of the tensor, where 0 is read.
        """
        assert window is not None
        whole = {i: Part(0, self.own.extent(i)) for i in self.sweep.pair}
        first, last = reach(window, whole, self.own.call.sizes)
        if first < 0 or last >= source.value.shape[source.dimension(k)]:
            raise Unfit
        ones = dict.fromkeys(self.sweep.pair, Part(0, 1))
        return reach(window, ones, self.own.call.sizes)[0]
