"""Whether numbers are finite: asked of a GPU before what it computes next, and answered meanwhile.

The sum of all squares is not finite if a number is not, and it bounds every product of them
(Cauchy-Schwarz). PyTorch's operations take several launches for each tensor; a loop reads all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from pullback.bind.dense.space import FindLoops
from pullback.bind.loops.own_call import LoopCall, lay_out
from pullback.define.math import notation
from pullback.define.math.formula import Formula
from pullback.define.parse import parse
from pullback.kernels.cuda_on_cpu import mode

Run = Callable[..., tuple[Tensor, ...]]
# What products of numbers may be without one being infinite in float32, whose largest is 2**128.
LARGEST = 2.0**100
# So many sums are enough for a GPU.
MOST = 2**11


def compute_checked(
    run: Run, loops: LoopCall | None, given: tuple[int, float], *tensors: Tensor
) -> tuple[Tensor, ...]:
    """Return what is computed from some tensors; at last, whether that can be relied on.

    It can if all numbers are finite, and so are their products: a truth on the CPU. To a call's
    record it is one operation.

    Args:
        run: computes it.
        loops: those of `find_squares`; None: PyTorch's operations.
        given: how many of the tensors are asked about, and what their products are multiplied by.
        tensors: what is computed from.
    """
    if has_torch_function(tensors):
        every: Any = (run, loops, given, *tensors)
        return handle_torch_function(compute_checked, tensors, *every)
    many, factor = given
    squares, wait = add_squares(loops, tensors[:many])
    found = run(*tensors)
    wait()
    return *found, squares.sum() * (1 + abs(factor)) < LARGEST


def add_squares(
    loops: LoopCall | None, tensors: Sequence[Tensor]
) -> tuple[Tensor, Callable[[], object]]:
    """Return the sums of squares on the CPU, and what waits until they are there."""
    if loops is None:
        return torch.stack([norm_of(tensor).square() for tensor in tensors]).cpu(), lambda: None
    rows = loops.kernels[0].written[0][0][0]
    inputs = [
        lay_out(tensor.reshape(rows, -1), operand)
        for tensor, operand in zip(tensors, loops.inputs, strict=True)
    ]
    [sums] = loops.run(inputs, (), tensors[0].device, lambda: None)
    if not sums.is_cuda:
        return sums, lambda: None
    copy = sums.to("cpu", non_blocking=True)
    return copy, torch.cuda.current_stream(sums.device).record_event().synchronize


def norm_of(tensor: Tensor) -> Tensor:
    """Return the root of the sum of a tensor's squares."""
    return torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))


def find_squares(tensors: Sequence[Tensor], find_loops: FindLoops | None) -> LoopCall | None:
    """Return the loops that add up all squares, in parts; None where PyTorch's operations do."""
    device = tensors[0].device
    if find_loops is None or not (device.type == "cuda" or mode.is_chosen()):
        return None
    shared = math.gcd(*(tensor.numel() for tensor in tensors))
    rows = min(shared & -shared, MOST)
    sizes = {"r": rows, **{f"i{k}": tensor.numel() // rows for k, tensor in enumerate(tensors)}}
    dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    own = find_loops(write_squares(dtypes), sizes, device, 1.0)
    return own and own.prepared(sizes)


@functools.cache
def write_squares(dtypes: tuple[str, ...]) -> Formula:
    """Return the sums of all squares of some tensors, of each part one."""
    given = ", ".join(f"x{k}[r, i{k}]: {dtype}" for k, dtype in enumerate(dtypes))
    sums = " + ".join(f"sum[i{k}](x{k}**2)" for k in range(len(dtypes)))
    return notation.parse(parse(f"pullback::squares({given}) -> l[r]: float32 = {sums}"))
