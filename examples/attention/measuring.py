"""Time and memory of what takes some tensors, forward and with backward.

One thread, timed by its own clock, the least of calls by turns. Memory is the most that is held at
once beyond what was there and what is returned, by Linux's account of the process.
"""

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

Way = Callable[..., Tensor]
CALLS = 2


class Measured(NamedTuple):
    """Milliseconds and megabytes of the value, and of the value and the gradients."""

    forward: float
    both: float
    forward_held: float
    both_held: float


def measure(ways: Mapping[str, Way], given: Sequence[Tensor | float]) -> dict[str, Measured]:
    """Measure some ways to compute the same."""
    leaves = [
        each.requires_grad_(each.is_floating_point()) if isinstance(each, Tensor) else each
        for each in given
    ]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(1 + CALLS):
        for name, way in ways.items():
            found[name].append(timed(way, leaves))
    forward = {name: 1e3 * min(value for value, _ in times) for name, times in found.items()}
    both = {name: 1e3 * min(all_ for _, all_ in times) for name, times in found.items()}
    return {
        name: Measured(forward[name], both[name], *held(way, leaves)) for name, way in ways.items()
    }


def wanted(leaves: Sequence[Tensor | float]) -> list[Tensor]:
    """Return what gradients are computed for."""
    return [each for each in leaves if isinstance(each, Tensor) and each.requires_grad]


def timed(way: Way, leaves: Sequence[Tensor | float]) -> tuple[float, float]:
    """Return the seconds of the value, and of that and the gradients."""
    begin = time.thread_time()
    value = way(*leaves)
    middle = time.thread_time()
    grad = torch.ones_like(value)
    between = time.thread_time()
    torch.autograd.grad(value, wanted(leaves), grad)
    return middle - begin, middle - begin + time.thread_time() - between


def held(way: Way, leaves: Sequence[Tensor | float]) -> tuple[float, float]:
    """Return the megabytes that the value needs, and that it and the gradients need."""

    def forward() -> list[Tensor]:
        with torch.no_grad():
            return [way(*leaves)]

    def both() -> list[Tensor]:
        value = way(*leaves)
        return list(torch.autograd.grad(value, wanted(leaves), torch.ones_like(value)))

    # In a thread of its own: what others have freed lies in their heaps, which a call would fill.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(peak, forward).result(), pool.submit(peak, both).result()


def peak(run: Callable[[], list[Tensor]]) -> float:
    """Return the most megabytes that a call holds at once, beyond what it returns."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return math.nan

    def account(what: str) -> int:
        line = next(row for row in status.read_text().splitlines() if row.startswith(what))
        return 1024 * int(line.split()[1])

    run()
    keep_freed(2**16)  # what is freed is given back at once, so that what is held can be seen
    reset.write_text("5")
    before = account("VmRSS")
    returned = sum(tensor.nbytes for tensor in run())
    most = account("VmHWM")
    keep_freed(2**25)  # as the GNU C library does by itself
    return max(0.0, most - before - returned) / 1e6


def keep_freed(bytes_: int) -> None:
    """Let the process keep freed memory for later, up to some bytes a piece."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, bytes_)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 2 * bytes_)  # M_TRIM_THRESHOLD
    libc.malloc_trim(0)
