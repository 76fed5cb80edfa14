"""The product of two matrices, by whichever of PyTorch's two libraries is faster here.

`torch.mm` calls BLAS alone, and MKL has no loops with AVX-512 for processors that are not Intel's.
oneDNN has, and PyTorch brings it: there it is about twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor

from pullback.bind.dense.record import PLAIN
from pullback.bind.dense.value import is_differentiated, is_traced
from pullback.bind.levels import run_isolated

# Below so many rows, columns or products in a sum oneDNN may be slower, and its call takes longer.
LEAST = 32
# Multiplications of a product that is large enough for it.
MANY = 2**21
# Matrices of a batch, which it multiplies one after the other.
MOST = 32
# How much faster it has to be than BLAS: clocks differ by less, so each run takes the same one.
FASTER = 1.4
# Rows and columns of the product that is timed, and how often.
TIMED, TIMES = 256, 4


def multiply(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of two matrices."""
    multiply_by = multiply_by_onednn if is_for_onednn(first, second) else torch.mm
    return multiply_by(first, second)


def multiply_each(first: Tensor, second: Tensor) -> Tensor:
    """Return the products of the matrices of two batches."""
    if not is_for_onednn(first, second) or len(first) > MOST:
        return torch.bmm(first, second)
    found = first.new_empty(len(first), first.shape[1], second.shape[2])
    for to, *matrices in zip(found, first, second, strict=True):
        to.copy_(multiply_by_onednn(*matrices))
    return found


def is_for_onednn(first: Tensor, second: Tensor) -> bool:
    """Return whether oneDNN multiplies two matrices, or those of two batches."""
    # Sizes that a tracer has not decided are not compared.
    if not (is_plain(first) and is_plain(second) and prefers_onednn(first.dtype)):
        return False
    (rows, inner), columns = first.shape[-2:], second.shape[-1]
    return min(rows, inner, columns) >= LEAST and rows * inner * columns >= MANY


def prefers_onednn(dtype: torch.dtype) -> bool:
    """Return whether large matrices on a CPU are multiplied by oneDNN."""
    return dtype == torch.float32 and torch.backends.mkldnn.enabled and is_onednn_faster()


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is what oneDNN's operation is for, which has no derivative."""
    is_eager = tensor.is_cpu and type(tensor) in PLAIN and not is_traced(tensor)
    return is_eager and not is_differentiated(tensor)


def multiply_by_onednn(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of two matrices by oneDNN, as `torch.compile` calls it."""
    # It copies a first matrix whose rows do not lie one after the other.
    if not first.is_contiguous() and first.numel() > second.numel():
        return multiply_by_onednn(second.mT, first.mT).mT
    weight = second.mT
    # It has fast loops for a second matrix without gaps alone.
    if not second.is_contiguous():
        weight = weight.contiguous()  # unchanged if only its columns lie one after the other
    return torch.ops.mkldnn._linear_pointwise(first, weight, None, "none", [], "")


@cache
def is_onednn_faster() -> bool:
    """Return whether oneDNN multiplies matrices clearly faster than BLAS on this machine."""
    if not torch.backends.mkldnn.is_available():
        return False
    return run_isolated(lambda: FASTER * time(multiply_by_onednn) < time(torch.mm))


def time(multiply_by: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Return the seconds that a product takes: the least of a few."""
    first, second = torch.ones(2, TIMED, TIMED)
    seconds = [perf_counter()]
    for _ in range(TIMES):
        multiply_by(first, second)
        seconds.append(perf_counter())
    return min(end - start for start, end in pairwise(seconds))
