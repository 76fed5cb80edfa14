"""The memory that a task has for itself: kept rows, held sums, and the totals of its chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine
from pullback.kernels.loops.nest import Nest

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


class TaskMemory:
    """The memory of a kernel's task, once its statements are written.

    Attributes:
        nest: its loops.
        emitter: what wrote it.
        buffers: how far the lanes run of each buffer of a row.
        totals: how many values each total has that is added up here, by the total's name.
    """

    def __init__(self, nest: Nest, emitter: Emitter, buffers: Mapping[str, Affine]) -> None:
        self.nest, self.emitter, self.buffers = nest, emitter, buffers
        self.totals: dict[str, Affine] = {}
        self.totals = self.find_totals()

    def find_totals(self) -> dict[str, Affine]:
        """Return how many values all totals have.

        None are here where the target adds to the tensor, or has no room for them beside the rows.
        """
        nest, emitter = self.nest, self.emitter
        if not nest.over or nest.is_split or nest.held or not emitter.target.keeps_totals:
            return {}
        for place, output in enumerate(filter(nest.is_total, nest.outputs)):
            small = math.prod(emitter.counts[i] for i in output.indices if i in nest.small)
            lanes = Affine(1) if nest.lane is None else emitter.ranges.size(nest.lane)
            self.totals[f"total{place}"] = lanes * small
        lengths = [emitter.measure(row) or 0 for row in self.rows]
        return self.totals if emitter.target.keeps(lengths) else {}

    @property
    def rows(self) -> list[Affine]:
        """How many values each row has; a total is of two floats."""
        held, target = self.emitter.held, self.emitter.target
        rows: list[Affine] = [*self.buffers.values()] * self.nest.rows
        rows += [held.extent * target.lanes for _ in held.rows]
        words = 2 if target.compute == "float" else 1
        return rows + [size * words for size in self.totals.values()]

    def declare(self) -> list[str]:
        """Return the statements that open the memory and name its parts."""
        emitter, rows = self.emitter, self.nest.rows
        parts = {
            name: ("Compute", f"{rows} * {emitter.length_of_row(size)}")
            for name, size in self.buffers.items()
        }
        parts |= {name: ("Compute", f"{emitter.held.size} * lanes") for name in emitter.held.rows}
        parts |= {name: ("double", emitter.extents.text(n)) for name, n in self.totals.items()}
        if not parts:
            return []
        sizes = [f"{many} * int64_t{{sizeof({real})}}" for real, many in parts.values()]
        return emitter.target.write_scratch(sizes) + [
            f"{real}* const {name} = reinterpret_cast<{real}*>(scratch.take({size}));"
            for (name, (real, _)), size in zip(parts.items(), sizes, strict=True)
        ]
