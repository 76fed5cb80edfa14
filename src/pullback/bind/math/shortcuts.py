"""Calls of one kernel that are known: the runtime runs them without a line of Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor

from pullback.bind import runtime
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.own_call import Shape
from pullback.bind.math.ready import Ready, ReadyLoops
from pullback.bind.native import SCALAR_TYPES
from pullback.bind.runtime import NativeCall, Shortcuts


def make_shortcuts(counts: tuple[int, ...]) -> Shortcuts:
    """Return those of an operator, none yet; `counts` as `execute.find_counts` returns them."""
    return runtime.load().Shortcuts(counts)


def find_shortcut(ready: Ready, given: Sequence[object]) -> NativeCall | None:
    """Return the call of the kernel that computes all outputs; None if it takes more than that."""
    [loops, *others] = ready.loops
    # Under CUDA on the CPU, and on a GPU, a launch is more than a call.
    if others or ready.checks or type(loops.call.own.backend) is not CpuBackend:
        return None
    return _of_loops(ready, loops, given)


def _of_loops(ready: Ready, loops: ReadyLoops, given: Sequence[object]) -> NativeCall | None:
    [kernel, *others] = loops.call.kernels
    in_order = [place for place, _ in loops.outputs] == [*range(ready.count)]
    if others or not in_order or kernel.totals or not kernel.count:
        return None
    places, shapes = list[int](), list[Shape]()
    for k in loops.inputs:
        if isinstance(k, str):
            return None  # entries are sorted first
        place, shape = ready.inputs[k]
        places.append(place)
        shapes.append(tuple(cast("Tensor", given[place]).shape) if shape is None else shape)
    shapes += [shape for shape, _ in kernel.written]
    places += [len(given) + k for k in range(ready.count)]
    sizes = [cast("Tensor", given[place]).element_size() for place in places[: len(loops.inputs)]]
    sizes += [dtype.itemsize for _, dtype in kernel.written]
    written = (
        (own if shape is None else shape, SCALAR_TYPES[str(dtype).removeprefix("torch.")])
        for (own, dtype), (_, shape) in zip(kernel.written, loops.outputs, strict=True)
    )
    return (
        kernel.address,
        tuple(places[k] for k in kernel.tensors),
        tuple(written),
        tuple(step for k in kernel.tensors for step in _strides(shapes[k], sizes[k])),
        kernel.sizes,
        tuple(place for place, _ in ready.scalars),
        kernel.count,
        kernel.share,
    )


def _strides(shape: Shape, size: int) -> list[int]:
    """Return the bytes between neighbours in each dimension of a contiguous tensor."""
    return [size * math.prod(shape[d + 1 :]) for d in range(len(shape))]
