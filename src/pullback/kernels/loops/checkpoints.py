"""Loops with checkpoints: a walk there that keeps a few states, and one back that needs them all.

Some of the last states are in memory, of a block of steps and of the block after it. Before it is
run back over, the states of a block are computed again from those that were kept before it.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.define.math.index import at, size
from pullback.define.math.node import read
from pullback.kernels.loops.nest import KEPT, RING, STEPS, KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.scan import ScanWriter, order_addends


def write_scan(nest: Nest, setting: KernelSetting) -> KernelText:
    """Return the kernel of a recurrence with checkpoints.

    Raises:
        RefusedLoops: what it reads cannot be read by lanes.
    """
    assert nest.sequential
    assert nest.checkpoints
    (time, direction), first = nest.sequential, nest.checkpoints.first
    last = len(nest.outputs) - len(nest.checkpoints.kept)
    outputs = (
        *order_addends(nest.outputs[:first], (time, -direction), setting),
        *order_addends(nest.outputs[first:last], (time, direction), setting),
        *nest.outputs[last:],
    )
    return _CheckpointWriter(replace(nest, outputs=outputs), setting, {}).kernel()


def keep(state: Output, name: str, time: str) -> Output:
    """Return what keeps some steps of a state."""
    indices = tuple(KEPT if index == time else index for index in state.indices)
    node = read(state.name, map(at, state.indices), state.node.type)
    return Output(name=name, indices=indices, node=node, dtype=state.dtype)


class _CheckpointWriter(ScanWriter):
    def written(self) -> str:
        """Return the whole kernel."""
        nest, emitter, found = self.nest, self.emitter, self.nest.checkpoints
        assert nest.sequential
        assert found
        index, direction = nest.sequential
        top, row = self.open_task()
        mask = f"({self.extents.text(size(RING))} - 1)"
        emitter.rings |= {name: (emitter.steps[name], mask) for name in found.kept}
        around, last = [top, row], len(nest.outputs) - len(found.kept)
        states, others = nest.outputs[: found.first], nest.outputs[found.first : last]
        kept = nest.outputs[last:]
        emitter.variables[KEPT] = emitter.name("i")
        # Where there are its own steps, a state is computed in its own direction.
        emitter.sequential = (index, -direction)
        there = self.write_step(around, states)
        keeping = self.write_step(around, kept, KEPT)
        restoring = self.write_step(around, self.restored(states, kept), KEPT)
        emitter.sequential = nest.sequential
        back = self.write_step(around, others)
        row.code += self.walks(there, keeping, restoring, back)
        return self.function(top, row)

    def restored(self, states: tuple[Output, ...], kept: tuple[Output, ...]) -> list[Output]:
        """Return states as what is read where they are kept."""
        return [
            replace(state, node=read(each.name, map(at, each.indices), state.node.type))
            for state, each in zip(states, kept, strict=True)
        ]

    def walks(
        self, there: list[str], keeping: list[str], restoring: list[str], back: list[str]
    ) -> list[str]:
        """Return the statements of both walks: steps are counted as the first one takes them."""
        assert self.nest.sequential
        assert self.nest.checkpoints
        index, direction = self.nest.sequential
        before, steps = self.nest.checkpoints.before, self.size(index)
        every = self.extents.text(size(STEPS))
        time, kept = self.emitter.variables[index], self.emitter.variables[KEPT]

        def at_step(step: str) -> str:
            place = step if direction < 0 else f"{steps} - 1 - ({step})"
            return f"[[maybe_unused]] const int64_t {time} = {place};"

        def copied(code: list[str], end: str, block: str) -> list[str]:
            return [
                f"for (int64_t k = 0; k < {before}; ++k) {{",
                at_step(f"{end} - {before} + k"),
                f"const int64_t {kept} = ({block}) * {before} + k;",
                *code,
                "}",
            ]

        return [
            f"const int64_t blocks = ({steps} + {every} - 1) / {every};",
            "const auto compute = [&](const int64_t begin, const int64_t end) {",
            "for (int64_t step = begin; step < end; ++step) {",
            *(at_step("step"), *there, "}", "};"),
            "for (int64_t block = 0; block + 1 < blocks; ++block) {",
            f"const int64_t begin = block * {every}, end = begin + {every};",
            "compute(begin, end);",
            *(*copied(keeping, "end", "block"), "}"),
            "for (int64_t block = blocks - 1; block >= 0; --block) {",
            f"const int64_t begin = block * {every}, end = least(begin + {every}, {steps});",
            "if (block > 0) {",
            *(*copied(restoring, "begin", "block - 1"), "}"),
            "compute(begin, end);",
            "for (int64_t step = end - 1; step >= begin; --step) {",
            *(at_step("step"), *back, "}", "}"),
        ]
