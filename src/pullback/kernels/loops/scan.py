"""Loops of recurrences: threads share what no step mixes, and each runs its steps in order.

A state is a tensor that the kernel writes and reads: `h[t - 1, d]` was stored one step before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pullback.define.math.index import at
from pullback.define.math.node import Node
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.abreast import count_vectors, write_rows
from pullback.kernels.loops.fetched import FetchedReads
from pullback.kernels.loops.kernel import KernelWriter
from pullback.kernels.loops.nest import KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.newest import order_addends
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.passes import LanePass
from pullback.kernels.loops.pointwise import VALUES
from pullback.kernels.loops.scope import Scope

# Further back than this, a lane reads its states from memory.
MOST_CARRIED = 8


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
        end_of_rows: where the rows of a task end, in C++.
        fetches: whether the reads of several steps may be made at a time.
        is_unfetched: whether they were meant to be, and it was not possible.
    """

    end_of_rows = ""
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
        outer = frozenset(nest.outer)
        if nest.tile:
            # Through the rows of a task each stage has loops of its own.
            emitter.tile = None
            del emitter.counts[nest.tile]
        row = Scope(indices=outer - {nest.tile}, trips=nest.trips(nest.outer, self.ranges))
        emitter.outer, emitter.fronts = outer, nest.fronts
        emitter.steps = {o.name: o.indices.index(index) for o in nest.outputs if index in o.indices}
        emitter.rings = {n: (emitter.steps[n], f"{many - 1}") for n, many in nest.rings.items()}
        for each in (*nest.outer, *nest.inner, index):
            emitter.variables[each] = emitter.name("i")
        if nest.tile:
            row.code.append(self.open_rows(nest.tile))
        emitter.sequential = nest.sequential
        if direction < 0 and not nest.carries:
            emitter.around = index, direction
        return emitter.here, row

    def open_rows(self, index: str) -> str:
        """Return the declaration of where the rows end that a thread takes together."""
        nest, self.end_of_rows = self.nest, self.emitter.name("end")
        last = f"{self.emitter.variables[index]} + {nest.rows}"
        if nest.together > 1:
            last = f"least(task + {nest.together}, end) * {nest.rows}"
        return f"const int64_t {self.end_of_rows} = least({last}, {self.size(index)});"

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
            inner = [i for i in nest.inner if i in nest.run_over(stage[0])]
            rows = [nest.tile] if nest.tile and not nest.has_tiles(stage) else []
            self.write_stage(stage, [*rows, *inner])
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

    @contextmanager
    def rows_beside(self, stage: Sequence[Output]) -> Generator[None]:
        """Write the loop of a task's rows, those of a tile side by side, if a stage has any.

        All of them read the same part of a matrix one after the other, from a cache nearby.
        """
        emitter, nest, index = self.emitter, self.nest, self.nest.tile
        if index is None or not nest.has_tiles(stage):
            yield
            return
        here, outside = emitter.here, emitter.variables[index]
        begin, end = self.ends(index)
        first = emitter.variables[index] = emitter.name("i")
        scope = Scope(
            indices=frozenset({index}),
            lane=here.lane,
            edge=here.edge,
            run=here.run,
            trips=here.trips,
            code=write_rows(first, nest.rows, self.size(index)),
        )
        emitter.scopes = [*emitter.scopes, scope]
        emitter.tile, emitter.counts[index] = index, nest.rows
        yield
        emitter.tile = None
        del emitter.counts[index]
        emitter.scopes = emitter.scopes[:-1]
        emitter.variables[index] = outside
        head = f"for (int64_t {first} = {begin}; {first} < {end}; {first} += {nest.rows})"
        emitter.line("\n".join([f"{head} {{", *scope.code, "}"]))

    def write_stage(self, stage: Sequence[Output], inner: Sequence[str]) -> None:
        """Write the loops of some outputs within a step."""
        emitter, nest, lane = self.emitter, self.nest, self.nest.lane
        if inner:
            index, *rest = inner
            outside, size = emitter.variables[index], self.ranges.size(index)
            begin, end = self.ends(index)
            variable = emitter.variables[index] = emitter.name("i")
            scope = Scope(indices=frozenset({index}), trips=emitter.trips_over(size))
            emitter.scopes = [*emitter.scopes, scope]
            self.write_stage(stage, rest)
            emitter.scopes = emitter.scopes[:-1]
            emitter.variables[index] = outside
            head = f"for (int64_t {variable} = {begin}; {variable} < {end}; ++{variable})"
            emitter.line("\n".join([f"{head} {{", *scope.code, "}"]))
            return

        def write(*, edge: bool) -> None:
            with self.rows_beside(stage):
                self.store_outputs(stage, edge=edge)

        if not nest.has_tiles(stage):
            emitter.prepare(output.node for output in stage)
        if lane not in stage[0].indices:
            write(edge=False)
            return
        run = LanePass(emitter, str(lane), count_vectors(emitter, nest, stage), once=nest.carries)
        text = run.written(lambda: write(edge=False), lambda: write(edge=True))
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
        if index == self.nest.tile:
            return self.emitter.variables[index], self.end_of_rows
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
