"""The runtime libraries that this process has loaded: their options and counts."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pullback.kernels.cuda_on_cpu import library, mode

MAPS = Path("/proc/self/maps")
KEPT, KEPT_STACK = -1, 2**64 - 1


def runtimes() -> list[ctypes.CDLL]:
    """Return the runtime libraries; none is loaded for it."""
    if not MAPS.is_file():
        return []
    words = (line.split(maxsplit=5) for line in MAPS.read_text().splitlines())
    paths = {each[5] for each in words if len(each) == 6}
    own = sorted(path for path in paths if Path(path).name.startswith("cuda-on-cpu"))
    return [ctypes.CDLL(path) for path in own]


def launches() -> int:
    """Return how many kernels this process has launched on the CPU."""
    count = 0
    for runtime in runtimes():
        runtime.cuda_on_cpu_launches.restype = ctypes.c_uint64
        count += runtime.cuda_on_cpu_launches()
    return count


def set_order(order: str) -> None:
    """Run what is launched from now on in an order of threads; runtimes loaded later as well."""
    os.environ[mode.OPTIONS["order"]] = order
    name, _, seed = order.partition(":")
    for runtime in runtimes():
        runtime.cuda_on_cpu_options(
            ctypes.c_int(library.ORDERS.index(name)),
            ctypes.c_uint64(int(seed or 1)),
            ctypes.c_int(KEPT),
            ctypes.c_double(KEPT),
            ctypes.c_uint64(KEPT_STACK),
        )
