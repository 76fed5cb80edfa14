"""Neighbours of which each has a statement of its own, read by one instruction.

On a GPU the threads of a warp read elements that lie apart, such as the third coordinate of each
point, from as many lines of the cache: 16 bytes take as long as 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine
from pullback.define.math.node import Node

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


class Packs:
    """The packs of one kernel: whole ones, of tensors whose strides it knows."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def count(self, name: str) -> int:
        """Return how many elements a pack of a tensor has; 0 if they are read one by one."""
        emitter = self.emitter
        size = SIZES.get(emitter.memory.dtypes[name], 0)
        if not size or emitter.fetched or name in emitter.steps:
            return 0
        count = emitter.target.pack // size
        length = emitter.extents.number(emitter.dims[name][-1])
        return count if count and length and length % count == 0 else 0

    def alignment(self, name: str) -> int:
        """Return the bytes that the address of such a tensor has to be a multiple of."""
        return self.emitter.target.pack if self.count(name) else 1

    def read(self, node: Node, copy: Mapping[str, int], apart: int | None) -> str | None:
        """Return the element of a pack; None if it is read alone.

        Args:
            node: the read.
            copy: which one of those side by side.
            apart: the dimension of the lanes, None if all of them read the same.
        """
        emitter = self.emitter
        last = node.places[-1] if node.places else None
        if last is None or last.nodes or not last.free <= emitter.written:
            return None
        place = emitter.extents.number(last.replaced({i: Affine(copy[i]) for i in last.free}))
        operand = emitter.memory.operand(node, len(node.places) - 1)
        count = self.count(node.name)
        is_inside = emitter.memory.is_proven(node, len(node.places) - 1)
        if place is None or operand.aligned == 1 or not is_inside:
            return None
        places = [
            emitter.places.place(node.places[d], copy)
            if d == apart
            else emitter.memory.safe(node, d, copy)
            for d in range(len(node.places) - 1)
        ]
        address = emitter.operands.address(operand, [*places, str(place - place % count)])
        if apart is not None:
            address += f" + lane() * {emitter.operands.step(operand, apart)}"
        text = f"load_pack<{operand.stored}, {count}>({address})"
        if text not in emitter.here.written:
            emitter.here.written[text] = name = emitter.name("pack")
            # It touches as many lines of the cache as each of its elements would.
            work = 0 if apart is None else count * emitter.target.apart
            emitter.line(f"const auto {name} = {text};", work)
        return f"{emitter.here.written[text]}[{place % count}]"
