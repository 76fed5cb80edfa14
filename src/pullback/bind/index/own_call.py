"""One call of own loops: tensors laid out as the kernels read them, outputs, and partial sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.define.formula.ranges import Ranges
from pullback.define.line import Scalar
from pullback.kernels.index import schedule as schedules
from pullback.kernels.index.extents import Extents
from pullback.kernels.index.nest import CHUNKS, Nest
from pullback.kernels.index.operands import Operand
from pullback.kernels.index.schedule import Step

if TYPE_CHECKING:
    from pullback.bind.index.loops import Own

# Vector operations that a thread should have to do at least: about 20 microseconds.
GRAIN = 40_000
# Chunks that a long sum is cut into, whatever the number of threads: the result is always the same.
CHUNKS_AT_MOST = 32


class Call:
    """One call of some kernels."""

    def __init__(self, own: Own, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> None:
        self.own, self.sizes = own, sizes
        self.tensors = {
            name: value for name, value in arguments.items() if isinstance(value, Tensor)
        }
        self.scalars = tuple(scalar(s, arguments[s.name]) for s in own.indexed.line.scalars)
        self.laid: dict[Operand, Tensor] = {}
        self.extents = Extents(sizes)
        self.ranges = Ranges(own.indexed.sizes)

    def size(self, index: str, nest: Nest) -> int:
        """Return how far an index of a nest runs."""
        extent = nest.over_size if index == nest.over else self.ranges.size(index)
        assert extent is not None
        number = self.extents.number(extent)
        assert number is not None, index
        return number

    def add_up(self, step: Step, address: int) -> None:
        """Compute the totals of a step."""
        nest = step.kernel.nest
        assert nest.over
        over = self.over(nest)
        outer = [self.size(index, nest) for index in nest.outer]
        many = math.prod(outer)
        work = schedules.work(step.kernel, self.sizes)
        chunks = max(1, min(CHUNKS_AT_MOST, over, int(work / (GRAIN / 4)) + 1))
        parts: dict[str, Tensor] = {}
        for total in step.totals:
            small = [self.size(i, nest) for i in total.indices if i in nest.small]
            lane = [self.size(nest.lane, nest)] if nest.lane else []
            parts[total.name] = torch.empty(
                [*outer, chunks, *small, *lane], dtype=torch.float64, device="cpu"
            )
        self.call(step, address, parts, many * chunks, {CHUNKS: chunks}, work)
        for total in step.totals:
            lies = [
                *nest.outer,
                *(i for i in total.indices if i in nest.small),
                *([nest.lane] if nest.lane else []),
            ]
            order = [lies.index(index) for index in total.indices]
            # Of the same name as another step's, perhaps.
            self.laid = {o: t for o, t in self.laid.items() if o.name != total.name}
            self.tensors[total.name] = parts[total.name].sum(len(outer)).permute(order)

    def over(self, nest: Nest) -> int:
        """Return how many rows are added up."""
        return self.size(str(nest.over), nest)

    def last(self, step: Step, address: int) -> list[Tensor]:
        """Compute the outputs."""
        nest = step.kernel.nest
        made = {
            output.name: torch.empty(
                [self.size(index, nest) for index in output.indices],
                dtype=getattr(torch, output.dtype),
                device="cpu",
            )
            for output in nest.outputs
        }
        if nest.lane is not None and not nest.outer:
            lanes = -(-self.size(nest.lane, nest) // self.lane_block(nest))
            count = lanes
        else:
            count = 1
            for index in nest.outer:
                rows = nest.rows if index == nest.tile else 1
                count *= -(-self.size(index, nest) // rows)
        if all(tensor.numel() for tensor in made.values()):
            work = schedules.work(step.kernel, self.sizes)
            self.call(step, address, made, count, {}, work)
        return list(made.values())

    def lane_block(self, nest: Nest) -> int:
        """Return how many elements one task has where the lanes are shared."""
        return nest.vectors * self.own.lanes

    def call(  # noqa: PLR0913, PLR0917  (what differs between steps)
        self,
        step: Step,
        address: int,
        outputs: Mapping[str, Tensor],
        count: int,
        more: Mapping[str, int],
        work: float,
    ) -> None:
        """Run one kernel."""
        kernel = step.kernel
        tensors = tuple(
            outputs[operand.name].reshape(-1)
            if operand.name in outputs and operand.dimensions == 1
            else outputs[operand.name]
            if operand.name in outputs
            else self.operand(operand)
            for operand in kernel.operands
        )
        sizes = {**self.sizes, **more}
        grain = max(1, int(GRAIN * count / max(work, 1)))
        status = runtime.load().parallel(
            address,
            tensors,
            tuple(sizes[name] for name in kernel.sizes),
            self.scalars,
            count,
            grain,
        )
        if status:
            raise MemoryError

    def operand(self, operand: Operand) -> Tensor:
        """Return a tensor as a kernel takes it."""
        found = self.laid.get(operand)
        if found is None:
            found = self.laid[operand] = laid(self.tensors[operand.name], operand)
        return found


def laid(tensor: Tensor, operand: Operand) -> Tensor:
    """Return a tensor in the dtype and the layout that a kernel reads."""
    dtype = cast("torch.dtype", getattr(torch, operand.dtype))
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


def scalar(parameter: Scalar, value: object) -> float:
    """Return a scalar as a kernel takes it."""
    if parameter.type == "float":
        return float(cast("float", value))
    return int(cast("int", value))
