"""What a library computes, as a readable text that names neither compiler nor folder."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pullback.define.line import Line
from pullback.define.source import Source
from pullback.kernels.glue import CSRC, KERNEL_ABI, Device
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.loops.target import Target

FORMULA_ABI = "formula-2"
INDEX_ABI = "index-3"


def of_kernel(line: Line, source: Source, device: Device) -> str:
    """Return what a kernel computes: the line, the call, and the code if it is inline."""
    code = source.file or f"code {hashlib.sha256((source.text or '').encode()).hexdigest()[:16]}"
    dtypes = ", ".join(source.dtypes or ()) or "those it takes"
    strides = "any strides" if source.strided else "contiguous"
    parts = [f"{KERNEL_ABI} {device}", str(line), f"{Path(code).name}: {source.call}", dtypes]
    return " | ".join([*parts, strides, *([shlex.join(source.flags)] if source.flags else [])])


def of_loop(loop: Loop, device: Device) -> str:
    """Return what a loop computes, without a derivative's name, which may be numbered."""
    formula = loop.formula
    chosen = f"wanted {loop.wanted:b} present {loop.present:b}"
    return (
        f"{FORMULA_ABI} {device} | {formula_of(formula.line)} | {loop.dtype} | {chosen} | "
        f"{formula.accuracy} ulp"
    )


def of_kernels(kernels: Sequence[str], target: Target, scalars: int, accuracy: int) -> str:
    """Return what loops over indices compute: their texts say it, whatever the line and the sizes.

    Args:
        kernels: their texts, in order.
        target: that they are written for.
        scalars: how many a call has.
        accuracy: of functions, in units in the last place.
    """
    told = "\n".join([str(scalars), *kernels])
    digest = hashlib.sha256(told.encode()).hexdigest()[:32]
    return f"{INDEX_ABI} {target.name} | {target.compute} | {accuracy} ulp | {digest}"


def formula_of(line: Line) -> str:
    """Return a formula without its operator's name."""
    return str(line).removeprefix(line.qualname)


def of_runtime(sources: Path, abi: str) -> str:
    """Return what the runtime was compiled from, and for what."""
    return f"runtime | {digest_of(sources)} | {abi}"


def of_headers(abi: str) -> str:
    """Return what loops have to agree with: our headers, too, are others in another version.

    A compiler does not note those that were precompiled.
    """
    return f"{abi} {digest_of(CSRC / 'formula', CSRC / 'index')}"


@cache
def digest_of(*folders: Path) -> str:
    """Return a hash of some of our sources, the headers that all kernels share included."""
    every = [*(path for folder in folders for path in folder.rglob("*")), *CSRC.glob("*.h")]
    whole = hashlib.sha256()
    for path in sorted(path for path in every if path.suffix in (".h", ".cuh", ".cpp")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:16]
