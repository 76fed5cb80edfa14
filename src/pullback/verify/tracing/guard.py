"""Memory with a guard zone on both sides of each tensor, which shows writes beside it.

PyTorch asks one allocator for all CPU tensors, whoever makes them: its own operations, our runtime
for a kernel's outputs, an extension. `csrc/guard.cpp` temporarily replaces it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pullback.bind import runtime
from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.plan import BuildPlan, TranslationUnit
from pullback.verify.tracing.memory import storage_of

SOURCE = Path(runtime.__file__).parent.parent / "csrc" / "guard.cpp"
# Zones that nobody looks at hold a value that is neither a pointer nor an ordinary number.
ZONE = 0x4B
LEFT = -1
MOST = 64


class Trespass(ctypes.Structure):
    """Bytes that were written beside a block of memory, counted from its start."""

    block: int
    bytes: int
    first: int
    last: int
    _fields_ = (
        ("block", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
    )


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Elements beside a tensor that were written; bytes, if the tensor is not known.

    Attributes:
        name: of the tensor, or its size.
        first: the first element, negative before the tensor.
        last: the last one.
        count: the elements that the tensor has.
    """

    name: str
    first: int
    last: int
    count: int


@contextmanager
def guard(fill: int = LEFT, zone: int = ZONE) -> Generator[None]:
    """Guard the tensors that are made within the block; without a compiler do nothing.

    Args:
        fill: the byte that fills fresh memory; `LEFT` leaves it as it is.
        zone: the byte that fills zones.
    """
    own = library()
    if own is None:
        yield
        return
    global _now  # noqa: PLW0603  (PyTorch has one allocator)
    before, _now = _now, (fill, zone)
    own.pullback_guard(*_now)
    try:
        yield
    finally:
        _now = before
        if before is None:
            own.pullback_unguard()
        else:
            own.pullback_guard(*before)


_now: tuple[int, int] | None = None


def find_trespasses(named: dict[str, Tensor]) -> list[Outside]:
    """Return the writes beside tensors since `guard` began, those with a name first."""
    own = library()
    if own is None:
        return []
    found = (Trespass * MOST)()
    count = own.pullback_trespasses(found, MOST)
    tensors = {storage_of(tensor): (name, tensor) for name, tensor in reversed(named.items())}
    seen = [locate_outside(each, tensors.get(each.block)) for each in found[: min(count, MOST)]]
    return sorted(seen, key=lambda own: own.name not in named)


def locate_outside(seen: Trespass, known: tuple[str, Tensor] | None) -> Outside:
    """Count in elements of the tensor, if it is known."""
    if known is None:
        name, size = f"a tensor of {seen.bytes} bytes", 1
    else:
        name, size = known[0], known[1].element_size()
    return Outside(
        name=name, first=seen.first // size, last=seen.last // size, count=seen.bytes // size
    )


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the guard's library, compiled within two seconds; None if it cannot be.

    Without a compiler, or if the disk is full, a check still runs the other probes.
    """
    try:
        own = compilation.open_library(compilation.compile(plan()))
    except PullbackError:
        return None
    own.pullback_guard.argtypes = (ctypes.c_int, ctypes.c_uint8)
    own.pullback_guard.restype = own.pullback_unguard.restype = None
    own.pullback_trespasses.argtypes = (ctypes.POINTER(Trespass), ctypes.c_int64)
    own.pullback_trespasses.restype = ctypes.c_int64
    return own


def plan() -> BuildPlan:
    """Return the plan of the library for the running PyTorch."""
    return BuildPlan(
        name="pullback-guard",
        compiler=toolchain.find("c++"),
        units=(TranslationUnit("guard.cpp", f'#include "{SOURCE}"\n'),),
        sources=(SOURCE,),
        flags=(*runtime.FLAGS, *runtime.include_flags()),
        link=runtime.link_flags(),
        abi=runtime.abi(),
    )
