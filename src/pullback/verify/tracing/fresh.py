"""Fills fresh memory with a pattern, so that unwritten elements show."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pullback.verify.tracing.guard import guard

NUMPY = ("empty", "empty_like")
# A byte that makes every floating-point number NaN, and one that makes none NaN.
NAN, OTHER = 0xFF, 0x4B


@contextmanager
def fill_with_nan() -> Generator[None]:
    """Fill all memory that PyTorch and NumPy hand out with NaN, and the zones with numbers.

    GPU memory, and without a compiler all memory, is filled by PyTorch itself, as for reproducible
    results; then integers get their largest value.
    """
    fills: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        fills.fill_uninitialized_memory,
    )
    set_deterministic(True, warn_only=True)
    fills.fill_uninitialized_memory = True
    try:
        with guard(NAN, OTHER), fill_numpy(NAN):
            yield
    finally:
        fills.fill_uninitialized_memory = before[2]
        set_deterministic(before[0], warn_only=before[1])


@contextmanager
def fill_with_numbers() -> Generator[None]:
    """Fill all memory that PyTorch and NumPy hand out with numbers, and the zones with NaN."""
    with leave_as_it_is(), guard(OTHER, NAN), fill_numpy(OTHER):
        yield


@contextmanager
def fill_numpy(byte: int) -> Generator[None]:
    """Fill memory from NumPy with a byte."""
    kept = {name: getattr(np, name) for name in NUMPY}
    for name, make in kept.items():
        setattr(np, name, make_filling(make, byte))
    try:
        yield
    finally:
        for name, make in kept.items():
            setattr(np, name, make)


@contextmanager
def leave_as_it_is() -> Generator[None]:
    """Fill no memory, even if a user asked for reproducible results, where PyTorch does."""
    fills: Any = torch.utils.deterministic
    before = fills.fill_uninitialized_memory
    fills.fill_uninitialized_memory = False
    try:
        yield
    finally:
        fills.fill_uninitialized_memory = before


def set_deterministic(on: bool, *, warn_only: bool) -> None:
    """Ask for reproducible results, or no longer.

    Not by PyTorch's own function if possible: that imports its compiler, which takes seconds.
    """
    inner = getattr(torch._C, "_set_deterministic_algorithms", None)
    if inner is None:
        torch.use_deterministic_algorithms(on, warn_only=warn_only)
    else:
        inner(on, warn_only=warn_only)


def make_filling(make: Callable[..., Any], byte: int) -> Callable[..., Any]:
    """Return a function of NumPy's that also fills its result."""

    def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        array = make(*args, **kwargs)
        if array.dtype.kind in "fciu":
            array.fill(np.frombuffer(bytes([byte]) * array.itemsize, array.dtype)[0])
        return array

    return made
