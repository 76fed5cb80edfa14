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


@cache
def digest_of(sources: Path) -> str:
    """Return a hash of the runtime's sources, the headers that it shares with kernels included."""
    every = [*sources.rglob("*"), *CSRC.glob("*.h")]
    whole = hashlib.sha256()
    for path in sorted(path for path in every if path.suffix in (".h", ".cpp")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:16]
