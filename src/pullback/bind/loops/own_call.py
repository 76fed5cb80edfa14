"""One call of own loops: what follows from its sizes, worked out once, and how it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.bind.loops import launches
from pullback.bind.loops.loop_plan import KernelPlan
from pullback.define.line import Scalar
from pullback.define.math.index import Affine
from pullback.kernels.loops.cost import count_operations
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import CHUNKS
from pullback.kernels.loops.operands import Operand

if TYPE_CHECKING:
    from pullback.bind.loops.backends import Runner
    from pullback.bind.loops.nests import Own

# What a kernel says that has read elsewhere than at a place outside: csrc/index/index.h.
INDEX_OUTSIDE = 2
# Bytes of a cache line; of lines so many bytes apart, or a multiple of that, a cache keeps a few.
LINE, FEW_PLACES = 64, 1024
Shape = tuple[int, ...]
Written = tuple[Shape, torch.dtype]


@dataclass(frozen=True, kw_only=True)
class Total:
    """How a kernel's totals are finished: a `TotalPlan` with numbers for sizes."""

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
        totals: what becomes of the first that it writes, if it adds up chunks.
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
    """All kernels that compute some outputs, for the sizes of a call: a `LoopPlan` with numbers.

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
                self.note(kernel, given, scalars)
                said = self.runner(
                    kernel.address, given, kernel.sizes, scalars, kernel.count, kernel.share
                )
                if said == INDEX_OUTSIDE:
                    outside = True
                    launches.refuse()
                elif said is not None:
                    raise self.own.backend.failure(self.own, said)
            tensors += [total.of(tensors[total.place]) for total in kernel.totals]
            if not kernel.is_inner:
                outputs += written[len(kernel.totals) :]
        if outside:
            require_inside()
        return outputs

    def note(
        self, kernel: KernelCall, tensors: Sequence[Tensor], scalars: tuple[float, ...]
    ) -> None:
        """Note that a kernel runs, if the runtime is to make calls like this one."""
        noting = launches.current()
        if noting is None:
            return
        is_on_cpu = self.own.backend.home.type == "cpu"
        if is_on_cpu and self.runner is not runtime.load().parallel:
            launches.refuse()  # CUDA on the CPU: a launch is more than a call
        names = (scalar.name for scalar in self.own.indexed.line.scalars)
        named = dict(zip(names, scalars, strict=True))
        noting.launch(kernel.address, tensors, kernel.sizes, named, kernel.count, kernel.share)


def prepare_call(own: Own, sizes: Mapping[str, int], addresses: Sequence[int]) -> LoopCall:
    """Return all that follows from the sizes of a call, and from where the kernels are."""
    plan, extents = own.plan, Extents(sizes)
    sizes = {
        **sizes,
        **{
            name: math.prod(extents.number(extent) or 0 for extent in shape)
            for name, shape in plan.entries
        },
    }
    kernels = [
        KernelSizing(kernel, own, sizes).call(address)
        for kernel, address in zip(plan.kernels, addresses, strict=True)
    ]
    runner = own.backend.runner()
    return LoopCall(own=own, runner=runner, inputs=plan.inputs, kernels=tuple(kernels))


class KernelSizing:
    """What follows from the sizes of a call, for one kernel."""

    def __init__(self, plan: KernelPlan, own: Own, sizes: Mapping[str, int]) -> None:
        self.plan, self.own, self.target = plan, own, own.target
        self.extents = Extents(sizes)
        self.work = count_operations(plan.step.kernel, sizes)
        self.parts = self.count_parts()
        self.chunks = 1
        if plan.over is not None:
            length = self.number(plan.over)
            self.chunks = self.target.count_chunks(self.work, self.parts, length)
        self.extents = Extents({**sizes, CHUNKS: self.chunks})

    def number(self, extent: Affine) -> int:
        """Return a size as a number."""
        number = self.extents.number(extent)
        assert number is not None, extent
        return number

    def shape(self, extents: Iterable[Affine]) -> Shape:
        """Return sizes as numbers."""
        return tuple(map(self.number, extents))

    def call(self, address: int) -> KernelCall:
        """Return a call of the kernel, whose entry point has this address."""
        plan = self.plan
        written = tuple((self.shape(shape), dtype) for shape, dtype in plan.written)
        empty = not plan.totals and not all(math.prod(shape) for shape, _ in written)
        # Nothing is written where an output is empty.
        count = 0 if empty else self.parts * self.chunks
        return KernelCall(
            address=address,
            tensors=plan.tensors,
            totals_read=plan.totals_read,
            written=tuple(
                ((math.prod(shape),) if k < len(plan.totals) else shape, getattr(torch, dtype))
                for k, (shape, dtype) in enumerate(written)
            ),
            sizes=self.shape(plan.sizes),
            count=count,
            share=self.target.count_share(count, self.work, self.shape(plan.step.kernel.rows)),
            totals=tuple(
                Total(place=t.place, shape=self.shape(t.shape), summed=t.summed, order=t.order)
                for t in plan.totals
            ),
            is_inner=plan.step.is_inner,
        )

    def count_parts(self) -> int:
        """Return how many tasks there are for each chunk."""
        nest = self.plan.step.kernel.nest
        each = self.own.lanes if nest.shares_lanes and not nest.block else 1
        return math.prod(-(-self.number(size) // (part * each)) for size, part in self.plan.tasks)


def lay_out(tensor: Tensor, operand: Operand) -> Tensor:
    """Return a tensor in the dtype and the layout that a kernel reads."""
    dtype = cast("torch.dtype", getattr(torch, operand.dtype))
    if tensor.is_neg() or tensor.dtype != dtype:
        tensor = tensor.resolve_neg().to(dtype)
    if tensor.numel() == 0:
        # Nothing of it is selected, but something may be read.
        return tensor.new_zeros([max(extent, 1) for extent in tensor.shape])
    if operand.aligned > 1 and tensor.data_ptr() % operand.aligned:
        tensor = tensor.clone()
    unit = operand.unit
    if any(tensor.shape[d] > 1 and tensor.stride(d) != step for d, step in operand.packed):
        return tensor.contiguous()
    if unit is None or tensor.shape[unit] == 1:
        return tensor
    gap, lies = 0, tensor.stride(unit) == 1
    if operand.is_spread:
        bytes_of = tensor.element_size()
        rows = (tensor.stride(d) for d, size in enumerate(tensor.shape) if d != unit and size > 1)
        lies = lies and all(step * bytes_of % FEW_PLACES for step in rows)
        gap = 0 if tensor.shape[unit] * bytes_of % FEW_PLACES else LINE // bytes_of
    return tensor if lies else write_last(tensor, (unit,), gap)


def write_last(tensor: Tensor, last: tuple[int, ...], gap: int = 0) -> Tensor:
    """Return a copy in which some dimensions are the innermost ones.

    Only what is there once is copied: where others are expanded, the copy is too.

    Args:
        tensor: the tensor.
        last: the dimensions.
        gap: how many elements are left free after each row.
    """
    core = tensor
    for d, stride in enumerate(tensor.stride()):
        if stride == 0 and d not in last:
            core = core.narrow(d, 0, 1)
    places = tuple(range(-len(last), 0))
    moved = core.movedim(last, places)
    width = moved.shape[-1]
    written = torch.constant_pad_nd(moved, (0, gap))[..., :width] if gap else moved.contiguous()
    return written.movedim(places, last).expand(tensor.shape)


def convert_scalar(parameter: Scalar, value: object) -> float:
    """Return a scalar as a kernel takes it."""
    if parameter.type == "float":
        return float(cast("float", value))
    return int(cast("int", value))
