"""One call of own loops: what follows from its sizes, worked out once, and how it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pullback.define.line import Scalar
from pullback.define.math.index import Affine
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops import schedule as schedules
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import CHUNKS, Output
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.schedule import ScheduleStep

if TYPE_CHECKING:
    from pullback.bind.loops.backends import Runner
    from pullback.bind.loops.nests import Own

# What a kernel says that has read elsewhere than at a place outside: csrc/index/index.h.
INDEX_OUTSIDE = 2
Shape = tuple[int, ...]
Written = tuple[Shape, torch.dtype]


@dataclass(frozen=True, kw_only=True)
class Total:
    """How a kernel's totals are finished: chunks are summed, and dimensions permuted.

    Attributes:
        place: of the totals, among the tensors of the call.
        shape: of the totals, chunk by chunk.
        summed: the dimension of the chunks.
        order: the dimensions that are left, in the order of their indices.
    """

    place: int
    shape: Shape
    summed: int
    order: tuple[int, ...]

    def of(self, part: Tensor) -> Tensor:
        """Return the total, as the next kernel reads it."""
        parts = part.view(self.shape)
        one = self.shape[self.summed] == 1
        return (parts.squeeze(self.summed) if one else parts.sum(self.summed)).permute(self.order)


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """One kernel of a call.

    Attributes:
        address: of its entry point.
        tensors: their places in the list of a call's tensors.
        totals_read: which arguments are totals, and how they have to lie.
        written: the shapes and dtypes of what it writes.
        sizes: that it takes.
        count: how many tasks there are.
        share: how many of them a thread of the CPU does at least; on a GPU, the bytes of shared
            memory that a task takes.
        totals: what becomes of what it writes, if it adds up chunks.
        is_inner: whether what it writes is only for the later kernels.
    """

    address: int
    tensors: tuple[int, ...]
    totals_read: tuple[tuple[int, Operand], ...]
    written: tuple[Written, ...]
    sizes: tuple[int, ...]
    count: int
    share: int
    totals: tuple[Total, ...]
    is_inner: bool


@dataclass(frozen=True, kw_only=True)
class LoopCall:
    """All kernels that compute some outputs, for the sizes of a call.

    The list of a call's tensors begins with its inputs; then come, kernel by kernel, what it writes
    and its totals.

    Attributes:
        own: whose kernels.
        runner: what runs one.
        inputs: the tensors that are read, as they have to lie.
        kernels: in order.
    """

    own: Own
    runner: Runner
    inputs: tuple[Operand, ...]
    kernels: tuple[KernelCall, ...]

    def run(
        self,
        inputs: Sequence[Tensor],
        scalars: tuple[float, ...],
        device: torch.device,
        require_inside: Callable[[], None],
    ) -> list[Tensor]:
        """Return what the kernels write, except what only later kernels read.

        Args:
            inputs: laid out as `inputs` says.
            scalars: those of the line, in its order.
            device: of the tensors.
            require_inside: stops if a place that was outside is selected.

        Raises:
            PullbackError: what `require_inside` raises, or a kernel on a GPU.
        """
        tensors, outputs, outside = [*inputs], [], False
        for kernel in self.kernels:
            written = [torch.empty(s, dtype=dtype, device=device) for s, dtype in kernel.written]
            tensors += written
            if kernel.count:
                operands = [tensors[place] for place in kernel.tensors]
                for place, operand in kernel.totals_read:
                    operands[place] = lay_out(operands[place], operand)
                given = tuple(operands)
                said = self.runner(
                    kernel.address, given, kernel.sizes, scalars, kernel.count, kernel.share
                )
                if said == INDEX_OUTSIDE:
                    outside = True
                elif said is not None:
                    raise self.own.backend.failure(self.own, said)
            if kernel.totals:
                tensors += [total.of(tensors[total.place]) for total in kernel.totals]
            elif not kernel.is_inner:
                outputs += written
        if outside:
            require_inside()
        return outputs


def prepare_call(own: Own, sizes: Mapping[str, int], addresses: Sequence[int]) -> LoopCall:
    """Return all that follows from the sizes of a call, and from where the kernels are."""
    made = {output.name for step in own.steps for output in step.kernel.nest.outputs}
    operands = (operand for step in own.steps for operand in step.kernel.operands)
    inputs = tuple(dict.fromkeys(each for each in operands if each.name not in made))
    places: dict[Operand | str, int] = {operand: place for place, operand in enumerate(inputs)}
    first = len(inputs)
    kernels: list[KernelCall] = []
    sizes = {**sizes, **count_entries(own, sizes)}
    for step, address in zip(own.steps, addresses, strict=True):
        names = [output.name for output in step.kernel.nest.outputs]
        places |= {name: first + k for k, name in enumerate(names)}
        sizing = KernelSizing(step, own, sizes)
        kernels.append(sizing.call(address, places, first))
        first += len(names)
        # A total has the name of what it is the sum of.
        places |= {total.name: first + k for k, total in enumerate(step.totals)}
        first += len(step.totals)
    runner = own.backend.runner()
    return LoopCall(own=own, runner=runner, inputs=inputs, kernels=tuple(kernels))


def count_entries(own: Own, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return how many entries the sums over segments have, by the names of these sizes."""
    extents, ranges = Extents(sizes), own.indexed.ranges
    return {
        str(term).strip("|"): math.prod(
            extents.number(n) or 0 for n in sorter.segments.shape(ranges)
        )
        for sorter in own.sorters
        for term, _ in sorter.segments.size.terms
    }


