"""An operator in index notation -> the tables that a library reads: csrc/library/index_tables.h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pullback.bind.loops.loop_plan import KernelPlan, TotalPlan
from pullback.bind.loops.nests import Own
from pullback.bind.native import SCALAR_TYPES
from pullback.define.math.bounds import Gather
from pullback.define.math.index import BATCH, Affine, size
from pullback.deploy.cmake import index_places
from pullback.deploy.cmake.arrays import Arrays
from pullback.deploy.cmake.definitions import format_bool, format_fields, name_table, quote
from pullback.deploy.cmake.index_checks import SizeChecks
from pullback.deploy.cmake.index_loops import Choice, Group, IndexedOperator
from pullback.deploy.step_loops import StepResult
from pullback.kernels.glue import Device
from pullback.kernels.loops import cpu, cuda
from pullback.kernels.loops.cuda import Cuda
from pullback.kernels.loops.nest import CHUNKS, KernelText
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.segments import Segments
from pullback.kernels.loops.target import Target

# The parameters of a kernel, and of what launches one: kernel_abi.h.
TAKES: dict[Device, str] = {
    "cpu": "const pullback::IndexCall*, int64_t, int64_t",
    "cuda": "const pullback::IndexLaunch*, char*, uint64_t",
}


def write_tables(operator: IndexedOperator) -> str:
    """Return the file of an operator's tables."""
    writer = _TableWriter(operator)
    table = writer.table()
    declared = sorted(writer.functions)
    lanes, name = sorted(writer.lanes), name_table(operator.shipped, operator.device)
    on_gpus = operator.device == "cuda"
    takes = TAKES[operator.device]
    return "\n".join(
        [
            f"/// {operator.shipped.line}",
            '#include "pullback/library/index_tables.h"\n',
            'extern "C" {',
            *(f"int {name}({takes});" for name in declared),
            *(f"extern const int64_t {name};" for name in lanes),
            "}\n",
            "namespace pullback {\n",
            *["int64_t shared_memory();  // shared_memory.cu\n"] * on_gpus,
            "namespace {",
            writer.arrays.definitions(),
            "}  // namespace\n",
            f"extern const IndexTable {name};",
            f"const IndexTable {name} = {table};\n",
            "}  // namespace pullback\n",
        ]
    )


