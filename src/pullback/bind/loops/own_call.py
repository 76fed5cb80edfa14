"""One call of own loops: tensors laid out as the kernels read them, outputs, and partial sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.define.line import Scalar
from pullback.kernels.loops import schedule as schedules
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import CHUNKS
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.schedule import ScheduleStep

if TYPE_CHECKING:
    from pullback.bind.loops.nests import Own

# Vector operations that a thread should have to do at least: about 20 microseconds.
GRAIN = 40_000
# Chunks that a long sum is cut into, whatever the number of threads: the result is always the same.
CHUNKS_AT_MOST = 32


@dataclass(frozen=True, kw_only=True)
class PreparedKernel:
    """All of the call of one kernel that follows from the sizes.

    Attributes:
        shapes: of what it writes.
        dtypes: of those.
        sizes: that it takes.
        count: how many tasks there are.
        grain: how many of them a thread does at least.
        summed: of totals, the dimension of the chunks.
        orders: of totals, the dimensions that are left, in the order of their indices.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    sizes: tuple[int, ...]
    count: int
    grain: int
    summed: int = 0
    orders: tuple[tuple[int, ...], ...] = ()


class KernelSizing:
    """What follows from the sizes of a call, for one kernel."""

    def __init__(self, step: ScheduleStep, own: Own, sizes: Mapping[str, int]) -> None:
        self.step, self.own, self.sizes = step, own, sizes
        self.nest = step.kernel.nest
        self.extents = Extents(sizes)
        self.ranges = own.indexed.ranges
        self.work = schedules.count_operations(step.kernel, sizes)

    def size(self, index: str) -> int:
        """Return how far an index of the nest runs."""
        extent = self.nest.over_size if index == self.nest.over else self.ranges.size(index)
        assert extent is not None
        number = self.extents.number(extent)
        assert number is not None, index
        return number

    def prepared(self) -> PreparedKernel:
        """Return all that follows."""
        return self.totals() if self.nest.over else self.outputs()

    def totals(self) -> PreparedKernel:
        """Return what follows for a kernel that adds up."""
        nest, totals = self.nest, self.step.totals
        outer = [self.size(index) for index in nest.outer]
        pieces = int(self.work / (GRAIN / 4)) + 1
        chunks = max(1, min(CHUNKS_AT_MOST, self.size(str(nest.over)), pieces))
        lies = [[*nest.outer, *(i for i in t.indices if i in nest.small)] for t in totals]
        if nest.lane:
            lies = [[*indices, nest.lane] for indices in lies]
        rest = [[self.size(i) for i in indices[len(outer) :]] for indices in lies]
        placed = zip(lies, totals, strict=True)
        count = math.prod(outer) * chunks
        return PreparedKernel(
            shapes=tuple((*outer, chunks, *sizes) for sizes in rest),
            dtypes=(torch.float64,) * len(totals),
            sizes=self.taken({CHUNKS: chunks}),
            count=count,
            grain=self.grain(count),
            summed=len(outer),
            orders=tuple(tuple(i.index(index) for index in t.indices) for i, t in placed),
        )

    def outputs(self) -> PreparedKernel:
        """Return what follows for a kernel that writes outputs."""
        nest = self.nest
        count = math.prod(
            -(-self.size(index) // (nest.rows if index == nest.tile else 1)) for index in nest.outer
        )
        if nest.lane is not None and not nest.outer:
            count = -(-self.size(nest.lane) // (nest.vectors * self.own.lanes))
        shapes = tuple(tuple(map(self.size, output.indices)) for output in nest.outputs)
        return PreparedKernel(
            shapes=shapes,
            dtypes=tuple(getattr(torch, output.dtype) for output in nest.outputs),
            sizes=self.taken({}),
            # Nothing is written where an output is empty.
            count=count if all(map(math.prod, shapes)) else 0,
            grain=self.grain(count),
        )

    def taken(self, more: Mapping[str, int]) -> tuple[int, ...]:
        """Return the sizes that the kernel takes."""
        sizes = {**self.sizes, **more}
        return tuple(sizes[name] for name in self.step.kernel.sizes)

    def grain(self, count: int) -> int:
        """Return how many tasks are worth a thread."""
        return max(1, int(GRAIN * count / max(self.work, 1)))


class KernelCall:
    """One call of some kernels."""

    def __init__(self, own: Own, arguments: Mapping[str, object]) -> None:
        self.tensors = {
            name: value for name, value in arguments.items() if isinstance(value, Tensor)
        }
        self.scalars = tuple(convert_scalar(s, arguments[s.name]) for s in own.indexed.line.scalars)
        self.laid: dict[Operand, Tensor] = {}

    def add_up(self, step: ScheduleStep, prepared: PreparedKernel, address: int) -> None:
        """Compute the totals of a step."""
        parts = self.run(step, prepared, address)
        for total, part, order in zip(step.totals, parts, prepared.orders, strict=True):
            # Of the same name as another step's, perhaps.
            self.laid = {o: t for o, t in self.laid.items() if o.name != total.name}
            self.tensors[total.name] = part.sum(prepared.summed).permute(order)

    def run(self, step: ScheduleStep, prepared: PreparedKernel, address: int) -> list[Tensor]:
        """Run one kernel and return what it writes."""
        outputs = step.kernel.nest.outputs
        shaped = zip(prepared.shapes, prepared.dtypes, strict=True)
        made = [torch.empty(shape, dtype=dtype, device="cpu") for shape, dtype in shaped]
        if not prepared.count:
            return made
        written = {output.name: value for output, value in zip(outputs, made, strict=True)}
        tensors = tuple(
            self.operand(operand)
            if operand.name not in written
            else written[operand.name].view(-1)
            if operand.dimensions == 1
            else written[operand.name]
            for operand in step.kernel.operands
        )
        status = runtime.load().parallel(
            address, tensors, prepared.sizes, self.scalars, prepared.count, prepared.grain
        )
        if status:
            raise MemoryError
        return made

    def operand(self, operand: Operand) -> Tensor:
        """Return a tensor as a kernel takes it."""
        found = self.laid.get(operand)
        if found is None:
            found = self.laid[operand] = lay_out(self.tensors[operand.name], operand)
        return found


def lay_out(tensor: Tensor, operand: Operand) -> Tensor:
    """Return a tensor in the dtype and the layout that a kernel reads."""
    dtype = cast("torch.dtype", getattr(torch, operand.dtype))
    if tensor.is_neg() or tensor.dtype != dtype:
        tensor = tensor.resolve_neg().to(dtype)
    if tensor.numel() == 0:
        # Nothing of it is selected, but something may be read.
        return tensor.new_zeros([max(extent, 1) for extent in tensor.shape])
    unit = operand.unit
    if unit is None or tensor.stride(unit) == 1 or tensor.shape[unit] == 1:
        return tensor
    # Only what is there once: an expanded tensor is not written out.
    core = tensor
    for d, stride in enumerate(tensor.stride()):
        if stride == 0 and d != unit:
            core = core.narrow(d, 0, 1)
    return core.movedim(unit, -1).contiguous().movedim(-1, unit).expand(tensor.shape)


def convert_scalar(parameter: Scalar, value: object) -> float:
    """Return a scalar as a kernel takes it."""
    if parameter.type == "float":
        return float(cast("float", value))
    return int(cast("int", value))
