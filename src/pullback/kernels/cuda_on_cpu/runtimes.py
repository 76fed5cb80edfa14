"""The runtime libraries that this process has loaded: their options and counts."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path

from pullback.kernels.cuda_on_cpu import library, sanitizer
from pullback.kernels.cuda_on_cpu.mode import Mode

MAPS = Path("/proc/self/maps")
ORDERS = ("forward", "reverse", "random")
# The values that mean "unchanged" and "default" to `cuda_on_cpu_options` in core.h.
KEPT_STACK, NOT_SAID = 2**64 - 1, math.nan


def load(mode: Mode) -> None:
    """Load the runtime library of a mode, compiling it if need be, and set its options.

    Raises:
        PullbackError: PB236, the memory check needs a process that was started for it; PB201 to
            PB206, it does not compile.
    """
    sanitizer.require(mode.check)
    _hand(ctypes.CDLL(str(library.runtime(mode.check))), mode)


def configure(mode: Mode) -> None:
    """Set the options of a mode in every loaded runtime library; none is loaded for this."""
    for runtime in loaded_runtimes():
        _hand(runtime, mode)


def count_launches() -> int:
    """Return how many kernels this process has launched on the CPU."""
    count = 0
    for runtime in loaded_runtimes():
        runtime.cuda_on_cpu_launches.restype = ctypes.c_uint64
        count += runtime.cuda_on_cpu_launches()
    return count


def loaded_runtimes() -> list[ctypes.CDLL]:
    """Return the runtime libraries, also those loaded with somebody else's library."""
    own = (path for path in mapped_files() if Path(path).name.startswith("cuda-on-cpu"))
    return [ctypes.CDLL(path, os.RTLD_NOLOAD) for path in own]


def mapped_files() -> list[str]:
    """Return the files that are mapped into this process, among them libraries."""
    if not MAPS.is_file():
        return []
    words = (line.split(maxsplit=5) for line in MAPS.read_text().splitlines())
    # The cache may be emptied while a process runs; its libraries are still known by their names.
    return sorted({each[5].removesuffix(" (deleted)") for each in words if len(each) == 6})


def _hand(runtime: ctypes.CDLL, mode: Mode) -> None:
    # In "all", each launch sets its order itself.
    order, _, seed = ("forward" if mode.order == "all" else mode.order).partition(":")
    runtime.cuda_on_cpu_options(
        ctypes.c_int(ORDERS.index(order)),
        ctypes.c_uint64(int(seed or 1)),
        ctypes.c_int(mode.workers),
        ctypes.c_double(NOT_SAID if mode.timeout is None else mode.timeout),
        ctypes.c_uint64(KEPT_STACK),
    )
