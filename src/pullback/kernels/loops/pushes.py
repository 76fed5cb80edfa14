"""The task of a nest that adds each value where data says: it clears its part, and goes through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.kernels.loops.nest import Nest
from pullback.kernels.loops.operands import Operand

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


class Pushes:
    """What a task adds to an output.

    Attributes:
        emitter: what writes it.
        nest: its loops; it has one output.
        operand: that output.
    """

    def __init__(self, emitter: Emitter, nest: Nest, operand: Operand) -> None:
        self.emitter, self.nest, self.operand = emitter, nest, operand
        [output] = nest.outputs
        self.own = [output.indices.index(index) for index in nest.pushes]
        self.indices = output.indices

    def write(self, copy: Mapping[str, int], value: str, *, edge: bool) -> None:
        """Write the statement that adds a value, in each lane where data says."""
        emitter, nest, operand = self.emitter, self.nest, self.operand

        def wholes(places: Iterable[Affine]) -> str:
            return listed(emitter.value(graph.index(place), copy) for place in places)

        left = f"last_lane - ({emitter.places.index(str(nest.lane), copy)})"
        values = [
            self.address(),
            listed(emitter.operands.step(operand, d) for d in self.own),
            wholes(nest.pushes.values()),
            value,
            f"least({left}, lanes)" if edge else "lanes",
        ]
        if nest.guards:
            sizes = listed(emitter.extents.text(size) for _, size in nest.guards)
            values += [sizes, wholes(place for place, _ in nest.guards)]
        emitter.line(f"add_at<{operand.stored}>({', '.join(values)});", emitter.target.pushed)

    def address(self) -> str:
        """Return the address of the part of the output that is a task's own."""
        places = [self.emitter.variables.get(index, "0") for index in self.indices]
        return self.emitter.operands.address(self.operand, places)

    def task(self, code: Sequence[str]) -> list[str]:
        """Return the body of a task, from that of its loops over all entries."""
        emitter, nest = self.emitter, self.nest
        many = " * ".join(map(self.size, nest.pushes))
        bytes_of = f"{many} * int64_t{{sizeof({self.operand.stored})}}"
        loops = [
            f"for (int64_t {variable} = 0; {variable} < {self.size(index)}; ++{variable}) {{"
            for index in nest.entries
            for variable in [emitter.variables[index]]
        ]
        around = nest.trips([*nest.outer, *nest.pushes], emitter.ranges)
        emitter.costs.append((1 / emitter.target.lanes, around))
        cleared = f"__builtin_memset({self.address()}, 0, {bytes_of});"
        return [cleared, *loops, *code, "}" * len(loops)]

    def size(self, index: str) -> str:
        """Return how far an index runs, in C++."""
        return self.emitter.extents.text(self.emitter.ranges.size(index))


def listed(values: Iterable[str]) -> str:
    """Return the initializer of an array in C++."""
    return f"{{{', '.join(values)}}}"
