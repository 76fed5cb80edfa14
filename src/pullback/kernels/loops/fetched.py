"""What a recurrence reads of its inputs, for several steps at a time and before it is needed.

On a GPU a thread waits for memory in each step, some 700 clocks for a product and a sum: nvcc may
not move a load before the stores of earlier steps. So a block of steps begins with all its loads,
into variables, for which the steps are written out. What is the same in all steps is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.math.node import Node
from pullback.kernels.loops.scope import Copy

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

# Variables for what was read, of the 255 registers that a thread may have; steps at least.
MOST_VALUES, LEAST_STEPS = 48, 4
# Lines of the steps of a block, which a compiler has to read.
MOST_LINES = 600


class FetchedReads:
    """The reads of one walk over the steps that are made before them.

    Attributes:
        emitter: what writes it.
        time: the index of the steps.
        outputs: the names of what the kernel writes, and may read too.
        step: the variable that counts them within a block.
        arrays: of each read, by the lanes' variable, the array of its values; a variable if it is
            the same in all steps.
        loads: the lanes' variable, and what loads each at one step, at an edge of the lanes too.
        same: which of them are variables.
    """

    def __init__(self, emitter: Emitter, time: str, outputs: Collection[str]) -> None:
        self.emitter, self.time, self.outputs = emitter, time, outputs
        self.step = emitter.name("k")
        self.arrays: dict[tuple[str, Node, Copy], str] = {}
        self.loads: dict[str, tuple[str, str]] = {}
        self.same: dict[str, None] = {}

    def replace(self, node: Node, copy: Mapping[str, int], load: str) -> str:
        """Return what stands for a read: the value that was read before, if it is one of an input.

        Args:
            node: the read.
            copy: which one of those side by side.
            load: what would load it here.
        """
        emitter, here = self.emitter, self.emitter.here
        is_known = node.free <= {self.time, here.lane, *emitter.outer}
        is_input = node.name not in self.outputs and node.type == "real"
        gathers = any(place.nodes for place in node.places)
        is_inside = any(self.time in scope.indices for scope in emitter.scopes)
        if not is_inside or not is_known or not is_input or gathers:
            return load
        lane = emitter.variables[here.lane] if here.lane else ""
        array = self.arrays.setdefault((lane, node, tuple(copy.items())), emitter.name("ahead"))
        if here.edge or not lane:
            self.loads[array] = lane, load
        if self.time in node.free:
            return f"{array}[{self.step}]"
        self.same[array] = None
        return array

    def count_steps(self, code: Sequence[str], most: int) -> int:
        """Return how many steps a block has; 0 if it is not worth it, or not possible."""
        lines = sum(text.count("\n") + 1 for text in code)
        arrays = {*self.arrays.values()} - self.same.keys()
        if not arrays or {*self.arrays.values()} - self.loads.keys():
            return 0
        steps = min(most, MOST_VALUES // len(arrays), MOST_LINES // max(1, lines))
        return steps if steps >= LEAST_STEPS else 0

    def write(self, code: Sequence[str], steps: int, size: str, first: str) -> list[str]:
        """Return the loop over blocks of steps.

        Args:
            code: of a step.
            steps: of a block.
            size: how many steps there are.
            first: the first lane of a task.
        """
        assert self.emitter.sequential
        time, k, begin = self.emitter.variables[self.time], self.step, self.emitter.name("begin")
        back = self.emitter.sequential[1] < 0
        at = f"{size} - 1 - ({begin} + {k})" if back else f"{begin} + {k}"
        clamped = f"most({at}, int64_t(0))" if back else f"least({at}, {size} - 1)"
        each = f'_Pragma("unroll") for (int {k} = 0; {k} < {steps}; ++{k})'
        lanes = sorted({lane for lane, _ in self.loads.values() if lane})
        places = [f"const int64_t {lane} = {first};" for lane in lanes]
        arrays = {name: load for name, (_, load) in self.loads.items() if name not in self.same}
        return [
            *(f"Real {name}{{}};" for name in self.same),
            f"if ({size} > 0) {{",  # where there is no step, there may be nothing to read
            *places,
            *(f"{name} = {load};" for name, (_, load) in self.loads.items() if name in self.same),
            "}",
            f"for (int64_t {begin} = 0; {begin} < {size}; {begin} += {steps}) {{",
            *(f"Real {name}[{steps}];" for name in arrays),
            f"{each} {{",
            f"const int64_t {time} = {clamped};",
            *places,
            *(f"{name}[{k}] = {load};" for name, load in arrays.items()),
            "}",
            f"{each} if ({begin} + {k} < {size}) {{",
            f"const int64_t {time} = {at};",
            *code,
            "}",
            "}",
        ]
