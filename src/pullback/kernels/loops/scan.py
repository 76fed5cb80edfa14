"""Loops of recurrences: threads share what no step mixes, and each runs its steps in order.

A state is a tensor that the kernel writes and reads: `h[t - 1, d]` was stored one step before.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from pullback.define.math.fronts import Fronts
from pullback.define.math.index import at
from pullback.define.math.node import REDUCTIONS, Node, in_order
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.abreast import count_copies, count_vectors, place_states
from pullback.kernels.loops.fetched import FetchedReads
from pullback.kernels.loops.kernel import KernelWriter
from pullback.kernels.loops.nest import KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.newest import order_addends
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.passes import LanePass
from pullback.kernels.loops.pointwise import VALUES
from pullback.kernels.loops.scope import RefusedLoops, Scope

# With fewer tasks than this, each has less.
TASKS = 4
# Further back than this, a lane reads its states from memory.
MOST_CARRIED = 8


def nest_of(  # noqa: PLR0913, PLR0917  (all that decides the loops)
    outputs: Sequence[Output],
    sequential: tuple[str, int],
    lane: str | None,
    setting: KernelSetting,
    fronts: Fronts | None = None,
    summed: Container[str] = (),
) -> Nest:
    """Return the loops of some states and of what is computed from them at the same step.

    Args:
        outputs: the states first, in their order.
        sequential: the index of the steps, and its direction.
        lane: the index of the lanes, the last one of every output that has it.
        setting: with the sizes of a call.
        fronts: if the steps are fronts.
        summed: indices that sums of the same step run over. No threads share them, if there are
            tasks enough without.

    Raises:
        RefusedLoops: a state is read at a step that no index says.
    """
    own = {o.name: fronts.replace_in(o.indices) if fronts else o.indices for o in outputs}
    reads = [read for output in outputs for read in reads_of([output.node], own)]
    if any(sequential[0] not in read.free for read in reads):
        raise RefusedLoops("a state is read at one step for all others")
    shared = [i for i in own[outputs[0].name] if all(i in indices for indices in own.values())]
    free = [
        index
        for index in shared
        if index != sequential[0]
        and all(read.places[own[read.name].index(index)] == at(index) for read in reads)
    ]
    outer = tuple(index for index in free if index != lane)
    together = tuple(index for index in outer if index not in summed)
    is_enough = _count_tasks(together, lane if lane in free else None, setting) >= TASKS
    if is_enough and not setting.target.keeps_states:
        outer = together
    every = dict.fromkeys(i for indices in own.values() for i in indices)
    inner = tuple(i for i in every if i not in (*outer, lane, sequential[0]))
    copies = count_copies(outputs, (), setting)
    if mixed := _find_mixed(outputs, own, lane):
        # Most of a step is those sums, which share what they read of a state.
        copies = min(copies, len(mixed))
    nest = Nest(
        outputs=tuple(outputs),
        lane=lane,
        outer=outer,
        sequential=sequential,
        inner=inner,
        vectors=max(
            1, min(4, setting.target.chains // copies, setting.target.block // setting.target.lanes)
        ),
        meets=not (lane in free and all(lane in indices for indices in own.values())),
        fronts=fronts,
    )
    target = setting.target
    if not (inner or fronts or lane or target.keeps_states):
        return replace(nest, carries=True)
    if nest.meets or (inner and target.keeps_states):
        return nest if fronts else place_states(nest, mixed, setting)
    if target.keeps_states:
        return replace(nest, block=target.block, carries=True)
    if not inner and setting.measure(str(lane)) <= target.lanes:
        return replace(nest, vectors=1, block=target.lanes, carries=True)
    return replace(nest, block=_choose_block(nest, setting))


def join_tasks(nest: Nest, sums: Sequence[frozenset[str]], setting: KernelSetting) -> Nest:
    """Return the loops of which each task has all of some indices, for what is summed over them.

    A task has all of the lanes' index, too. A GPU would have too few tasks: there each has a part
    of the sums over lanes, which run along the index that leaves least to one thread.

    Args:
        nest: the loops.
        sums: which indices each output is summed over.
        setting: with the sizes of a call.
    """
    lane, is_shared = nest.lane, setting.target.keeps_states and not nest.meets
    summed = frozenset[str]().union(*sums)
    if is_shared and lane in summed:

        def left(lane: str) -> frozenset[str]:
            # Of parts that are sums over lanes there may be many.
            return frozenset[str]().union(*(each for each in sums if lane not in each))

        own = [index for index in (lane, *reversed(nest.outer)) if index in summed]
        lane = min(own, key=lambda lane: math.prod(map(setting.measure, left(lane))))
        summed = left(lane)
    every = {i: None for output in nest.outputs for i in nest.run_over(output)}
    outer = tuple(i for i in (*nest.outer, nest.lane) if i and i != lane and i not in summed)
    assert nest.sequential
    inner = tuple(i for i in every if i not in (*outer, lane, nest.sequential[0]))
    block = setting.target.block if is_shared and lane else 0
    return replace(nest, lane=lane, outer=outer, inner=inner, block=block)


def _find_mixed(
    outputs: Sequence[Output], own: Mapping[str, Sequence[str]], lane: str | None
) -> list[Node]:
    """Return the sums over the lanes of states."""
    if lane is None:
        return []

    def is_across(read: Node) -> bool:
        indices = own[read.name]
        return lane in indices and read.places[indices.index(lane)] != at(lane)

    sums = (each for each in in_order(o.node for o in outputs) if each.op in REDUCTIONS)
    return [each for each in sums if any(map(is_across, reads_of([each], own)))]


def _count_tasks(outer: Iterable[str], lane: str | None, setting: KernelSetting) -> int:
    """Return how many tasks there may be, if each has a vector of the lanes' index."""
    vectors = -(-setting.measure(lane) // setting.target.lanes) if lane else 1
    return vectors * math.prod(setting.measure(index) for index in outer)


def _choose_block(nest: Nest, setting: KernelSetting) -> int:
    """Return how many values of the lanes' index a task has."""
    tasks = math.prod(setting.measure(index) for index in nest.outer)
    lanes, block = setting.measure(str(nest.lane)), setting.target.block
    while block > nest.vectors * setting.target.lanes and tasks * -(-lanes // block) < TASKS:
        block //= 2
    return block if lanes > block else 0


def write_scan(nest: Nest, setting: KernelSetting) -> KernelText:
    """Return the kernel of a recurrence.

    Raises:
        RefusedLoops: what it reads cannot be read by lanes.
    """
    assert nest.sequential
    if nest.fronts is None:
        nest = replace(nest, outputs=order_addends(nest.outputs, nest.sequential, setting))
    writer = ScanWriter(nest, setting, {})
    return (StepWriter(nest, setting, {}) if writer.is_unfetched else writer).kernel()


class ScanWriter(KernelWriter):
    """Writes the kernel of one walk over the steps.

    Attributes:
        fetches: whether the reads of several steps may be made at a time.
        is_unfetched: whether they were meant to be, and it was not possible.
    """

    fetches = True
    is_unfetched = False

    def written(self) -> str:
        """Return the whole kernel."""
        top, row = self.open_task()
        assert self.nest.sequential
        index, direction = self.nest.sequential
        if self.nest.carries:
            self.find_carried(self.nest.outputs)
        fetched = self.emitter.fetched = self.find_fetched(index)
        code = [*self.write_step([top, row], self.nest.outputs), *self.move_carried()]
        time, size = self.emitter.variables[index], self.size(index)
        head = f"for (int64_t {time} = 0; {time} < {size}; ++{time})"
        if direction < 0:
            head = f"for (int64_t {time} = {size} - 1; {time} >= 0; --{time})"
        walk = [f"{head} {{", *code, "}"]
        if fetched:
            many = fetched.count_steps(code, self.emitter.target.fetched)
            self.is_unfetched = many == 0 and bool(fetched.arrays)
            walk = fetched.write(code, many, size, "first") if many else walk
        steps = [*self.declare_carried(), *walk]
        if self.has_parts:
            steps = ["for (int64_t part = first; part < last; part += lanes) {", *steps, "}"]
        row.code += steps
        return self.function(top, row)

    def find_fetched(self, index: str) -> FetchedReads | None:
        """Return what is to hold the reads of several steps; None where each step reads its own."""
        nest = self.nest
        is_one = nest.carries and nest.block == self.emitter.target.lanes and nest.vectors == 1
        if not self.fetches or not self.emitter.target.fetched or not is_one:
            return None
        if nest.inner or nest.rows > 1:
            return None
        return FetchedReads(self.emitter, index, {output.name for output in nest.outputs})

    @property
    def has_parts(self) -> bool:
        """Whether a task that carries states has several vectors where registers are narrower."""
        return self.nest.carries and self.nest.block > 0 and not self.emitter.target.keeps_states

    def open_task(self) -> tuple[Scope, Scope]:
        """Return the scopes of all tasks and of one."""
        nest, emitter = self.nest, self.emitter
        assert nest.sequential
        index, direction = nest.sequential
        emitter.divisors.see(output.node for output in nest.outputs)
        row = Scope(indices=frozenset(nest.outer), trips=nest.trips(nest.outer, self.ranges))
        emitter.outer, emitter.fronts = row.indices, nest.fronts
        emitter.steps = {o.name: o.indices.index(index) for o in nest.outputs if index in o.indices}
        emitter.rings = {n: (emitter.steps[n], f"{many - 1}") for n, many in nest.rings.items()}
        for each in (*nest.outer, *nest.inner, index):
            emitter.variables[each] = emitter.name("i")
        emitter.sequential = nest.sequential
        if direction < 0 and not nest.carries:
            emitter.around = index, direction
        return emitter.here, row

    def write_step(self, around: list[Scope], outputs: Sequence[Output], *more: str) -> list[str]:
        """Return the code of a step, which computes some outputs.

        Args:
            around: the scopes of all tasks and of one.
            outputs: the outputs.
            more: indices that have a value in a step, besides that of the steps.
        """
        nest, emitter = self.nest, self.emitter
        assert nest.sequential
        index, row = nest.sequential[0], around[-1]
        trips = (*row.trips, (self.ranges.size(index), 1))
        step = Scope(indices=frozenset({index, *more}), trips=trips)
        emitter.scopes = [*around, step]
        for stage in self.nest.stages(outputs):
            self.write_stage(stage, [i for i in nest.inner if i in nest.run_over(stage[0])])
            if nest.meets and (meeting := emitter.target.write_meeting()):
                emitter.line(meeting)
        return step.code

    def find_carried(self, outputs: Sequence[Output]) -> None:
        """Find which states of a walk a lane keeps in variables; it reads no others' here."""
        emitter, most = self.emitter, dict[str, int]()
        own = {output.name for output in outputs} & emitter.steps.keys()
        for read in reads_of([output.node for output in outputs], own):
            back = emitter.count_back(read)
            if back is not None and back <= MOST_CARRIED:
                most[read.name] = max(most.get(read.name, 0), back)
        emitter.carried = {name: (emitter.name("h"), back) for name, back in most.items()}

    def move_carried(self) -> list[str]:
        """Return what makes each state of these variables one step older."""
        return [
            f"{variable}_{back} = {variable}_{back - 1};"
            for variable, most in self.emitter.carried.values()
            for back in range(most, 0, -1)
        ]

    def declare_carried(self) -> list[str]:
        """Return the declarations of their variables; what is read before a step is not used."""
        types = {output.name: VALUES[output.node.type] for output in self.nest.outputs}
        return [
            f"[[maybe_unused]] {types[name]} {variable}_{back}{{}};"
            for name, (variable, most) in self.emitter.carried.items()
            for back in range(most + 1)
        ]

    def write_stage(self, stage: Sequence[Output], inner: Sequence[str]) -> None:
        """Write the loops of some outputs within a step."""
        emitter, nest, lane = self.emitter, self.nest, self.nest.lane
        if inner:
            index, *rest = inner
            variable, size = emitter.variables[index], self.ranges.size(index)
            scope = Scope(indices=frozenset({index}), trips=emitter.trips_over(size))
            emitter.scopes = [*emitter.scopes, scope]
            self.write_stage(stage, rest)
            emitter.scopes = emitter.scopes[:-1]
            begin, end = self.ends(index)
            head = f"for (int64_t {variable} = {begin}; {variable} < {end}; ++{variable})"
            emitter.line("\n".join([f"{head} {{", *scope.code, "}"]))
            return
        emitter.prepare(output.node for output in stage)
        if lane not in stage[0].indices:
            self.store_outputs(stage, edge=False)
            return
        run = LanePass(emitter, str(lane), count_vectors(emitter, nest, stage), once=nest.carries)
        text = run.written(
            lambda: self.store_outputs(stage, edge=False),
            lambda: self.store_outputs(stage, edge=True),
        )
        begin, end = ("first", "last") if nest.shares_lanes else self.ends(str(lane))
        begin = "part" if self.has_parts else begin  # each of which runs all steps
        emitter.line(text.replace("@begin", begin).replace("@end", end))

    def store_outputs(self, outputs: Sequence[Output], *, edge: bool) -> None:
        """Write the values of some outputs, those after a state that they read at the same step."""
        together: list[Output] = []
        for output in outputs:
            own = {other.name for other in together}
            if any(self.emitter.count_back(r) == 0 for r in reads_of([output.node], own)):
                super().store_outputs(together, edge=edge)
                together = []
            together.append(output)
        super().store_outputs(together, edge=edge)

    def store(self, output: Output, copy: Mapping[str, int], value: str, *, edge: bool) -> None:
        """Write the statements that store a value."""
        if output.name in self.emitter.carried:
            self.emitter.line(f"{self.emitter.carried[output.name][0]}_0 = {value};")
        self.store_in_memory(output, copy, value, edge=edge)

    def store_in_memory(
        self, output: Output, copy: Mapping[str, int], value: str, *, edge: bool
    ) -> None:
        """Write the statement that stores a value; one of a front lies across its tensor."""
        emitter, fronts, lane = self.emitter, self.nest.fronts, self.nest.lane
        if fronts is None or fronts.gone not in output.indices:
            super().store(output, copy, value, edge=edge)
            return
        operand = Operand(output.name, None, output.dtype, len(output.indices))
        places = [fronts.place if i == fronts.gone else at(i) for i in output.indices]
        address = emitter.operands.address(
            operand, [emitter.places.place(place, copy) for place in places]
        )
        if lane is None:
            emitter.line(f"store_one<{operand.stored}>({address}, {value});", 2)
            return
        steps = [(emitter.operands.step(operand, d), p.factor(lane)) for d, p in enumerate(places)]
        step = " + ".join(f"{size} * {factor}" for size, factor in steps if factor)
        count = f"least(@last - ({emitter.places.index(lane, copy)}), lanes)" if edge else "lanes"
        emitter.line(f"store_some<{operand.stored}>({address}, {step}, {value}, {count});", 16)

    def ends(self, index: str) -> tuple[str, str]:
        """Return where an index begins and ends within a step: of a front, its elements."""
        fronts, size = self.nest.fronts, self.size(index)
        if fronts is None or index != fronts.along:
            return "0", size
        factor = fronts.factor
        rest = self.emitter.places.place(fronts.place + at(index) * factor, {})
        many = self.extents.text(fronts.extents[0])
        # 0 <= rest - factor*index < many.
        low, high = f"{rest} - {many} + {factor}", rest
        if factor < 0:
            low, high = f"-({rest}) - {factor + 1}", f"{many} - 1 - ({rest})"
        divided = [f"floor_divide({end}, int64_t{{{abs(factor)}}})" for end in (low, high)]
        names = self.emitter.name("begin"), self.emitter.name("end")
        self.emitter.line(f"const int64_t {names[0]} = most({divided[0]}, 0);")
        self.emitter.line(f"const int64_t {names[1]} = least({divided[1]} + 1, {size});")
        return names


class StepWriter(ScanWriter):
    """Writes the same with the reads of each step where they are needed."""

    fetches = False


def is_at_step(node: Node, states: Iterable[str], sequential: tuple[str, int]) -> bool:
    """Return whether all that a node reads of some states is there when its step is computed."""
    index, direction = sequential
    for read in reads_of([node], states):
        shifts = [place - at(index) for place in read.places if index in place.free]
        if len(shifts) != 1 or shifts[0].terms or shifts[0].constant * direction > 0:
            return False
    return True
