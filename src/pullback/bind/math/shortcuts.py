"""Calls of own loops that are known: the runtime runs them without a line of Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import cast

from torch import Tensor

from pullback.bind import runtime
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.own_call import KernelCall, Shape, lay_out
from pullback.bind.math.ready import LaidOut, Ready, ReadyLoops
from pullback.bind.native import SCALAR_TYPES
from pullback.bind.runtime import NativeCall, NativeInput, NativeKernel, NativeLoops, Shortcuts


def make_shortcuts(counts: tuple[int, ...]) -> Shortcuts:
    """Return those of an operator, none yet; `counts` as `execute.find_counts` returns them."""
    return runtime.load().Shortcuts(counts)


class _Long(Exception):  # noqa: N818  (such a call goes the long way)
    """What the runtime does not do."""


def find_shortcut(ready: Ready, given: Sequence[object]) -> NativeCall | None:
    """Return the call of the loops that compute all outputs; None if it takes more than that."""
    # Under CUDA on the CPU, and on a GPU, a launch is more than a call.
    backends = {type(loops.call.own.backend) for loops in ready.loops}
    if ready.checks or backends != {CpuBackend}:
        return None
    try:
        loops = tuple(_Loops(ready, each, given).native for each in ready.loops)
    except _Long:
        return None
    return loops, tuple(place for place, _ in ready.scalars), ready.count


class _Loops:
    """Some loops of a call, whose tensors the runtime has in one list, as `LoopCall.run` has.

    Attributes:
        inputs: which arguments, and how they are laid out.
        strides: of each tensor of the list, in bytes.
    """

    def __init__(self, ready: Ready, loops: ReadyLoops, given: Sequence[object]) -> None:
        self.ready, self.given = ready, given
        self.strides: list[tuple[int, ...]] = []
        self.inputs = tuple(map(self.take, loops.inputs))
        shapes = iter(loops.outputs)
        kernels: list[NativeKernel] = []
        outputs: list[tuple[int, int]] = []
        for kernel in loops.call.kernels:
            written = tuple(shape for shape, _ in kernel.written)
            if not kernel.totals and not kernel.is_inner:
                returned = [next(shapes) for _ in written]
                first = len(self.strides)
                outputs += [(first + k, place) for k, (place, _) in enumerate(returned)]
                pairs = zip(written, returned, strict=True)
                written = tuple(own if shape is None else shape for own, (_, shape) in pairs)
            kernels.append(self.write(kernel, written))
        self.native: NativeLoops = self.inputs, tuple(kernels), tuple(outputs)

    def take(self, place: int | str | LaidOut) -> NativeInput:
        """Return an argument as the kernels read it."""
        if isinstance(place, str):
            raise _Long  # entries are sorted first
        laid = place if isinstance(place, LaidOut) else None
        argument, shape = self.ready.inputs[laid.place if laid else cast("int", place)]
        tensor = cast("Tensor", self.given[argument])
        tensor = tensor if shape is None else tensor.view(shape)
        unit = -1
        if laid:
            tensor, unit = lay_out(tensor, laid.operand), cast("int", laid.operand.unit)
        self.strides.append(tuple(step * tensor.element_size() for step in tensor.stride()))
        return argument, unit, tuple(tensor.shape)

    def write(self, kernel: KernelCall, shapes: Sequence[Shape]) -> NativeKernel:
        """Return a kernel; note how what it writes lies."""
        if not kernel.count:
            raise _Long
        for shape, dtype in kernel.written:
            self.strides.append(strides_of(shape, dtype.itemsize))
        operands = [self.strides[place] for place in kernel.tensors]
        for place, operand in kernel.totals_read:
            laid = operand.unit is None or operands[place][operand.unit] == SIZE_OF_TOTAL
            if not laid:
                raise _Long
        native = (
            kernel.address,
            kernel.tensors,
            tuple(
                (shape, SCALAR_TYPES[str(dtype).removeprefix("torch.")])
                for shape, (_, dtype) in zip(shapes, kernel.written, strict=True)
            ),
            tuple(chain.from_iterable(operands)),
            kernel.sizes,
            kernel.count,
            kernel.share,
            tuple((total.place, total.shape, total.summed) for total in kernel.totals),
        )
        for total in kernel.totals:
            whole = [n for d, n in enumerate(total.shape) if d != total.summed]
            steps = strides_of(whole, SIZE_OF_TOTAL)
            self.strides.append(tuple(steps[d] for d in total.order))
        return native


# Totals are added up in double.
SIZE_OF_TOTAL = 8


def strides_of(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the bytes between neighbours in each dimension of a contiguous tensor."""
    return tuple(size * math.prod(shape[d + 1 :]) for d in range(len(shape)))
