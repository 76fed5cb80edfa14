"""A call of own loops alone, with all that follows from its shapes worked out before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.bind.loops.nests import Own
from pullback.bind.loops.own_call import PreparedKernel, convert_scalar
from pullback.bind.math.call import Choice, IndexedCall
from pullback.define.line import Scalar
from pullback.define.math.index import BATCH
from pullback.kernels.loops.operands import Operand

# Which list a tensor of a kernel is in, where it is no input.
WRITTEN, ADDED = "~written", "~added"
CPU = torch.device("cpu")
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Total:
    """What becomes of a kernel's totals: the chunks are summed, and the indices put in order."""

    place: int
    shape: Shape
    summed: int
    order: tuple[int, ...]

    def of(self, part: Tensor) -> Tensor:
        """Return the total, as the next kernel reads it."""
        parts = part.view(self.shape)
        one = self.shape[self.summed] == 1
        return (parts.squeeze(self.summed) if one else parts.sum(self.summed)).permute(self.order)

    def layout(self) -> Tensor:
        """Return a tensor that lies as the total does, with nothing in it."""
        shape = (*self.shape[: self.summed], *self.shape[self.summed + 1 :])
        return torch.empty(shape, device="meta").permute(self.order)


@dataclass(frozen=True, kw_only=True)
class ReadyKernel:
    """One kernel: what it is called with; tensors by their places in the list of a call."""

    address: int
    tensors: tuple[int, ...]
    sizes: tuple[int, ...]
    count: int
    grain: int
    totals: tuple[Total, ...]


@dataclass(frozen=True, kw_only=True)
class Ready:
    """One call whose inputs are contiguous.

    Attributes:
        inputs: the tensors that are read: which argument, and with its batch as one dimension.
        scalars: which arguments, and what they are.
        made: the shapes and dtypes of what is written.
        kernels: in order; their tensors are the inputs, what is written, and the totals.
        results: of each output, which of what is written, and its shape; None if nobody wants it.
    """

    inputs: tuple[tuple[int, Shape | None], ...]
    scalars: tuple[tuple[int, Scalar], ...]
    made: tuple[tuple[Shape, torch.dtype], ...]
    kernels: tuple[ReadyKernel, ...]
    results: tuple[tuple[int, Shape | None] | None, ...]

    def run(self, given: Sequence[object]) -> list[Tensor | None] | None:
        """Return the outputs; None if the inputs do not lie as expected."""
        tensors: list[Tensor] = []
        for place, shape in self.inputs:
            tensor = cast("Tensor", given[place])
            if not tensor.is_contiguous() or tensor.is_neg():
                return None
            tensors.append(tensor if shape is None else tensor.view(shape))
        made = [torch.empty(shape, dtype=dtype, device=CPU) for shape, dtype in self.made]
        tensors += made
        scalars = tuple([convert_scalar(spec, given[place]) for place, spec in self.scalars])
        parallel = runtime.load().parallel
        for each in self.kernels:
            operands = tuple([tensors[place] for place in each.tensors])
            if each.count and parallel(
                each.address, operands, each.sizes, scalars, each.count, each.grain
            ):
                raise MemoryError
            for total in each.totals:
                tensors.append(total.of(made[total.place]))
        return [
            None
            if result is None
            else made[result[0]]
            if result[1] is None
            else made[result[0]].view(result[1])
            for result in self.results
        ]


class Unfit(Exception):  # noqa: N818  (such a call is computed the long way)
    """What is not worked out before."""


def make_ready(call: IndexedCall, choices: Sequence[Choice]) -> Ready | None:
    """Return what is ready for all calls like one; None if it needs more than its loops."""
    covered = {k for choice in choices if choice.own and choice.takes_own for k in choice.outputs}
    if not set(call.places) <= covered:
        return None
    try:
        return _Maker(call).made(choices)
    except Unfit:
        return None


@dataclass(frozen=True)
class _Part:
    """A kernel whose tensors are not numbered yet: an input's name, or what is written or added."""

    prepared: PreparedKernel
    address: int
    tensors: list[tuple[str, int]]
    totals: list[Total]


