"""Fresh memory that is full of NaN, so that what is never written shows."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

NUMPY = ("empty", "empty_like")


@contextmanager
def filled_with_nan() -> Generator[None]:
    """Fill all memory that PyTorch and NumPy hand out, as `torch.empty` and `numpy.empty` do.

    PyTorch does it by itself where results have to be reproducible, also for what C++ allocates;
    integers get their largest value.
    """
    fills: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        fills.fill_uninitialized_memory,
    )
    kept = {name: getattr(np, name) for name in NUMPY}
    set_deterministic(True, warn_only=True)
    fills.fill_uninitialized_memory = True
    for name, make in kept.items():
        setattr(np, name, filling(make))
    try:
        yield
    finally:
        for name, make in kept.items():
            setattr(np, name, make)
        fills.fill_uninitialized_memory = before[2]
        set_deterministic(before[0], warn_only=before[1])


@contextmanager
def left_as_it_is() -> Generator[None]:
    """Fill no memory, though PyTorch does where a user asked for reproducible results."""
    fills: Any = torch.utils.deterministic
    before = fills.fill_uninitialized_memory
    fills.fill_uninitialized_memory = False
    try:
        yield
    finally:
        fills.fill_uninitialized_memory = before


def set_deterministic(on: bool, *, warn_only: bool) -> None:
    """Ask for reproducible results, or no longer.

    Not by PyTorch's own function where it can be helped: that imports its compiler, for seconds.
    """
    inner = getattr(torch._C, "_set_deterministic_algorithms", None)
    if inner is None:
        torch.use_deterministic_algorithms(on, warn_only=warn_only)
    else:
        inner(on, warn_only=warn_only)


def filling(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that fills what it makes."""

    def made(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        array = make(*args, **kwargs)
        if array.dtype.kind in "fc":
            array.fill(np.nan)
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max)
        return array

    return made
