"""The product of two matrices, by whatever of PyTorch's is fastest here.

`torch.mm` calls BLAS alone, and MKL has no loops with AVX-512 for processors that are not Intel's.
oneDNN has, and PyTorch brings it: there it is about twice as fast. A GPU multiplies matrices in
half precision, whose products it adds up in single, more than ten times as fast as others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from time import perf_counter

import torch
from torch import Tensor

from pullback.bind import gpu, runtime
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
# Rows and columns of the product that is timed, and how often: what else a machine does for a few
# milliseconds decides nothing.
TIMED, TIMES = 256, 12
HALVES = (torch.float16, torch.bfloat16)


def find_half(
    arguments: Iterable[object], dtypes: Iterable[torch.dtype], device: torch.device
) -> torch.dtype | None:
    """Return the dtype of half precision in which matrices of a call are multiplied.

    None if the device has no such products, or a result has more digits. Arguments may have: what a
    call keeps of its rows for the gradients.

    Args:
        arguments: of the call.
        dtypes: of its results.
        device: where it is.
    """
    given = {a.dtype for a in arguments if isinstance(a, Tensor) and a.is_floating_point()}
    halves = given & {*HALVES}
    results = {dtype for dtype in dtypes if dtype.is_floating_point}
    is_one = len(halves) == 1 and results <= halves and torch.float64 not in given
    return next((half for half in halves if is_one and multiplies(half, device)), None)


def multiplies(half: torch.dtype, device: torch.device) -> bool:
    """Return whether a device multiplies matrices of a half, and adds up in single precision.

    GPUs do that with both; processors with AVX-512 or AMX for it with bfloat16, by oneDNN.
    """
    if device.type == "cpu":
        is_there = half == torch.bfloat16 and torch.backends.mkldnn.enabled
        return is_there and has_products_of_bfloat16()
    return device.type == "cuda" and has_matrix_units(device)


@cache
def has_products_of_bfloat16() -> bool:
    """Return whether this processor has them."""
    return runtime.load().multiplies_halves()


@cache
def has_matrix_units(device: torch.device) -> bool:
    """Return whether a GPU multiplies matrices of both halves: NVIDIA's from Ampere on."""
    if torch.version.cuda is None or not gpu.is_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def multiply_halves(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of matrices, or of two batches of them, of which one is in half precision.

    The other one is rounded if it has more digits: by no more than the first one may have been. A
    bfloat16 has float32's range, and for a float16 what was computed may be too large.
    """
    half = first.dtype if first.dtype in HALVES else second.dtype
    if first.dtype != second.dtype:
        shared = half if half == torch.bfloat16 else torch.float32
        first, second = first.to(shared), second.to(shared)
    multiply_by = torch.mm if first.dim() == 2 else torch.bmm
    if first.dtype == torch.float32:
        return multiply_by(first, second)
    return multiply_by(first, second, out_dtype=torch.float32)


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
    return run_isolated(lambda: FASTER * compare_times(multiply_by_onednn, torch.mm) < 1)


def compare_times(
    one: Callable[[Tensor, Tensor], Tensor], other: Callable[[Tensor, Tensor], Tensor]
) -> float:
    """Return how many times as long one way to multiply takes as another one; they take turns."""
    first, second = torch.ones(2, TIMED, TIMED)
    least = [math.inf, math.inf]
    for _ in range(TIMES):
        for k, multiply_by in enumerate((one, other)):
            start = perf_counter()
            multiply_by(first, second)
            least[k] = min(least[k], perf_counter() - start)
    return least[0] / least[1]
