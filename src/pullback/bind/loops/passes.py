"""Passes over blocks on the CPU: products by BLAS, and generated loops between them.

A pass is a program for the runtime (`csrc/runtime/python/blocks.cpp`), which goes through the
blocks in PyTorch's threads: where each block's part of a tensor is, which products come before and
after the loops, and which loops. All that is between the products of a block stays in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.bind.dense import matrices
from pullback.bind.loops import launches
from pullback.bind.loops.block_loops import BlockLoops
from pullback.bind.loops.pass_steps import ProgramTensors, Steps
from pullback.bind.loops.pass_tensors import NOTHING, Held, LaidOut, PassTensor
from pullback.define.math.block import Operand as Part
from pullback.define.math.index import BATCH, Affine
from pullback.define.math.looped_block import (
    LoopedBlock,
)

# The index of the sums that are added up in the end, of what goes to places within a tensor: each
# row of blocks has one of its own, up to so many.
PART = "part"
MOST_PARTS = 64


@dataclass(frozen=True, kw_only=True)
class BlockPass:
    """A pass over blocks.

    Attributes:
        blocks: the kinds of them.
        kinds: of every row of blocks, the kinds of its blocks; -1 for those left out.
        shape: of a block.
        extents: where the rows and the columns end.
        batches: how far the indices of batches run.
        every: the sizes of `...`, which is one of these.
        sources: the tensors, by name.
        start: returns where along a dimension the first block begins to read if it has one row and
            one column.
        number: returns a size.
        compute: what real numbers are computed in.
        scalars: of the line.
        wide: the tensors that are multiplied as real numbers are computed, others in bfloat16; None
            if all are.
        laid: how tensors of the call have been laid out for passes.
        held: what another pass has in common with it; only rows from its first one on are computed.
    """

    blocks: Sequence[LoopedBlock]
    kinds: Sequence[int]
    shape: tuple[int, int]
    extents: tuple[int, int]
    batches: Mapping[str, int]
    every: Sequence[int]
    sources: Mapping[str, PassTensor]
    start: Callable[[Part, int], int]
    number: Callable[[Affine], int]
    compute: torch.dtype
    scalars: tuple[float, ...]
    wide: frozenset[str] | None = None
    laid: LaidOut = field(default_factory=LaidOut)
    held: Held = NOTHING

    def run(self, loops: BlockLoops) -> None:
        """Bring the statistics of a pass up to date.

        Raises:
            Unfit: before anything is written: something does not lie as a loop writes it.
        """
        written = ProgramTensors(self)
        kinds = [
            number
            for block, kernels, addresses in zip(
                self.blocks, loops.kernels, loops.addresses, strict=True
            )
            for number in Steps(written, block).program(kernels, addresses, loops.lanes)
        ]
        program = (
            *(len(written.axes), *(extent for _, _, extent in written.axes)),
            *(self.held.first, *self.extents),
            *self.shape,
            written.memory,
            self.compute == torch.float64,
            matrices.prefers_onednn(self.compute),
            self.wide is not None,
            any(block.writes_columns for block in self.blocks),
            bool(self.held.tiles),
            self.parts if written.sums else 0,
            *(len(self.blocks), *kinds),
            *(len(self.kinds), *self.kinds),
        )
        launches.refuse()
        said = runtime.load().sweep(
            tuple(map(int, program)), tuple(written.tensors.values()), self.scalars
        )
        if said is not None:
            raise MemoryError
        for name, sums in written.sums.items():
            state = self.sources[name].value
            _ = state.add_(add_up(sums.value.reshape(-1, *state.shape)))

    @property
    def parts(self) -> int:
        """How many rows of blocks have a sum of their own of what goes to places."""
        return min(-(-self.extents[0] // self.shape[0]), MOST_PARTS)

    def sums(self, name: str) -> PassTensor:
        """Return what tasks add to where tiles say, for a statistic."""
        source = self.sources[name]
        missing = [index for index in self.batches if index not in source.labels]
        shape = [self.parts]
        for index in missing:
            shape += self.every if index == BATCH else [self.batches[index]]
        return PassTensor(
            value=source.value.new_zeros([*shape, *source.value.shape]),
            labels=(PART, *missing, *source.labels),
            is_state=True,
        )


def add_up(sums: Tensor) -> Tensor:
    """Return the sum of some tensors, in an order that does not depend on the number of threads."""
    while len(sums) > 1:
        half = (len(sums) + 1) // 2
        _ = sums[: len(sums) - half].add_(sums[half:])
        sums = sums[:half]
    return sums[0]
