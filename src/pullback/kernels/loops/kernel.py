"""One kernel: outer loops that threads share, a run of the lanes, and what it stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pullback.define.math.index import Affine
from pullback.define.math.node import Node
from pullback.kernels.loops.abreast import write_rows, write_versions
from pullback.kernels.loops.accumulate import APART, BEGIN, END
from pullback.kernels.loops.emit import Emitter
from pullback.kernels.loops.nest import CHUNKS, KernelSetting, KernelText, Nest, Output
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.passes import LanePass
from pullback.kernels.loops.pushes import Pushes
from pullback.kernels.loops.rows import Buffered, KeptRows
from pullback.kernels.loops.scope import RefusedLoops, Scope
from pullback.kernels.loops.scratch import TaskMemory


def write_kernel(nest: Nest, setting: KernelSetting) -> KernelText:
    """Return the kernel of some loops. It is written twice: first to find what is worth keeping."""
    first = KernelWriter(nest, setting, {})
    rows = KeptRows(first.emitter)
    if not rows or nest.is_split:
        return first.kernel()
    kept = rows.apart(rows.spans)
    if setting.target.keeps_reads:
        kept = find_room(nest, setting, rows)
    return KernelWriter(nest, setting, kept).kernel() if kept else first.kernel()


def find_room(nest: Nest, setting: KernelSetting, rows: KeptRows) -> Buffered:
    """Return the buffers of as much of a kernel's rows as there is room for."""
    kept = [node for node in rows.spans if setting.target.keeps([rows.length(node)])]
    while kept:
        rows = KeptRows(KernelWriter(nest, setting, rows.apart(kept)).emitter)
        if len(rows.spans) < len(kept):
            # The others are parts of what is kept.
            kept = list(rows.spans)
            continue
        buffered = rows.shared()
        if setting.target.keeps(rows.lengths(buffered)):
            return buffered
        kept.remove(rows.least_worth())
    return {}


