"""The compiled loops of a formula, one for each device, dtype and choice of operands."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pullback.bind import gpu as current
from pullback.bind import native, runtime
from pullback.bind.loops import gpu
from pullback.define.line import Line
from pullback.define.math.formula import Formula, require_real
from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation
from pullback.kernels import prebuilt, precompile, toolchain
from pullback.kernels.cuda_on_cpu import mode
from pullback.kernels.glue import Device
from pullback.kernels.identity import FORMULA_ABI, of_headers
from pullback.kernels.loops import pointwise
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags

# Never unloaded: the runtime keeps their addresses.
_loaded: list[object] = []


def request(
    formula: Formula, device: Device, dtype: str, wanted: int, present: int
) -> tuple[int, int]:
    """Return the address of a compiled loop, and a bit for each tensor that it reads."""
    require_real(formula.line, dtype)
    loop = Loop(formula=formula, dtype=dtype, wanted=wanted, present=present)
    library, entry = load_loop(loop, device)
    _loaded.append(library)
    return native.address_of(entry), loop.used


def load_loop(loop: Loop, device: Device) -> tuple[object, Any]:
    """Return a loop and the library that holds it: brought by a package, else compiled."""
    if device == "cpu" and mode.is_chosen():
        from pullback.bind.loops import on_cpu  # noqa: PLC0415  (only CUDA needs it)

        library = on_cpu.load_loop(loop, mode.current_mode())
        return library, library.pullback_loop
    if brought := prebuilt.find_loop(loop, device, current.architecture(device)):
        library = compilation.open_library(brought.path)
        return library, getattr(library, brought.symbol)
    if device == "cuda":
        return gpu.load_launcher(loop)
    try:
        library = compilation.open_library(compile_with_headers(plan_of(loop), pointwise.HEADERS))
    except PullbackError as error:
        if error.finding.code != toolchain.CompilerMissing.code:
            raise
        from pullback.bind.loops import interpreted  # noqa: PLC0415  (seldom needed)

        return interpreted.interpret_loop(loop, error)
    return library, library.pullback_loop


def plan_of(loop: Loop) -> BuildPlan:
    """Return what to compile for a loop on the CPU."""
    line = loop.formula.line
    compiler = toolchain.find("c++")
    return BuildPlan(
        name=f"{line.namespace}-{line.name}-cpu",
        compiler=compiler,
        units=(TranslationUnit("loop.cpp", pointwise.generate_cpu(loop)),),
        sources=(),
        flags=(*kernel_flags(compiler), *FLAGS, *define(pointwise.macros_of(loop))),
        link=("-lmvec", "-lm"),
        link_for=vector_functions(),
        abi=of_headers(FORMULA_ABI),
        is_shared=True,
    )


def define(macros: Mapping[str, object]) -> list[str]:
    """Return the flags that define macros: what is precompiled has to know them too."""
    return [f"-D{name}={value}" for name, value in macros.items()]


def compile_with_headers(plan: BuildPlan, headers: Sequence[Path]) -> Path:
    """Return the path of a library of loops, compiled if need be.

    Reading the headers is a third of what compiling usual loops takes: they are precompiled, by
    g++, once for each type that is computed in.

    Args:
        plan: of one unit, which includes them first.
        headers: of loops.

    Raises:
        PullbackError: as `kernels.compile`.
    """

    def ahead() -> dict[str, Path]:
        if not precompile.can(plan.compiler):
            return {}
        names = [str(header) for header in headers]
        wide = precompile.plan_of(names, plan.compiler, plan.flags, plan.abi)
        header = precompile.precompile_header(wide)
        return {plan.units[0].file: header} if header else {}

    return compilation.compile(plan, ahead=ahead)


FLAGS = (
    # PyTorch's kernels do not contract either: x*x - y*y is exactly 0 for equal x and y.
    "-ffp-contract=off",
    # Whole numbers wrap around, as PyTorch's do.
    "-fwrapv",
    # Vectors wider than a register are never passed between libraries.
    "-Wno-psabi",
)


@functools.cache
def vector_functions() -> tuple[str, tuple[str, ...]]:
    """Return how functions of SLEEF begin, and what has them: PyTorch's library.

    Most loops have none, or glibc's.
    """
    return "Sleef_", (f"-L{runtime.ROOT / 'lib'}", "-ltorch_cpu")


def devices(line: Line) -> tuple[Device, ...]:
    """Return the devices for which a formula has, or can compile, loops on this machine."""
    brought = prebuilt.has_loops(line, "cuda") and gpu.is_there()
    return ("cpu", "cuda") if brought or gpu.is_usable() else ("cpu",)
