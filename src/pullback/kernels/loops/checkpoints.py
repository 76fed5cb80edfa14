"""Loops with checkpoints: a walk there that keeps a few states, and one back that needs them all.

Before it is run back over, the states of a block of steps are computed again from those that were
kept before it. These, and a few of the block after it, are in memory; on a GPU, where a thread
reads no others', it has its own in a scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.define.math.index import at, size
from pullback.define.math.node import SUM, close, read
from pullback.define.math.parts import open_sums
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.accumulate import BEGIN, END
from pullback.kernels.loops.nest import (
    KEPT,
    PART,
    RING,
    STEPS,
    KernelSetting,
    KernelText,
    Nest,
    Output,
)
from pullback.kernels.loops.newest import order_addends
from pullback.kernels.loops.pointwise import VALUES
from pullback.kernels.loops.scan import MOST_CARRIED, ScanWriter


def write_scan(nest: Nest, setting: KernelSetting) -> KernelText:
    """Return the kernel of a recurrence with checkpoints.

    Raises:
        RefusedLoops: what it reads cannot be read by lanes.
    """
    assert nest.sequential
    assert nest.checkpoints
    (time, direction), first = nest.sequential, nest.checkpoints.first
    last = len(nest.outputs) - len(nest.checkpoints.kept)
    parts = nest.checkpoints.parts
    others = order_addends(nest.outputs[first:last], (time, direction), setting)
    outputs = (
        *order_addends(nest.outputs[:first], (time, -direction), setting),
        *(_cut(o, parts[o.name], setting) if o.name in parts else o for o in others),
        *nest.outputs[last:],
    )
    return CheckpointWriter(replace(nest, outputs=outputs), setting, {}).kernel()


def keep(state: Output, name: str, time: str) -> Output:
    """Return what keeps some steps of a state."""
    indices = tuple(KEPT if index == time else index for index in state.indices)
    node = read(state.name, map(at, state.indices), state.node.type)
    return Output(name=name, indices=indices, node=node, dtype=state.dtype)


def _cut(total: Output, missing: tuple[str, ...], setting: KernelSetting) -> Output:
    """Return all parts of a sum; that over the lanes is now around all others.

    Args:
        total: the sum.
        missing: which indices of tasks it is summed over; the last one is that of the lanes.
        setting: of the kernel.
    """
    ranges, (*outer, lane) = Ranges(setting.ranges), missing
    element = open_sums(total.node, {index: ranges.size(index) for index in missing})
    assert element
    node = close(SUM, lane, ranges.size(lane), element)
    return replace(total, indices=(PART, *outer, *total.indices), node=node)


class CheckpointWriter(ScanWriter):
    """Writes the kernel of both walks.

    Attributes:
        stored: whether a state goes into the scratch, in C++.
    """

    stored = "true"

    def written(self) -> str:
        """Return the whole kernel."""
        nest, emitter, found = self.nest, self.emitter, self.nest.checkpoints
        assert nest.sequential
        assert found
        index, direction = nest.sequential
        top, row = self.open_task()
        around, last = [top, row], len(nest.outputs) - len(found.kept)
        states, others = nest.outputs[: found.first], nest.outputs[found.first : last]
        kept = nest.outputs[last:]
        row.code += self.open_block(states)
        emitter.variables[KEPT] = emitter.name("i")
        row.code += self.open_parts()
        # Where there are its own steps, a state is computed in its own direction.
        emitter.sequential = (index, -direction)
        row.code += self.carry(states)
        self.stored = "keeps" if self.carries_all(states) else "true"
        there = self.write_step(around, states)
        keeping = self.write_step(around, kept, KEPT)
        restoring = self.write_step(around, self.restored(states, kept), KEPT)
        moving = self.move_carried()
        emitter.sequential = nest.sequential
        row.code += self.carry(others)
        back = [*self.write_step(around, others), *self.move_carried()]
        row.code += self.walks(there, keeping, [*restoring, *moving], moving, back)
        return self.function(top, row)

    def open_parts(self) -> list[str]:
        """Return the declarations of the block of lanes of whose sums this task has the parts."""
        nest, emitter = self.nest, self.emitter
        assert nest.checkpoints
        cut = frozenset(o.node for o in nest.outputs if o.name in nest.checkpoints.parts)
        if not cut:
            return []
        emitter.split = cut
        emitter.variables[PART] = emitter.name("i")
        return [
            f"const int64_t {BEGIN} = first, {END} = last;",
            f"const int64_t {emitter.variables[PART]} = first / {nest.block};",
        ]

    def open_block(self, states: Sequence[Output]) -> list[str]:
        """Return the declarations of the steps of a block; in memory there are none."""
        emitter, found = self.emitter, self.nest.checkpoints
        assert found
        mask = "0" if found.scratch else f"({self.extents.text(size(RING))} - 1)"
        emitter.rings |= {name: (emitter.steps[name], mask) for name in found.kept}
        if not found.scratch:
            return []
        emitter.scratch = {state.name: (emitter.name("s"), found.scratch - 1) for state in states}
        types = {state.name: VALUES[state.node.type] for state in states}
        names = {name: variable for name, (variable, _) in emitter.scratch.items()}
        return [f"{types[name]} {names[name]}[{found.scratch}];" for name in names]

    def carry(self, outputs: Sequence[Output]) -> list[str]:
        """Have a lane carry the states of a walk in variables; return their declarations."""
        emitter, found = self.emitter, self.nest.checkpoints
        if self.nest.carries:
            self.find_carried(outputs)
            for state in (o for o in outputs if found and o.name in found.kept):
                # What is kept is read where it is computed.
                emitter.carried.setdefault(state.name, (emitter.name("h"), 0))
        return self.declare_carried()

    def carries_all(self, states: Sequence[Output]) -> bool:
        """Return whether no state on the way there is read but in variables."""
        reads = reads_of([state.node for state in states], self.emitter.scratch)
        backs = map(self.emitter.count_back, reads)
        return all(back is not None and back <= MOST_CARRIED for back in backs)

    def store_in_memory(
        self, output: Output, copy: Mapping[str, int], value: str, *, edge: bool
    ) -> None:
        """Write the statement that stores a value; in a scratch it is what comes before a block."""
        emitter, found = self.emitter, self.nest.checkpoints
        assert self.nest.sequential
        assert found
        if output.name in emitter.scratch:
            scratch, mask = emitter.scratch[output.name]
            place = f"{emitter.variables[self.nest.sequential[0]]} & {mask}"
            emitter.line(f"if ({self.stored}) {scratch}[{place}] = {value};", 1)
            if output.name not in found.ends:
                return
            emitter.line("if (keeps && step == 0)")
        super().store_in_memory(output, copy, value, edge=edge)

    def restored(self, states: tuple[Output, ...], kept: tuple[Output, ...]) -> list[Output]:
        """Return states as what is read where they are kept."""
        return [
            replace(state, node=read(each.name, map(at, each.indices), state.node.type))
            for state, each in zip(states, kept, strict=True)
        ]

    def walks(
        self,
        there: list[str],
        keeping: list[str],
        restoring: list[str],
        moving: list[str],
        back: list[str],
    ) -> list[str]:
        """Return the statements of both walks: steps are counted as the first one takes them.

        All blocks but the last are visited twice: those visits that only keep states come first.
        """
        assert self.nest.sequential
        assert self.nest.checkpoints
        index, direction = self.nest.sequential
        before, steps = self.nest.checkpoints.before, self.size(index)
        every = self.extents.text(size(STEPS))
        time, kept = self.emitter.variables[index], self.emitter.variables[KEPT]
        place = "step" if direction < 0 else f"{steps} - 1 - step"
        at_step = f"[[maybe_unused]] const int64_t {time} = {place};"
        return [
            f"const int64_t blocks = ({steps} + {every} - 1) / {every};",
            "for (int64_t visit = 0; visit < 2 * blocks - 1; ++visit) {",
            "const bool keeps = visit >= blocks - 1;",
            "const int64_t block = keeps ? 2 * (blocks - 1) - visit : visit;",
            f"const int64_t begin = block * {every}, end = least(begin + {every}, {steps});",
            "if (keeps && block > 0) {",
            f"for (int64_t step = begin - {before}; step < begin; ++step) {{",
            *(at_step, f"const int64_t {kept} = block * {before} + step - begin;"),
            *(*restoring, "}", "}"),
            "for (int64_t step = begin; step < end; ++step) {",
            *(at_step, *there),
            f"if (!keeps && step >= end - {before}) {{",
            f"const int64_t {kept} = (block + 1) * {before} + step - end;",
            *(*keeping, "}", *moving, "}"),
            "if (keeps) {",
            "for (int64_t step = end - 1; step >= begin; --step) {",
            *(at_step, *back, "}", "}", "}"),
        ]
