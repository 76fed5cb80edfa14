"""A formula in passes over blocks, two of them panel by panel where a product serves both.

A panel is some rows of blocks. What is held of it, by generated loops alone, is the products of
matrices that both passes have (`define/math/panels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pullback.bind.dense import evaluate
from pullback.bind.dense.blocks import Blocks, size_block
from pullback.bind.dense.parts import Sides
from pullback.bind.dense.space import NO_GPU, GpuWays, SpaceCall
from pullback.bind.loops import block_loops
from pullback.bind.loops.pass_tensors import Held, width_of
from pullback.define.math.block import Block
from pullback.define.math.blocks import Sweep
from pullback.define.math.index import Affine
from pullback.define.math.panels import Panels, find_panels
from pullback.define.math.passing import Passing

# The bytes of what is held of a panel. If that is less, each thread has a row of blocks.
PANEL = 2**24


def compute(  # noqa: PLR0913, PLR0917  (all of a call)
    passing: Passing,
    arguments: Mapping[str, object],
    sizes: Mapping[str, int],
    wanted: Sequence[bool],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
    *,
    ways: GpuWays = NO_GPU,
    is_half: bool = False,
) -> list[Tensor | None]:
    """Return the outputs of a formula, None for those that are not wanted.

    Args:
        passing: the formula, for these outputs.
        arguments: the values of the line's parameters, by name; tensors of the shapes it says.
        sizes: of every name of the line and of every new index.
        wanted: which outputs.
        dtypes: of the outputs.
        device: of the tensors.
        ways: how a GPU computes it.
        is_half: whether generated loops multiply matrices in bfloat16, the dtype of the call.

    Raises:
        PullbackError: PB149, an index that data gives is outside its tensor.
    """
    asked = [k for k, is_wanted in enumerate(wanted) if is_wanted]
    evaluate.require_inside(passing.indexed, arguments, sizes, asked)
    given = [v.dtype for v in arguments.values() if isinstance(v, Tensor)]
    is_double = torch.float64 in (*given, *dtypes)
    call = SpaceCall(
        line=passing.indexed.line,
        arguments=arguments,
        sizes=sizes,
        compute=torch.float64 if is_double else torch.float32,
        device=device,
        ways=ways,
    )
    panels = find_panels(passing) if block_loops.can_compile(device) else None
    blocks = (
        ByPanels(passing, call, panels, is_half=is_half)
        if panels
        else Blocks(passing, call, is_half=is_half)
    )
    return blocks.outputs(wanted, dtypes)


def size_panel(sides: Sides, columns: int, itemsize: int) -> tuple[int, int]:
    """Return how many rows of blocks a panel has, and how many elements each of these holds.

    Args:
        sides: of a block.
        columns: how many there are.
        itemsize: the bytes of an element.
    """
    row = -(-columns // sides[1]) * sides[0] * width_of(sides[1])
    return max(PANEL // (row * itemsize), torch.get_num_threads()), row


def held_bytes(
    panels: Panels,
    extent: Callable[[Affine], int],
    device: torch.device,
    sizes: Mapping[str, int],
    itemsize: int,
) -> int:
    """Return what is held of a panel.

    Args:
        panels: the passes.
        extent: returns a size as a number.
        device: of the tensors.
        sizes: of the line's names.
        itemsize: the bytes of an element.
    """
    first, ranges = panels.first, panels.first.whole.ranges
    sides = size_block(first, extent, device, sizes)
    many, row = size_panel(sides, extent(ranges[first.columns]), itemsize)
    return min(many, -(-extent(ranges[first.rows]) // sides[0])) * row * itemsize * len(panels.held)


class ByPanels(Blocks):
    """One call, whose two passes take turns."""

    def __init__(
        self, passing: Passing, call: SpaceCall, panels: Panels, *, is_half: bool = False
    ) -> None:
        super().__init__(passing, call, is_half=is_half)
        self.panels = panels

    def sides(self, sweep: Sweep) -> Sides:
        """Return how many rows and columns a block has: as many in both passes."""
        del sweep
        return super().sides(self.panels.first)

    def run(self) -> None:
        """Compute the statistics; pass by pass where panels do not serve."""
        if not self.run_panels():
            super().run()

    def run_panels(self) -> bool:
        """Compute the statistics panel by panel; return False if that cannot be."""
        first, second = self.panels.first, self.panels.second
        for sweep in (first, second):
            self.begin(sweep)
        rows, _ = self.cut(first)
        every, itemsize = self.extent(first.columns), self.call.compute.itemsize
        many, row = size_panel(self.sides(first), every, itemsize)
        held = min(many, len(rows)) * row
        tiles = {each: torch.empty(held, dtype=self.call.compute) for each in self.panels.held}
        self.prepare(first)
        vectors = {name: self.values[name] for name in first.vectors.values()}
        for k in range(0, len(rows), many):
            panel = rows[k : k + many]
            self.values |= vectors
            self.finite.clear()
            one = self.blocks(first, panel)
            start = panel[0].start
            if not self.run_loops(first, one, Held(tiles=tiles, first=start, is_new=True)):
                return False
            self.prepare(second)
            other = self.blocks(second, panel)
            if not self.has_held([block for _, block in one], [block for _, block in other]):
                return False
            if not self.run_loops(second, other, Held(tiles=tiles, first=start, is_new=False)):
                return False
        # What had others that are not finite is computed again, pass by pass.
        return not any(bool(self.irregular(again).any()) for again in first.again)

    def has_held(self, one: Sequence[Block | None], other: Sequence[Block | None]) -> bool:
        """Return whether the first pass computed what the second one needs, block by block."""
        first, second = self.panels.first, self.panels.second
        return all(
            self.panels.has_held(first.looped(a) if a else None, second.looped(b) if b else None)
            for a, b in {*zip(one, other, strict=True)}
        )
