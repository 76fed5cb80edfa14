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

from pullback.bind.dense.value import is_differentiated, is_traced
from pullback.bind.levels import run_isolated

# Below so many rows, columns or products in a sum oneDNN may be slower, and its call takes longer.
LEAST = 32
# Multiplications of a product that is large enough for it.
MANY = 2**21
# How much faster it has to be than BLAS: clocks differ by less, so each run takes the same one.
FASTER = 1.4
# Rows and columns of the product that is timed, and how often.
TIMED, TIMES = 256, 4


def multiply(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of two matrices."""
    matrices = (first, second)
    if is_large(*matrices) and all(map(is_plain, matrices)) and prefers_onednn(first.dtype):
        return multiply_by_onednn(*matrices)
    return torch.mm(*matrices)


def prefers_onednn(dtype: torch.dtype) -> bool:
    """Return whether large matrices on a CPU are multiplied by oneDNN."""
    return dtype == torch.float32 and torch.backends.mkldnn.enabled and is_onednn_faster()


def is_large(first: Tensor, second: Tensor) -> bool:
    """Return whether a product is worth the longer call."""
    (rows, inner), columns = first.shape, second.shape[1]
    return min(rows, inner, columns) >= LEAST and rows * inner * columns >= MANY


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is what oneDNN's operation is for, which has no derivative."""
    is_eager = tensor.is_cpu and type(tensor) is Tensor and not is_traced(tensor)
    return is_eager and not is_differentiated(tensor)


def multiply_by_onednn(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of two matrices by oneDNN, as `torch.compile` calls it."""
    # It has fast loops for a second matrix without gaps alone.
    weight = second.mT if second.is_contiguous() or second.mT.is_contiguous() else second.mT.clone()
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