class _Maker:
    def __init__(self, call: IndexedCall) -> None:
        self.call = call
        self.line = call.indexed.line
        self.places = {p.name: place for place, p in enumerate(self.line.parameters)}
        self.inputs: dict[str, tuple[int, Shape | None]] = {}
        self.written: list[tuple[Shape, torch.dtype]] = []
        self.results: dict[int, tuple[int, Shape | None]] = {}
        self.added = 0

    def made(self, choices: Sequence[Choice]) -> Ready:
        """Return it."""
        parts = [part for c in choices if c.own for part in self.parts(c.own)]
        first = {name: k for k, name in enumerate(self.inputs)}
        first |= {WRITTEN: len(first), ADDED: len(first) + len(self.written)}
        kernels = tuple(
            ReadyKernel(
                address=part.address,
                tensors=tuple(first[name] + k for name, k in part.tensors),
                sizes=part.prepared.sizes,
                count=part.prepared.count,
                grain=part.prepared.grain,
                totals=tuple(part.totals),
            )
            for part in parts
        )
        results = (self.results.get(k) for k in range(len(self.line.outputs)))
        return Ready(
            inputs=tuple(self.inputs.values()),
            scalars=tuple((self.places[s.name], s) for s in self.line.scalars),
            made=tuple(self.written),
            kernels=kernels,
            results=tuple(results),
        )

    def parts(self, own: Own) -> Iterator[_Part]:
        """Yield the kernels of some outputs."""
        outputs = iter(own.outputs)
        known: dict[str, tuple[str, int]] = {}
        layouts: dict[str, Tensor] = {}
        for step, prepared, address in zip(
            own.steps, own.prepared(self.call.sizes), own.addresses, strict=True
        ):
            begin = len(self.written)
            if step.totals:
                flat = [(math.prod(shape),) for shape in prepared.shapes]
                self.written += zip(flat, prepared.dtypes, strict=True)
            else:
                self.outputs(prepared, [next(outputs) for _ in prepared.shapes])
            for k, output in enumerate(step.kernel.nest.outputs):
                known[output.name] = WRITTEN, begin + k
                layouts.pop(output.name, None)
            tensors = [self.tensor(operand, known, layouts) for operand in step.kernel.operands]
            totals: list[Total] = []
            for k, total in enumerate(step.totals):
                made = Total(
                    place=begin + k,
                    shape=prepared.shapes[k],
                    summed=prepared.summed,
                    order=prepared.orders[k],
                )
                totals.append(made)
                known[total.name] = ADDED, self.added
                layouts[total.name] = made.layout()
                self.added += 1
            yield _Part(prepared, address, tensors, totals)

    def tensor(
        self, operand: Operand, known: dict[str, tuple[str, int]], layouts: dict[str, Tensor]
    ) -> tuple[str, int]:
        """Return where an operand is; stop where it does not lie as the kernel reads it."""
        if operand.name not in known:
            self.read(operand)
            return operand.name, 0
        layout, unit = layouts.get(operand.name), operand.unit
        if layout is not None and (
            not layout.numel()
            or (unit is not None and layout.shape[unit] > 1 and layout.stride(unit) != 1)
        ):
            raise Unfit
        return known[operand.name]

    def outputs(self, known: PreparedKernel, places: Sequence[int]) -> None:
        """Note what a kernel writes."""
        for place, shape, dtype in zip(places, known.shapes, known.dtypes, strict=True):
            wanted = tuple(self.call.outputs.shapes[place])
            if self.call.outputs.dtypes[place] != dtype:
                raise Unfit
            self.results[place] = len(self.written), None if wanted == shape else wanted
            self.written.append((shape, dtype))

    def read(self, operand: Operand) -> None:
        """Note an input; stop where a contiguous one does not lie as a kernel reads it."""
        value = self.call.named[operand.name]
        assert isinstance(value, Tensor)
        spec = next(tensor for tensor in self.line.tensors if tensor.name == operand.name)
        own, shape = spec.labels, tuple(value.shape)
        if BATCH in own:
            place, after = own.index(BATCH), len(own) - own.index(BATCH) - 1
            batch = shape[place : len(shape) - after]
            if batch != tuple(self.call.outputs.sizes.batch):
                raise Unfit
            shape = (*shape[:place], self.call.sizes[BATCH], *shape[len(shape) - after :])
        unit = operand.unit
        lies = unit is None or all(size == 1 for size in shape[unit + 1 :]) or shape[unit] == 1
        if not lies or 0 in shape or value.dtype != getattr(torch, operand.dtype):
            raise Unfit
        same = shape == tuple(value.shape)
        self.inputs[operand.name] = self.places[operand.name], None if same else shape