class _TableWriter:
    def __init__(self, operator: IndexedOperator) -> None:
        self.operator, self.formula = operator, operator.formula
        self.functions: set[str] = set()
        self.lanes: set[str] = set()
        self.reads: Mapping[str, str] = {}  # of the group that is written
        self.arrays = Arrays(self.slots())

    def slots(self) -> dict[str, int]:
        """Return the places of all sizes of a call."""
        names = [CHUNKS, *self.operator.shipped.definition.shaped.dimensions, BATCH]
        names += [*self.formula.counts, *self.operator.sizes_of_indices]
        names += [name for own in self.operator.owns for name, _ in own.plan.entries]
        return {name: place for place, name in enumerate(dict.fromkeys(names))}

    def table(self) -> str:
        """Return the `IndexTable`."""
        arrays, formula = self.arrays, self.formula
        checks = SizeChecks(formula, arrays)
        sizes = (
            format_fields(
                name=quote(name), slot=str(arrays.slots[name]), size=arrays.extent(extent)
            )
            for name, extent in self.operator.sizes_of_indices.items()
        )
        parameters = [parameter.name for parameter in formula.line.parameters]
        counts = (
            format_fields(
                name=quote(name), slot=str(arrays.slots[name]), argument=str(parameters.index(name))
            )
            for name in formula.counts
        )
        outputs = [arrays.extents(map(formula.ranges.size, o.labels)) for o in formula.line.outputs]
        # What their elements read is checked, too.
        outputs += [arrays.extents(state.extents) for state in formula.states.values()]
        return format_fields(
            slots=str(len(arrays.slots)),
            counts=arrays.table("IndexCount", counts),
            sizes=arrays.table("IndexSize", sizes),
            outputs=arrays.table("Table<Extent>", outputs),
            reads=arrays.table("ReadCheck", checks.reads),
            maxima=arrays.table("MaximumCheck", checks.maxima),
            choices=arrays.table("LoopChoice", map(self.choice, self.operator.choices)),
            limits=self.limits(),
        )

    def limits(self) -> str:
        """Return the `LoopLimits`."""
        if self.operator.device == "cuda":
            limits = ("0.0", f"{cuda.CHUNK}.0", str(cuda.CHUNKS_AT_MOST), "1", "1", "shared_memory")
        else:
            limits = (
                f"{cpu.GRAIN}.0",
                f"{cpu.CHUNK}.0",
                str(cpu.CHUNKS_AT_MOST),
                str(cpu.ROWS_OF_CHUNK),
                str(cpu.CHUNKS_OF_FEW),
                "nullptr",
            )
        return f"{{{', '.join(limits)}}}"

    def choice(self, choice: Choice) -> str:
        """Return a `LoopChoice`."""
        known = (f"{{{self.arrays.slots[name]}, {n}}}" for name, n in choice.made_for.items())
        groups = (self.arrays.one("LoopGroup", self.group(each)) for each in choice.groups)
        return format_fields(
            dtype=str(SCALAR_TYPES[choice.dtype]),
            wanted=str(choice.wanted),
            present=str(choice.present),
            made_for=self.arrays.table("LoopChoice::Known", known),
            groups=self.arrays.table("LoopGroup* const", groups),
        )

    def group(self, group: Group) -> str:
        """Return a `LoopGroup`."""
        own, scalars = group.own, [s.name for s in self.formula.line.scalars]
        self.reads = group.reads
        taken = (str(scalars.index(s.name)) for s in own.indexed.line.scalars)
        return format_fields(
            outputs=self.arrays.table("size_t", () if group.results else map(str, own.outputs)),
            results=self.arrays.table("LoopResult", map(self.result, group.results)),
            scalars=self.arrays.table("size_t", taken),
            chain=self.chain(own, [segments for segments, _ in group.rows]),
            segments=self.arrays.table(
                "LoopSegments", [self.segments(own, *each) for each in group.rows]
            ),
            checked=self.arrays.table("LoopPlaces", [self.places(*each) for each in group.checked]),
            silent=format_bool(group.is_silent),
        )

    def result(self, result: StepResult) -> str:
        """Return a `LoopResult`."""
        states, last = list(self.formula.states), result.last
        return format_fields(
            outputs=self.arrays.table("size_t", map(str, result.outputs)),
            state=str(-1 if result.state is None else self.input_of(states.index(result.state))),
            order=self.arrays.table("int64_t", map(str, result.order)),
            is_ring=format_bool(last is not None),
            last=self.arrays.extent(last.step if last else Affine(0)),
            summed=str(last.summed if last else 0),
        )

    def input_of(self, state: int) -> int:
        """Return the place of a state among the inputs of loops: behind those of the line."""
        return len(self.formula.line.tensors) + state

    def segments(self, own: Own, segments: Segments, rows: Own) -> str:
        """Return a `LoopSegments`."""
        arrays, ranges = self.arrays, self.formula.ranges
        [(term, _)] = segments.size.terms
        return format_fields(
            places=self.chain(rows),
            batch=arrays.extents(map(ranges.size, segments.batch)),
            shape=arrays.extents(extent for _, extent in segments.bound),
            rows=arrays.extent(ranges.size(segments.row)),
            slot=str(arrays.slots[str(term).strip("|")]),
        )

    def places(self, gather: Gather, outside: Own) -> str:
        """Return a `LoopPlaces`."""
        dimension = index_places.dimension_of(self.formula, gather)
        return format_fields(
            places=self.chain(outside),
            tensor=quote(gather.read.name),
            dimension=quote(dimension),
            size=self.arrays.extent(size(dimension)),
        )

    def chain(self, own: Own, segments: Sequence[Segments] = ()) -> str:
        """Return a `LoopChain`."""
        inputs = (self.input(operand, segments) for operand in own.plan.inputs)
        return format_fields(
            inputs=self.arrays.table("LoopInput", list(inputs)),
            kernels=self.arrays.table(
                "LoopKernel", [self.kernel(own, kernel) for kernel in own.plan.kernels]
            ),
        )

    def input(self, operand: Operand, segments: Sequence[Segments]) -> str:
        """Return a `LoopInput`."""
        names = [tensor.name for tensor in self.formula.line.tensors]
        kind, number, place = "input", 0, 0
        if operand.name in names:
            number = names.index(operand.name)
        elif operand.name in self.reads:
            number = self.input_of(list(self.formula.states).index(self.reads[operand.name]))
        else:
            kind, number, place = dict(iter_sorted(segments))[operand.name]
        return format_fields(
            kind=f"LoopInput::Kind::{kind}",
            number=str(number),
            segments=str(place),
            layout=self.layout(operand),
        )

    def layout(self, operand: Operand) -> str:
        """Return a `Layout`."""
        packed = (f"{{{dimension}, {stride}}}" for dimension, stride in operand.packed)
        return format_fields(
            dtype=str(SCALAR_TYPES[operand.dtype]),
            unit=str(-1 if operand.unit is None else operand.unit),
            packed=self.arrays.table("Layout::Packed", packed),
            aligned=str(operand.aligned),
        )

    def kernel(self, own: Own, plan: KernelPlan) -> str:
        """Return a `LoopKernel`."""
        arrays, kernel = self.arrays, plan.step.kernel
        function = self.operator.symbol(own.target, kernel.text)
        self.functions.add(function)
        totals = {k: arrays.one("Layout", self.layout(total)) for k, total in plan.totals_read}
        operands = (
            f"{{{place}, {totals.get(k, 'nullptr')}}}" for k, place in enumerate(plan.tensors)
        )
        written = (
            f"{{{SCALAR_TYPES[dtype]}, {arrays.extents(shape)}}}" for shape, dtype in plan.written
        )
        on_gpus = isinstance(own.target, Cuda)
        return format_fields(
            **{"launcher" if on_gpus else "function": function},
            operands=arrays.table("LoopOperand", operands),
            written=arrays.table("LoopKernel::Written", written),
            totals=arrays.table("LoopTotal", map(self.total, plan.totals)),
            sizes=arrays.extents(plan.sizes),
            **self.tasks(own.target, plan),
            over=arrays.extent(plan.over) if plan.over is not None else "{}",
            costs=arrays.table("LoopKernel::Cost", self.costs(plan)),
            inner=format_bool(plan.step.is_inner),
            **(self.on_gpu(own.target, kernel) if isinstance(own.target, Cuda) else {}),
        )

    def tasks(self, target: Target, plan: KernelPlan) -> dict[str, str]:
        """Return what the tasks of a kernel are counted by."""
        nest, tasks, lanes = plan.step.kernel.nest, plan.tasks, "nullptr"
        # A block is so many elements; else tasks are counted by vectors.
        if nest.shares_lanes and not nest.block:
            if isinstance(target, Cuda):
                tasks = tuple((size, each * target.lanes) for size, each in tasks)
            else:
                lanes = self.count_lanes(target)
        return {"tasks": self.pairs("LoopKernel::Share", tasks), "lanes": lanes}

    def on_gpu(self, target: Cuda, kernel: KernelText) -> dict[str, str]:
        """Return what a kernel takes of a GPU."""
        beyond, size = target.spare * target.lanes, 4 * target.words
        rows = [f"{{{self.arrays.extent(row)}, {beyond}, {size}}}" for row in kernel.rows]
        return {
            "rows": self.arrays.table("LoopKernel::Row", rows),
            "groups": str(target.groups),
            "enough": str(target.enough),
        }

    def costs(self, plan: KernelPlan) -> list[str]:
        """Return what a kernel does, together what is done equally often."""
        found: dict[str, float] = {}
        for cost, trips in plan.step.kernel.costs:
            times = self.pairs("LoopKernel::Trip", trips)
            found[times] = found.get(times, 0.0) + cost
        return [f"{{{cost!r}, {times}}}" for times, cost in found.items()]

    def total(self, total: TotalPlan) -> str:
        """Return a `LoopTotal`."""
        return format_fields(
            place=str(total.place),
            shape=self.arrays.extents(total.shape),
            summed=str(total.summed),
            order=self.arrays.table("int64_t", map(str, total.order)),
        )

    def pairs(self, type: str, pairs: Sequence[tuple[Affine, float]]) -> str:
        """Return sizes, each with a number."""
        rows = (f"{{{self.arrays.extent(extent)}, {number}}}" for extent, number in pairs)
        return self.arrays.table(type, list(rows))

    def count_lanes(self, target: Target) -> str:
        """Return the address of the number of lanes."""
        name = self.operator.lanes(target)
        self.lanes.add(name)
        return f"&{name}"


def iter_sorted(segments: Sequence[Segments]) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield the tensors that say how entries are sorted: the name, what it is, whose."""
    for place, each in enumerate(segments):
        for which in ("begin", "end"):
            yield each.end(which).name, (which, 0, place)
        for k, (bound, _) in enumerate(each.bound):
            for node in (each.index_of(bound, ""), each.value_of(bound, "")):
                yield node.name, ("index", k, place)