class KernelWriter:
    """Writes the kernel of one nest."""

    def __init__(self, nest: Nest, setting: KernelSetting, kept: Buffered) -> None:
        self.nest, self.kept = nest, kept
        self.emitter = emitter = Emitter(setting)
        self.extents, self.ranges = emitter.extents, emitter.ranges
        emitter.buffered = kept
        emitter.tile, emitter.turns, emitter.held.index = nest.tile, nest.turns, nest.held
        emitter.around = (nest.over, 1) if nest.tile and nest.over else None
        emitter.is_tiled = nest.turns > 1 or bool(nest.block and nest.rows > 1)
        if nest.lane is None:
            emitter.shortest_row = setting.target.shortest
        else:
            emitter.row_lanes.add(nest.lane)
        if nest.tile:
            emitter.counts[nest.tile] = nest.rows
        for index in nest.small:
            number = self.extents.number(self.ranges.size(index))
            assert number is not None
            emitter.written.add(index)
            emitter.counts[index] = number
        self.abreast = 0
        self.text = self.written()

    def size(self, index: str) -> str:
        """Return how far an index runs, in C++."""
        return self.extents.text(self.ranges.size(index))

    def written(self) -> str:
        """Return the whole kernel."""
        nest, emitter = self.nest, self.emitter
        top = emitter.here
        emitter.divisors.see(output.node for output in nest.outputs)
        around = [nest.over] if nest.over and not nest.is_split else nest.entries
        loops = [*nest.outer, *around]
        if nest.is_split:
            emitter.split = frozenset(output.node for output in nest.outputs)
        row = Scope(indices=frozenset(loops), trips=nest.trips(loops, self.ranges))
        emitter.outer = row.indices
        for index in loops:
            emitter.variables[index] = emitter.name("i")
        emitter.scopes = [top, row]
        emitter.prepare([output.node for output in nest.outputs])
        if nest.lane is None:
            self.store_all(edge=False)
        else:
            run = LanePass(emitter, nest.lane, nest.vectors, falls=nest.falls)
            emitter.last_run = emitter.started + 1
            if nest.is_stacked:
                emitter.stack = emitter.last_run
            of_row = [
                (each, copy, emitter.value(each.node, copy))
                for each in self.of_row
                for copy in emitter.copies(frozenset(each.indices))
            ]
            loop = run.written(
                lambda: self.store_all(edge=False), lambda: self.store_all(edge=True)
            )
            whole = "0", self.size(nest.lane)
            begin, end = ("first", "last") if nest.shares_lanes else whole
            loop = loop.replace("@begin", begin).replace("@end", end)
            is_beside = nest.over and nest.tile and emitter.target.beside > 1
            emitter.line(write_versions(emitter, nest, row, loop) if is_beside else loop)
            for each, copy, value in of_row:
                self.store(each, copy, value, edge=False)
            self.require_registers(top, row)
        return self.function(top, row)

    def require_registers(self, *around: Scope) -> None:
        """Refuse more values side by side than usual, if what they need has no registers."""
        is_usual = self.abreast <= self.emitter.target.chains and not self.nest.is_stacked
        held = sum(node.type == "real" for scope in around for node, _ in scope.known)
        if not is_usual and not self.emitter.target.holds(held, self.abreast):
            raise RefusedLoops("more values than there are registers")

    @property
    def of_row(self) -> list[Output]:
        """The outputs that are written once a row."""
        return [output for output in self.nest.outputs if self.nest.is_of_row(output)]

    def store_all(self, *, edge: bool) -> None:
        """Write the values of all outputs at one place, but for those of a row."""
        held = self.emitter.held
        if held.index is None:
            of_row = self.of_row
            self.store_outputs([o for o in self.nest.outputs if o not in of_row], edge=edge)
            return
        held.restart()
        self.emitter.prepare([output.node for output in self.nest.outputs])
        others = [each for each in self.nest.outputs if held.index not in each.indices]
        self.store_outputs(others, edge=edge)
        with held.opened():
            own = [each for each in self.nest.outputs if held.index in each.indices]
            self.store_outputs(own, edge=edge)

    def store_outputs(self, outputs: Sequence[Output], *, edge: bool) -> None:
        """Write the values of some outputs at one place."""
        if self.nest.is_stacked and not edge:
            tile, rows = str(self.nest.tile), self.nest.rows
            fits = f"{self.emitter.variables[tile]} + {rows} <= {self.size(tile)}"
            self.emitter.here.tests[fits] = None
        self.emitter.prepare([*(output.node for output in outputs), *self.nest.decided])
        if self.nest.in_place:
            for output in outputs:
                for copy in self.emitter.copies(frozenset(output.indices)):
                    self.emitter.value(output.node, copy)
        for place, output in enumerate(outputs):
            own = frozenset(output.indices) | {self.nest.lane or ""}
            copies = self.emitter.copies(own)
            self.abreast += 0 if edge else len(copies)
            for copy in copies:
                value = self.value_of_rows(output, copy)
                if output.node.type == "int" and "int" not in output.dtype:
                    value = f"real({value})"
                if self.nest.pushes:
                    Pushes(self, output).write(copy, value, edge=edge)
                elif not self.nest.is_total(output):
                    self.store(output, copy, value, edge=edge)
                else:
                    self.add(place, output, copy, value, edge=edge)

    def value_of_rows(self, output: Output, copy: Mapping[str, int]) -> str:
        """Return an output's value; what is added to a total is that of all rows side by side."""
        emitter, nest = self.emitter, self.nest
        if not nest.is_total(output) or nest.tile is None:
            return emitter.value(output.node, copy)
        first, *others = (
            emitter.value(output.node, {**copy, nest.tile: k}) for k in range(nest.rows)
        )
        row = emitter.variables[nest.tile]
        # Of the last rows of a chunk some are beyond it.
        test = f"is_whole || {row}"
        parts = [
            f"({test} + {k} * {APART} < {END} ? {one} : Real{{}})"
            for k, one in enumerate(others, 1)
        ]
        return emitter.kept(" + ".join([first, *parts]), output.node, 2 * len(parts))

    def lane_in(self, output: Output) -> str | None:
        """Return the index of the lanes, if an output has it: in a scan some have not."""
        return self.nest.lane if self.nest.lane in output.indices else None

    def operand(self, output: Output) -> Operand:
        """Return the operand of an output, which is contiguous."""
        lane = self.lane_in(output)
        unit = len(output.indices) - 1 if output.indices else None
        if lane is not None:
            own = output.indices.index(lane)
            sizes = (self.ranges.size(index) for index in output.indices[own + 1 :])
            unit = own if all(self.extents.number(size) == 1 for size in sizes) else None
        return Operand(output.name, unit, output.dtype, len(output.indices))

    def store(self, output: Output, copy: Mapping[str, int], value: str, *, edge: bool) -> None:
        """Write the statement that stores a value."""
        emitter = self.emitter
        operand = self.operand(output)
        places = [
            emitter.in_ring(output.name, d, emitter.places.index(index, copy))
            for d, index in enumerate(output.indices)
        ]
        address = emitter.operands.address(operand, places)
        stored, lane = operand.stored, self.lane_in(output)
        if lane is None:
            emitter.line(f"store_one<{stored}>({address}, {value});", 2)
            return
        if edge and self.nest.is_stacked:
            row = str(self.nest.tile)
            emitter.line(f"if ({emitter.places.index(row, copy)} < {self.size(row)})")
        left = f"last_lane - ({emitter.places.index(lane, copy)})"
        own = output.indices.index(lane)
        if own == operand.unit and edge:
            emitter.line(f"store_edge<{stored}>({address}, {value}, {left});", 2)
        elif own == operand.unit:
            emitter.line(f"store<{stored}>({address}, {value});", 1)
        else:
            count = f"least({left}, lanes)" if edge else "lanes"
            step = emitter.operands.step(operand, own)
            inner = map(self.ranges.size, output.indices[own + 1 :])
            work = emitter.target.cost_apart(math.prod(emitter.measure(i) or 1 for i in inner))
            emitter.line(f"store_some<{stored}>({address}, {step}, {value}, {count});", work)

    def add(
        self, place: int, output: Output, copy: Mapping[str, int], value: str, *, edge: bool
    ) -> None:
        """Write the statement that adds a value to a chunk's total, or sets a total to it."""
        emitter, lane = self.emitter, self.nest.lane
        word = "set" if self.nest.is_split else "add"
        number = "0"
        for index in output.indices:
            if index in self.nest.small:
                number = str(int(number) * emitter.counts[index] + copy[index])
        if (held := self.nest.held) is not None:
            number = f"({number} * {self.size(held)} + {emitter.variables[held]})"
        if lane is None:
            emitter.line(f"{word}_one(total{place}[{number}], {value});", 3)
            return
        at = f"total{place} + {number} * {self.size(lane)} + {emitter.places.index(lane, copy)}"
        count = f"last_lane - ({emitter.places.index(lane, copy)})" if edge else "lanes"
        emitter.line(f"{word}_to({at}, {value}, {count});", 5)

    def function(self, top: Scope, row: Scope) -> str:
        """Return the function."""
        nest, emitter = self.nest, self.emitter
        self.memory = TaskMemory(nest, emitter, self.buffers())
        body = [*self.tasks(), *row.code]
        if nest.over:
            body = self.chunk(row.code)
        elif nest.pushes:
            body = [*self.tasks(), *Pushes(self, nest.outputs[0]).task(row.code)]
        size = "0" if nest.lane is None else self.size(nest.lane)
        opening = [
            f"[[maybe_unused]] const int64_t last_lane = {size};",
            *self.memory.declare(),
            *top.code,
        ]
        # Sizes and operands at last: what was written decides which there are.
        taken = [
            f"[[maybe_unused]] const int64_t size{slot} = call->sizes[{slot}];"
            for slot in self.extents.slots.values()
        ]
        taken += emitter.operands.declarations()
        addresses = emitter.operands.addresses(
            None if nest.sequential else {output.name for output in nest.outputs}
        )
        return emitter.target.write_function(
            addresses, [*taken, *opening], body, together=nest.together
        )

    def buffers(self) -> dict[str, Affine]:
        """Return how far the lanes run of each buffer."""
        return {name: self.ranges.size(self.lane_of(node)) for node, (name, _) in self.kept.items()}

    def lane_of(self, node: Node) -> str:
        """Return the index of the lanes that a value of a row depends on."""
        return next(iter(node.free & self.emitter.row_lanes))

    def tasks(self, task: str = "task") -> list[str]:
        """Return the statements that say which values of the outer indices a task has."""
        nest = self.nest
        if nest.block and not nest.sequential:
            tasks = " * ".join(self.count(index) for index in nest.outer)
            part = [
                f"const int64_t of_block = {tasks};",
                f"const int64_t first = {task} / of_block * {nest.block};",
                f"const int64_t last = least(first + {nest.block}, last_lane);",
            ]
            # All rows of some columns come one after the other: these stay in a cache.
            return part + self.outer_values(f"({task} % of_block)")
        if nest.block:
            blocks = f"((last_lane + {nest.block - 1}) / {nest.block})"
            part = [
                f"const int64_t first = {task} % {blocks} * {nest.block};",
                f"const int64_t last = least(first + {nest.block}, last_lane);",
            ]
            return part + self.outer_values(f"({task} / {blocks})")
        if nest.shares_lanes:
            step = f"{nest.vectors} * lanes"
            return [
                f"const int64_t first = {task} * ({step});",
                f"const int64_t last = least(first + {step}, last_lane);",
            ]
        return self.outer_values(task)

    def count(self, index: str) -> str:
        """Return how many tasks an outer index stands for, in C++."""
        rows = self.nest.rows if index == self.nest.tile else 1
        return f"(({self.size(index)} + {rows - 1}) / {rows})" if rows > 1 else self.size(index)

    def outer_values(self, task: str) -> list[str]:
        """Return the statements that say which value of each outer index a task has."""
        nest, emitter = self.nest, self.emitter
        lines = [f"[[maybe_unused]] int64_t rest = {task};"] if nest.outer else []
        for index in reversed(nest.outer):
            variable, tiles = emitter.variables[index], self.count(index)
            is_outermost = index == nest.outer[0]
            # What is left of a task's number: a division would cost as much as a short row.
            place = "rest" if is_outermost else f"rest % {tiles}"
            place += f" * {nest.rows}" if index == nest.tile else ""
            lines.append(f"[[maybe_unused]] const int64_t {variable} = {place};")
            if index == nest.tile and not nest.sequential:
                lines += write_rows(variable, nest.rows, self.size(index))
            lines += [] if is_outermost else [f"rest /= {tiles};"]
        return lines

    def chunk(self, code: Sequence[str]) -> list[str]:
        """Return the body of a task that adds up a chunk of rows."""
        nest, emitter = self.nest, self.emitter
        assert nest.over is not None
        self.extents.slots.setdefault(CHUNKS, len(self.extents.slots))
        chunks = f"size{self.extents.slots[CHUNKS]}"
        size = self.size(nest.over)
        lines = [
            f"const int64_t chunk = task % {chunks};",
            f"const int64_t {BEGIN} = {size} * chunk / {chunks};",
            f"const int64_t {END} = {size} * (chunk + 1) / {chunks};",
        ]
        lines += self.tasks(f"(task / {chunks})")
        lines += ["[[maybe_unused]] constexpr bool is_whole = false;"] if nest.tile else []
        row, last = "chunk" if nest.shares_lanes else "task", list[str]()
        for place, output in enumerate(filter(nest.is_total, nest.outputs)):
            operand = Operand(output.name, None, "float64", 1)
            own = emitter.operands.place(operand)
            small = [emitter.counts[i] for i in output.indices if i in nest.small]
            many = str(math.prod(small))
            for index in (nest.held, nest.lane):
                many += f" * {self.size(index)}" if index is not None else ""
            tensor = f"reinterpret_cast<double*>(data{own}) + {row} * ({many})"
            if f"total{place}" in self.memory.totals:
                last.append(f"write_totals({tensor}, total{place}, {many});")
            else:
                lines.append(f"double* const total{place} = {tensor};")
            if not nest.is_split:
                lines.append(emitter.target.write_cleared(f"total{place}", many))
        if nest.is_split:
            return [*lines, *code]
        variable = emitter.variables[nest.over]
        end, beside = END, list[str]()
        if nest.tile:
            # Each of those side by side goes through a part of its own, one row after another: so a
            # processor sees coming what is read next.
            lines.append(
                f"const int64_t {APART} = ({END} - {BEGIN} + {nest.rows - 1}) / {nest.rows};"
            )
            end = f"{BEGIN} + {APART}"
            beside = [
                f"const int64_t {variable}_{k} = least({variable} + {k} * {APART}, {END} - 1);"
                for k in range(nest.rows)
            ]
        loop = f"for (int64_t {variable} = {BEGIN}; {variable} < {end}; ++{variable})"
        return [*lines, f"{loop} {{", *beside, *code, "}", *last]

    def kernel(self) -> KernelText:
        """Return the kernel."""
        return KernelText(
            nest=self.nest,
            text=self.text,
            operands=tuple(self.emitter.operands.all),
            sizes=tuple(self.extents.slots),
            rows=tuple(self.memory.rows),
            passes=max(map(len, self.emitter.reads.values()), default=1),
            row_reads=tuple(self.emitter.row_reads),
            costs=tuple(self.emitter.costs),
            dims=self.emitter.dims,
            ranges=self.ranges.sizes,
            notes_outside=self.emitter.memory.notes_outside,
        )
