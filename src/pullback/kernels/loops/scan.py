"""Loops of recurrences: threads share what no step mixes, and each runs its steps in order.

A state is a tensor that the kernel writes and reads: `h[t - 1, d]` was stored one step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pullback.define.math.index import at
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.abreast import count_copies
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.kernel import KernelWriter
from pullback.kernels.loops.nest import KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.passes import LanePass
from pullback.kernels.loops.scope import RefusedLoops, Scope

# Values of the lanes' index that a task has, where no step mixes them: rows of some kilobytes.
BLOCK = 1024
# With fewer tasks than this, a block is a part of it.
TASKS = 4
# An index with fewer values is not worth the lanes.
FEW = 4


def nest_of(
    outputs: Sequence[Output],
    sequential: tuple[str, int],
    setting: KernelSetting,
) -> Nest:
    """Return the loops of some states and of what is computed from them at the same step.

    Args:
        outputs: the states first, in their order.
        sequential: the index of the steps, and its direction.
        setting: with the sizes of a call.

    Raises:
        RefusedLoops: a state is read at a step that no index says.
    """
    names = {output.name: output.indices for output in outputs}
    reads = [read for output in outputs for read in reads_of([output.node], names)]
    if any(sequential[0] not in read.free for read in reads):
        raise RefusedLoops("a state is read at one step for all others")
    shared = [i for i in outputs[0].indices if all(i in o.indices for o in outputs)]
    free = [
        index
        for index in shared
        if index != sequential[0]
        and all(read.places[names[read.name].index(index)] == at(index) for read in reads)
    ]
    lane = _choose_lane(outputs, sequential[0], setting)
    outer = tuple(index for index in free if index != lane)
    every = dict.fromkeys(i for output in outputs for i in output.indices)
    inner = tuple(i for i in every if i not in (*outer, lane, sequential[0]))
    copies = count_copies(outputs, (), setting)
    nest = Nest(
        outputs=tuple(outputs),
        lane=lane,
        outer=outer,
        sequential=sequential,
        inner=inner,
        vectors=max(1, min(4, setting.target.chains // copies)),
    )
    is_free = lane in free and not inner and all(lane in output.indices for output in outputs)
    return replace(nest, block=_choose_block(nest, setting) if is_free else 0)


def _choose_lane(outputs: Sequence[Output], sequential: str, setting: KernelSetting) -> str | None:
    """Return the index of the lanes: the last one, unless it is too short."""
    extents, ranges = Extents(setting.typical), Ranges(setting.ranges)
    own = [i for i in outputs[0].indices if i != sequential]
    if not own:
        return None
    sizes = {i: extents.number(ranges.size(i)) or 1 for i in own}
    return own[-1] if sizes[own[-1]] >= FEW else max(own, key=lambda i: sizes[i])


def _choose_block(nest: Nest, setting: KernelSetting) -> int:
    """Return how many values of the lanes' index a task has."""
    extents, ranges = Extents(setting.typical), Ranges(setting.ranges)
    tasks = 1
    for index in nest.outer:
        tasks *= extents.number(ranges.size(index)) or 1
    lanes, block = extents.number(ranges.size(str(nest.lane))) or 1, BLOCK
    while block > nest.vectors * setting.target.lanes and tasks * -(-lanes // block) < TASKS:
        block //= 2
    return block if lanes > block else 0


def write_scan(nest: Nest, setting: KernelSetting) -> KernelText:
    """Return the kernel of a recurrence.

    Raises:
        RefusedLoops: what it reads cannot be read by lanes.
    """
    return _ScanWriter(nest, setting, {}).kernel()


class _ScanWriter(KernelWriter):
    def written(self) -> str:
        """Return the whole kernel."""
        nest, emitter = self.nest, self.emitter
        assert nest.sequential
        index, direction = nest.sequential
        top = emitter.here
        emitter.divisors.see(output.node for output in nest.outputs)
        row = Scope(
            indices=frozenset(nest.outer),
            trips=tuple((self.ranges.size(i), 1) for i in nest.outer),
        )
        step = Scope(indices=frozenset({index}), trips=(*row.trips, (self.ranges.size(index), 1)))
        emitter.outer = row.indices
        emitter.rings = {
            output.name: (output.indices.index(index), nest.rings[output.name])
            for output in nest.outputs
            if output.name in nest.rings
        }
        for each in (*nest.outer, *nest.inner, index):
            emitter.variables[each] = emitter.name("i")
        emitter.scopes = [top, row, step]
        for stage in self.stages():
            self.write_stage(stage, [i for i in nest.inner if i in stage[0].indices])
        time, size = emitter.variables[index], self.size(index)
        head = f"for (int64_t {time} = 0; {time} < {size}; ++{time})"
        if direction < 0:
            head = f"for (int64_t {time} = {size} - 1; {time} >= 0; --{time})"
        row.code += [f"{head} {{", *step.code, "}"]
        return self.function(top, row)

    def stages(self) -> Iterator[tuple[Output, ...]]:
        """Yield the outputs that are computed together, in an order in which all is there."""
        for _, group in groupby(self.nest.outputs, key=lambda output: frozenset(output.indices)):
            yield tuple(group)

    def write_stage(self, stage: Sequence[Output], inner: Sequence[str]) -> None:
        """Write the loops of some outputs within a step."""
        emitter, lane = self.emitter, self.nest.lane
        if inner:
            index, *rest = inner
            variable, size = emitter.variables[index], self.ranges.size(index)
            scope = Scope(indices=frozenset({index}), trips=emitter.trips_over(size))
            emitter.scopes = [*emitter.scopes, scope]
            self.write_stage(stage, rest)
            emitter.scopes = emitter.scopes[:-1]
            head = f"for (int64_t {variable} = 0; {variable} < {self.size(index)}; ++{variable})"
            emitter.line("\n".join([f"{head} {{", *scope.code, "}"]))
            return
        emitter.prepare(output.node for output in stage)
        if lane not in stage[0].indices:
            self.store_outputs(stage, edge=False)
            return
        run = LanePass(emitter, str(lane), self.nest.vectors)
        text = run.written(
            lambda: self.store_outputs(stage, edge=False),
            lambda: self.store_outputs(stage, edge=True),
        )
        begin, end = ("first", "last") if self.nest.shares_lanes else ("0", self.size(str(lane)))
        emitter.line(text.replace("@begin", begin).replace("@end", end))


def is_at_step(node: Node, states: Iterable[str], sequential: tuple[str, int]) -> bool:
    """Return whether all that a node reads of some states is there when its step is computed."""
    index, direction = sequential
    for read in reads_of([node], states):
        shifts = [place - at(index) for place in read.places if index in place.free]
        if len(shifts) != 1 or shifts[0].terms or shifts[0].constant * direction > 0:
            return False
    return True
