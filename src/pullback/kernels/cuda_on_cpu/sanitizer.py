"""AddressSanitizer, for the check "memory": how a process gets it, and with which options."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pullback.diagnostic import Rule
from pullback.kernels import toolchain
from pullback.kernels.cuda_on_cpu.environment import SWITCH
from pullback.kernels.cuda_on_cpu.mode import Check

SanitizerMissing = Rule("PB236", "sanitizer-not-loaded")

PRELOAD, OPTIONS = "LD_PRELOAD", "ASAN_OPTIONS"
# AddressSanitizer looks for C++'s throw function when it starts, and Python has not loaded one yet.
LIBRARY, CXX_LIBRARY = "libasan", "libstdc++"

# Every access is a call, not inline code. The calls are linked to the runtime's own entry points,
# which also know which part of a block's shared memory was written.
COMPILE: dict[Check, tuple[str, ...]] = {
    "none": (),
    # Volatile accesses have hooks of their own, and no copy is inlined past the hooks.
    "race": (
        "--param=tsan-distinguish-volatile=1",
        "--param=tsan-instrument-func-entry-exit=0",
        "-fno-builtin-memcpy",
        "-fno-builtin-memmove",
        "-fno-builtin-memset",
    ),
    "memory": ("--param=asan-instrumentation-with-call-threshold=0",),
}
SIZES = ("1", "2", "4", "8", "16", "N")
WRAPPED = (
    *(f"__asan_{what}{size}_noabort" for what in ("load", "store") for size in SIZES),
    "memset",
    "memcpy",
    "memmove",
)
WRAPPED_FOR_RACES = (
    *("memset", "memcpy", "memmove", "malloc", "calloc", "_Znwm", "_Znam"),
    "__cxa_guard_release",
)
LINK: dict[Check, tuple[str, ...]] = {
    "none": (),
    "race": tuple(f"-Wl,--wrap={name}" for name in WRAPPED_FOR_RACES),
    "memory": tuple(f"-Wl,--wrap={name}" for name in WRAPPED),
}

# The runtime handles signals itself, on its own stacks, since it names the kernel. Memory that
# Python and PyTorch do not free at the end is not a kernel's fault. Wide gaps between allocations
# catch an index that is far off.
TOLD = {
    "allow_user_segv_handler": 1,
    "allocator_may_return_null": 1,
    "alloc_dealloc_mismatch": 0,
    "detect_leaks": 0,
    "detect_odr_violation": 0,
    "detect_stack_use_after_return": 0,
    "halt_on_error": 0,
    "handle_abort": 0,
    "handle_segv": 0,
    "handle_sigbus": 0,
    "handle_sigfpe": 0,
    "handle_sigill": 0,
    "max_redzone": 2048,
    "redzone": 256,
    "suppress_equal_pcs": 0,
    "use_sigaltstack": 0,
}


def options() -> dict[str, str]:
    """Return the variable that makes AddressSanitizer leave some things to the runtime."""
    return {OPTIONS: ":".join(f"{name}={value}" for name, value in TOLD.items())}


def environment() -> dict[str, str]:
    """Return the variables with which a process has AddressSanitizer from its start.

    Raises:
        PullbackError: PB236, the compiler has none; PB201, there is no compiler.
    """
    loaded = [str(library()), str(_library_of(toolchain.find("c++").command, CXX_LIBRARY) or "")]
    return {PRELOAD: ":".join([*filter(None, loaded), *_others(os.environ)]), **options()}


def strip_sanitizer(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables without the sanitizer, for a compiler, which is slow under it."""
    kept = dict(environment)
    if LIBRARY in kept.pop(PRELOAD, ""):
        others = _others(environment)
        return {**kept, PRELOAD: ":".join(others)} if others else kept
    return dict(environment)


def _others(environment: Mapping[str, str]) -> list[str]:
    """Return the libraries that are preloaded for other reasons."""
    named = environment.get(PRELOAD, "").replace(" ", ":").split(":")
    own = (LIBRARY, CXX_LIBRARY)
    return [each for each in named if each and not Path(each).name.startswith(own)]


def library() -> Path:
    """Return the AddressSanitizer library of the compiler that is used.

    Raises:
        PullbackError: PB236, it has none; PB201, there is no compiler.
    """
    compiler = toolchain.find("c++")
    found = _library_of(compiler.command, LIBRARY)
    if found is None:
        raise SanitizerMissing.error(
            f"{compiler} has no {LIBRARY}.so, which the check of memory needs",
            help="install it (it comes with g++), or set CXX to g++",
        )
    return found


@cache
def _library_of(command: tuple[str, ...], name: str) -> Path | None:
    asked = [*command, f"-print-file-name={name}.so"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    path = Path(answer)
    # A compiler that does not have it repeats the given name.
    return path.resolve() if path.is_absolute() and path.is_file() else None


def is_loaded() -> bool:
    """Tell whether this process has AddressSanitizer."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def require(check: Check) -> None:
    """Stop before a library that needs AddressSanitizer is loaded into a process without it.

    Raises:
        PullbackError: PB236.
    """
    if check != "memory" or is_loaded():
        return
    raise SanitizerMissing.error(
        "the check of memory needs a process that begins with AddressSanitizer",
        have="this one began without it",
        help="start with 'pullback cuda memory SCRIPT.py', 'pytest --cuda-memory', or "
        f"{SWITCH}=memory python -m pullback.cuda SCRIPT.py",
    )
