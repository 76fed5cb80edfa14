"""Rows are fetched before they are read, where no processor foresees which comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pullback.define.math.index import at
from pullback.define.math.node import READ, Node
from pullback.kernels.loops.operands import Operand

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


class Prefetch:
    """What fetches for the reads of one kernel.

    Attributes:
        emitter: what writes it.
        large: the variables that say whether a tensor is large.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.large: dict[Operand, str] = {}

    def write_ahead(
        self, node: Node, operand: Operand, places: list[str], copy: Mapping[str, int]
    ) -> None:
        """Write what fetches the row that an inner loop reads some turns later."""
        emitter = self.emitter
        here, turns = emitter.here, emitter.target.ahead
        if here.lane_scope or not turns:
            return
        found = [(d, place) for d, place in enumerate(node.places) if place.free & here.indices]
        if len(found) != 1 or len(found[0][1].terms) != 1 or not found[0][1].nodes:
            return
        d, place = found[0]
        [(part, factor)] = place.terms
        if not isinstance(part, Node) or part.op != READ or not part.places:
            return
        last = part.places[-1].index
        if last not in here.indices or any(p.free & here.indices for p in part.places[:-1]):
            return
        index, address = emitter.memory.find_one(part, copy)
        further = f"further<{index.stored}>({address}, {turns}, {self.last(index)})"
        far = f"({further} * {factor} + {place.constant}) * {emitter.operands.step(operand, d)}"
        first = ["0" if k == d else other for k, other in enumerate(places)]
        row = emitter.operands.address(operand, first)
        vectors = emitter.counts.get(str(here.lane), 1)
        if emitter.backed != here.lane or vectors == 1:
            word = f"fetch<{operand.stored}, {vectors}>"
            emitter.line(f"if ({self.is_large(operand)}) {word}({row}, {far});")
            return
        # Nothing is fetched that is after the end of the row, and its last byte is.
        bytes_of, name = f"vector_bytes<{operand.stored}>", emitter.name("far")
        backed = [emitter.memory.count_bytes(operand, k) for k in range(vectors // 2, vectors)]
        emitter.line(f"if ({self.is_large(operand)}) {{\nconst int64_t {name} = {far};")
        emitter.line(f"fetch<{operand.stored}, {vectors // 2}>({row}, {name});")
        for begin in (*backed, f"{backed[-1]} + {bytes_of} - 1"):
            emitter.line(f"fetch<{operand.stored}, 1>({row} + {begin}, {name});")
        emitter.line("}")

    def write_next(self, node: Node, operand: Operand, own: int, address: str) -> None:
        """Write what fetches elements that a later turn of the loop around all lanes reads.

        Of rows that are parts of a chunk that is done in their last loop, which computes and
        writes; in the first one nothing is left to do but to wait for memory. Where steps go back,
        each reads upwards what lies below the last one's: a processor does not foresee that.
        """
        emitter, here, places = self.emitter, self.emitter.here, node.places
        if emitter.around is None or here.edge or own != len(places) - 1:
            return
        if emitter.sequential is None and here.run != emitter.last_run:
            return
        # What lies beside it is in the same lines.
        is_beside = emitter.sequential is not None and places[own] != at(str(here.lane))
        if is_beside or node.name in emitter.steps:
            return
        index, turns = emitter.around
        rows = [d for d, place in enumerate(places) if not (place - at(index)).terms]
        if rows and emitter.target.ahead:
            far = f"{turns} * {emitter.operands.step(operand, rows[0])}"
            word = f"fetch<{operand.stored}, 1>"
            emitter.line(f"if ({self.is_large(operand)}) {word}({address}, {far});")

    def is_large(self, operand: Operand) -> str:
        """Return the variable that says whether a tensor is larger than a cache nearby."""
        if operand not in self.large:
            emitter = self.emitter
            self.large[operand] = name = emitter.name("large")
            with emitter.at_depth(0):
                first, last = emitter.operands.address(operand, []), self.last(operand)
                emitter.line(f"const bool {name} = is_large({last} - ({first}));")
        return self.large[operand]

    def last(self, operand: Operand) -> str:
        """Return the address of the last element of a tensor."""
        sizes = self.emitter.dims[operand.name]
        ends = [f"{self.emitter.extents.text(size)} - 1" for size in sizes]
        return self.emitter.operands.address(operand, ends)
