"""The task of a nest that adds each value where data says: it clears its part, and goes through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.kernels.loops.nest import Output

if TYPE_CHECKING:
    from pullback.kernels.loops.kernel import KernelWriter


class Pushes:
    """What a task adds to an output.

    Attributes:
        writer: of the kernel, which computes in the dtype of the output.
        output: the only one of its nest.
    """

    def __init__(self, writer: KernelWriter, output: Output) -> None:
        self.writer, self.output = writer, output
        self.emitter, self.nest, self.operand = writer.emitter, writer.nest, writer.operand(output)

    def write(self, copy: Mapping[str, int], value: str, *, edge: bool) -> None:
        """Write the statement that adds a value: a row of lanes, or each lane, where data says."""
        emitter, nest = self.emitter, self.nest

        def wholes(places: Iterable[Affine]) -> str:
            return listed(emitter.value(graph.index(place), copy) for place in places)

        own = [self.output.indices.index(index) for index in nest.pushes]
        left = f"last_lane - ({emitter.places.index(str(nest.lane), copy)})"
        values = [
            self.address([*nest.outer, *nest.entries, str(nest.lane)]),
            listed(emitter.operands.step(self.operand, d) for d in own),
            wholes(nest.pushes.values()),
            value,
            f"least({left}, lanes)" if edge else "lanes",
        ]
        if nest.guards:
            sizes = listed(emitter.extents.text(size) for _, size in nest.guards)
            values += [sizes, wholes(place for place, _ in nest.guards)]
        is_row = nest.lane in self.output.indices
        word, cost = ("add_row", 3) if is_row else ("add_at", emitter.target.pushed)
        emitter.line(f"{word}({', '.join(values)});", cost)

    def address(self, indices: Sequence[str]) -> str:
        """Return the address of a task's part of the output, where some indices have loops."""
        variables = self.emitter.variables
        places = [variables[i] if i in indices else "0" for i in self.output.indices]
        return self.emitter.operands.address(self.operand, places)

    def task(self, code: Sequence[str]) -> list[str]:
        """Return the body of a task, from that of its loops over all entries."""
        emitter, nest = self.emitter, self.nest
        part = [index for index in self.output.indices if index not in nest.outer]
        bytes_of = f"{' * '.join(map(self.writer.size, part))} * int64_t{{sizeof(Compute)}}"
        loops = [
            f"for (int64_t {variable} = 0; {variable} < {self.writer.size(index)}; ++{variable}) {{"
            for index in nest.entries
            for variable in [emitter.variables[index]]
        ]
        around = nest.trips(self.output.indices, emitter.ranges)
        emitter.costs.append((1 / emitter.target.lanes, around))
        cleared = f"__builtin_memset({self.address(nest.outer)}, 0, {bytes_of});"
        return [cleared, *loops, *code, "}" * len(loops)]


def listed(values: Iterable[str]) -> str:
    """Return the initializer of an array in C++."""
    return f"{{{', '.join(values)}}}"