class KernelSizing:
    """What follows from the sizes of a call, for one kernel."""

    def __init__(self, step: ScheduleStep, own: Own, sizes: Mapping[str, int]) -> None:
        self.step, self.own, self.sizes = step, own, sizes
        self.nest, self.target = step.kernel.nest, own.target
        self.extents = Extents(sizes)
        self.ranges = Ranges(step.kernel.ranges)
        self.work = schedules.count_operations(step.kernel, sizes)
        self.outer = [self.size(index) for index in self.nest.outer]
        self.parts = self.count_parts()
        self.chunks = 1
        if self.nest.over:
            length = self.size(self.nest.over)
            self.chunks = self.target.count_chunks(self.work, self.parts, length)

    def size(self, index: str) -> int:
        """Return how far an index of the nest runs."""
        extent = self.nest.over_size if index == self.nest.over else self.ranges.size(index)
        assert extent is not None
        return self.number(extent)

    def number(self, extent: Affine) -> int:
        """Return a size as a number."""
        number = self.extents.number(extent)
        assert number is not None, extent
        return number

    def call(self, address: int, places: Mapping[Operand | str, int], first: int) -> KernelCall:
        """Return a call of the kernel.

        Args:
            address: of its entry point.
            places: of the inputs, and of what is written and added up so far, by its name.
            first: the place of what it writes.
        """
        operands, rows = self.step.kernel.operands, self.step.kernel.rows
        own = {output.name for output in self.nest.outputs}
        sizes = {**self.sizes, CHUNKS: self.chunks}
        written, totals = self.totals(first) if self.nest.over else (self.outputs(), ())
        empty = not self.nest.over and not all(math.prod(shape) for shape, _ in written)
        # Nothing is written where an output is empty.
        count = 0 if empty else self.parts * self.chunks
        return KernelCall(
            address=address,
            tensors=tuple(places.get(each, places.get(each.name, -1)) for each in operands),
            totals_read=tuple(
                (k, each)
                for k, each in enumerate(operands)
                if each not in places and each.name not in own
            ),
            written=written,
            sizes=tuple(sizes[name] for name in self.step.kernel.sizes),
            count=count,
            share=self.target.count_share(count, self.work, list(map(self.number, rows))),
            totals=totals,
            is_inner=self.step.is_inner,
        )

    def count_parts(self) -> int:
        """Return how many tasks there are for each chunk."""
        nest, parts = self.nest, 1
        if nest.shares_lanes:
            parts = -(-self.size(str(nest.lane)) // (nest.block or nest.vectors * self.own.lanes))
        return parts * math.prod(
            -(-size // (nest.rows if index == nest.tile else 1))
            for index, size in zip(nest.outer, self.outer, strict=True)
        )

    def outputs(self) -> tuple[Written, ...]:
        """Return the shapes and dtypes of outputs."""
        time, rings = (self.nest.sequential or ("",))[0], self.nest.rings
        return tuple(
            (
                tuple(rings.get(o.name, n) if i == time else n for i, n in self.dims(o)),
                getattr(torch, o.dtype),
            )
            for o in self.nest.outputs
        )

    def dims(self, output: Output) -> list[tuple[str, int]]:
        """Return the dimensions of an output."""
        return [(index, self.size(index)) for index in output.indices]

    def totals(self, first: int) -> tuple[tuple[Written, ...], tuple[Total, ...]]:
        """Return what a kernel writes that adds up chunks, flat, and how it is finished."""
        nest, written, totals = self.nest, list[Written](), list[Total]()
        for k, total in enumerate(self.step.totals):
            small = [index for index in total.indices if index in nest.small]
            indices = [*nest.outer, *small, *([nest.lane] if nest.lane else [])]
            rest = map(self.size, indices[len(nest.outer) :])
            shape = (*self.outer, self.chunks, *rest)
            written.append(((math.prod(shape),), torch.float64))
            order = tuple(indices.index(index) for index in total.indices)
            totals.append(Total(place=first + k, shape=shape, summed=len(self.outer), order=order))
        return tuple(written), tuple(totals)


def lay_out(tensor: Tensor, operand: Operand) -> Tensor:
    """Return a tensor in the dtype and the layout that a kernel reads."""
    dtype = cast("torch.dtype", getattr(torch, operand.dtype))
    if tensor.is_neg() or tensor.dtype != dtype:
        tensor = tensor.resolve_neg().to(dtype)
    if tensor.numel() == 0:
        # Nothing of it is selected, but something may be read.
        return tensor.new_zeros([max(extent, 1) for extent in tensor.shape])
    unit = operand.unit
    if any(tensor.shape[d] > 1 and tensor.stride(d) != step for d, step in operand.packed):
        return tensor.contiguous()
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
