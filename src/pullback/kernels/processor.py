"""What this processor can run, and which GPUs run a library's code."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

BASELINE = "baseline"
# The value of `-march` for each level of each kind of processor, the most capable last.
LEVELS: dict[str, dict[str, str]] = {
    "x86_64": {BASELINE: "x86-64", "x86-64-v3": "x86-64-v3"},
    "aarch64": {BASELINE: "armv8-a"},
}
# Those of x86-64-v3 in the words of /proc/cpuinfo: the psABI's table 3.1.
FLAGS_OF: dict[str, frozenset[str]] = {
    "x86-64-v3": frozenset(
        (
            *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave", "cx16"),
            *("lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"),
        )
    )
}


@cache
def levels() -> tuple[str, ...]:
    """Return the levels of instructions that this processor has, the most capable last."""
    known = LEVELS.get(platform.machine(), {BASELINE: ""})
    flags = cpu_flags()
    return tuple(name for name in known if FLAGS_OF.get(name, frozenset()) <= flags)


def cpu_flags() -> frozenset[str]:
    """Return what the first processor says that it can do."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return frozenset(next((row.split() for row in lines if row.startswith("flags")), ()))
    except OSError:
        return frozenset()


def covers(architectures: Iterable[str], gpu: str) -> bool:
    """Tell whether code for some architectures runs on a GPU.

    "sm_80" is machine code for 8.0 and later of the same 8; "compute_80" is compiled by the driver
    for any later GPU. A letter, "sm_90a", is for that one alone.
    """
    major, minor = version_of(gpu)
    for name in architectures:
        if name[-1].isalpha():
            if version_of(name) == (major, minor) and name.startswith("sm_"):
                return True
            continue
        own = version_of(name)
        if own <= (major, minor) and (own[0] == major or name.startswith("compute_")):
            return True
    return False


def version_of(architecture: str) -> tuple[int, int]:
    """Return (9, 0) for "sm_90"."""
    digits = "".join(c for c in architecture.partition("_")[2] if c.isdigit())
    return int(digits[:-1]), int(digits[-1])
