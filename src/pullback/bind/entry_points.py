"""Compile and load a definition's kernels, and find their entry points."""

from __future__ import annotations

from pathlib import Path

from pullback.bind import gpu, native
from pullback.define.line import Line
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation
from pullback.kernels import glue, prebuilt, toolchain
from pullback.kernels.plan import BuildPlan


def compile_kernels(definition: Definition) -> dict[glue.Device, int]:
    """Compile and load the kernels that can run here; return their addresses."""
    addresses: dict[glue.Device, int] = {}
    for device, source in definition.sources.items():
        if device == "cuda" and not gpu.is_available():
            continue
        if address := entry_of(definition.line, source, device):
            addresses[device] = address
    if definition.cuda and not definition.cpu:
        from pullback.bind import on_cpu  # noqa: PLC0415  (only CUDA needs it)

        if plan := on_cpu.plan_of(definition):
            addresses["cpu"] = load_entry_point(plan, glue.symbol_of(definition.line, "cuda"))
    return addresses


def entry_of(line: Line, source: Source, device: glue.Device) -> int | None:
    """Return the address of a kernel, in a library that a package brought, or else compiled.

    None for a device that the package was not built for, if nothing can be compiled here.
    """
    chosen = gpu.architecture(device)
    if found := prebuilt.find_kernel(line, source, device, chosen):
        return open_entry_point(found.path, found.symbol)
    other = prebuilt.is_left_out(line, source, device)
    if other and not prebuilt.is_there(source):
        return None
    try:
        return load_entry_point(
            glue.plan_of(line, source, device, chosen), glue.symbol_of(line, device)
        )
    except PullbackError as error:
        if other and error.finding.code == toolchain.CompilerMissing.code:
            return None
        raise


def load_entry_point(plan: BuildPlan, symbol: str) -> int:
    """Return the address of a plan's entry point."""
    return open_entry_point(compilation.compile(plan), symbol)


def open_entry_point(path: Path, symbol: str) -> int:
    """Return the address of a library's function."""
    library = compilation.open_library(path)
    _loaded.append(library)
    return native.address_of(getattr(library, symbol))


# Never unloaded: a graph made before a redefinition may still call into them.
_loaded: list[object] = []
