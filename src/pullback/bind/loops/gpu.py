"""Loops on a GPU: compiled by NVRTC, or by nvcc where that is all there is.

NVRTC gives device code alone. Its half of the work becomes a header of bytes, read by a small
translation unit for g++ that launches them by the driver; so either way the result is a library
with the same entry points, which the cache keeps like any other.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import re
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pullback.bind import gpu as current
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.notice import notice
from pullback.diagnostic import PullbackError
from pullback.kernels import cache, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.identity import FORMULA_ABI, of_headers
from pullback.kernels.loops import pointwise_cuda
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.plan import BuildPlan, TranslationUnit, kernel_flags
from pullback.kernels.toolchain import Compiler

# Nor do PyTorch's operations contract, one after another: x*x - y*y is exactly 0 for equal x and y.
NOT_CONTRACTED = "--fmad=false"
# `Body`'s constructor and what else is for the host alone is compiled as well, and then dropped.
NVRTC_FLAGS = ("--std=c++20", NOT_CONTRACTED, "--device-as-default-execution-space")
INSTALL = "or install NVRTC: pip install 'pullback[cuda]'"


@dataclass(frozen=True, kw_only=True)
class GpuUnit:
    """Kernels and their launchers, as texts.

    Attributes:
        name: of the library.
        nvcc: both together.
        nvrtc: the kernels alone.
        host: their launchers, for g++; a header with the compiled kernels comes before it.
        abi: what the library has to agree with.
    """

    name: str
    nvcc: str
    nvrtc: str
    host: str
    abi: str


def unit_of(loop: Loop) -> GpuUnit:
    """Return the kernels of a pointwise formula, whose entry point is `pullback_launch`."""
    line = loop.formula.line
    return GpuUnit(
        name=f"{line.namespace}-{line.name}-cuda",
        nvcc=pointwise_cuda.generate_nvcc(loop),
        nvrtc=pointwise_cuda.generate_nvrtc(loop),
        host=pointwise_cuda.generate_host(loop),
        abi=of_headers(FORMULA_ABI),
    )


@dataclass(frozen=True)
class Nvrtc:
    """NVIDIA's compiler as a library, by its official Python package."""

    module: Any

    @functools.cached_property
    def version(self) -> str:
        """Which NVRTC it is, such as "13.0"."""
        return ".".join(map(str, self.ask("nvrtcVersion")))

    def ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a function of NVRTC that has to succeed; return its outputs."""
        result, *given = getattr(self.module, function)(*arguments)
        if result != self.module.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"{function}: {result.name}")
        return given[0] if len(given) == 1 else given

    def compile(self, name: str, text: str, architecture: str) -> bytes:
        """Return the module of a translation unit, for one kind of GPU.

        Raises:
            PullbackError: PB202, it does not compile.
        """
        flags = [flag.encode() for flag in (f"--gpu-architecture={architecture}", *NVRTC_FLAGS)]
        file = f"{name}.cu".encode()
        program = self.ask("nvrtcCreateProgram", text.encode(), file, 0, [], [])
        try:
            (result,) = self.module.nvrtcCompileProgram(program, len(flags), flags)
            if result != self.module.nvrtcResult.NVRTC_SUCCESS:
                raise self.failure(name, self.read(program, "ProgramLog").decode(errors="replace"))
            return self.read(program, "CUBIN")
        finally:
            self.module.nvrtcDestroyProgram(program)

    def read(self, program: object, what: str) -> bytes:
        """Return a text or bytes that a program has."""
        content = bytes(self.ask(f"nvrtcGet{what}Size", program))
        self.ask(f"nvrtcGet{what}", program, content)  # it writes into them
        return content

    def failure(self, name: str, log: str) -> PullbackError:
        """Return what NVRTC said was wrong."""
        first = toolchain.first_error(log.rstrip("\0"))
        return compilation.CompileFailed.error(
            f"{name} does not compile with NVRTC {self.version}",
            at=first.at,
            error=first.text,
            help="an architecture it does not know needs a newer NVRTC",
        )


@functools.cache
def find_nvrtc() -> Nvrtc | None:
    """Return NVRTC, None where the package or its library is not installed."""
    try:
        found = Nvrtc(importlib.import_module("cuda.bindings.nvrtc"))
        assert found.version
    except (ImportError, RuntimeError):
        return None
    return found


def find_compiler() -> Compiler | Nvrtc:
    """Return what compiles for the GPU: NVRTC, as nvcc takes three times as long.

    But for one that is neither PyTorch's nor nvcc's: the driver may not know what it writes.

    Raises:
        PullbackError: PB201, there is neither nvcc nor NVRTC.
    """
    found = find_nvrtc()
    try:
        nvcc = toolchain.find("cuda")
    except PullbackError:
        if found is None:
            raise
        return found
    known = [re.findall(r"\d+", text)[:2] for text in (nvcc.version, str(torch.version.cuda))]
    return found if found and found.version.split(".") in known else nvcc


def is_there() -> bool:
    """Return whether there is an NVIDIA GPU; PyTorch calls AMD's "cuda" too."""
    return torch.version.cuda is not None and current.is_available()


def is_usable() -> bool:
    """Return whether formulas on CUDA tensors get kernels here; say once why they do not."""
    if not is_there():
        return False
    try:
        find_compiler()
    except PullbackError as error:
        announce(str(error))
        return False
    return True


@functools.cache
def announce(reason: str) -> None:
    """Say why formulas have no kernels on the GPU."""
    notice(
        f"formulas on CUDA tensors run by PyTorch's operations, derivatives included\n{reason}\n"
        f"  {INSTALL}",
        FormulaNotice,
    )


def plan_of(unit: GpuUnit, architecture: str | None, with_: Compiler | Nvrtc) -> BuildPlan:
    """Return what to compile for a GPU.

    Args:
        unit: the kernels.
        architecture: the GPU, such as "sm_90"; None leaves it to nvcc.
        with_: nvcc; or NVRTC, for which this is the host's half.
    """
    if isinstance(with_, Compiler):
        return BuildPlan(
            name=unit.name,
            compiler=with_,
            units=(TranslationUnit("loop.cu", unit.nvcc),),
            sources=(),
            flags=(*kernel_flags(with_, architecture), NOT_CONTRACTED),
            abi=unit.abi,
        )
    assert architecture
    host = toolchain.find("c++")
    kernels = hashlib.sha256(unit.nvrtc.encode()).hexdigest()
    return BuildPlan(
        name=unit.name,
        compiler=host,
        units=(TranslationUnit("loop.cpp", unit.host),),
        sources=(),
        flags=(*kernel_flags(host), "-ffp-contract=off"),
        link=("-ldl",),
        # Of the device's half the host's text has the headers, and of loops not even the kernels.
        abi=" ".join((f"{unit.abi} nvrtc", with_.version, architecture, *NVRTC_FLAGS, kernels)),
    )


@functools.lru_cache(maxsize=256)
def count_registers(unit: GpuUnit, architecture: str) -> tuple[int, ...]:
    """Return how many registers each kernel of a unit has; nothing without nvcc."""
    try:
        nvcc = toolchain.find("cuda")
    except PullbackError:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "loop.cu")
        source.write_text(unit.nvcc, encoding="utf-8")
        flags = [flag for flag in kernel_flags(nvcc, architecture) if flag != "-shared"]
        report = ["-Xptxas", "-v", "-cubin", "-o", f"{folder}/loop.cubin"]
        command = [*nvcc.command, *flags, NOT_CONTRACTED, *report, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(map(int, re.findall(r"Used (\d+) registers", done.stderr)))


def compile_unit(unit: GpuUnit, architecture: str, with_: Compiler | Nvrtc) -> Path:
    """Return the path of a library of kernels, compiled if need be.

    Raises:
        PullbackError: as `kernels.compile`.
    """
    plan = plan_of(unit, architecture, with_)
    if isinstance(with_, Compiler):
        return compilation.compile(plan)
    with ExitStack() as meanwhile:

        def ahead() -> dict[str, Path]:
            # In the cache's folder: a file there is no dependency of the library.
            header = meanwhile.enter_context(cache.workspace(plan)) / "cubin.h"
            module = with_.compile(plan.name, unit.nvrtc, architecture)
            header.write_text(pointwise_cuda.generate_cubin(module), encoding="ascii")
            return {plan.units[0].file: header}

        return compilation.compile(plan, ahead=ahead)


def load_launcher(loop: Loop) -> tuple[ctypes.CDLL, Any]:
    """Return the compiled library of a loop for the current GPU, and its entry point."""
    chosen = current.architecture("cuda")
    assert chosen
    library = compilation.open_library(compile_unit(unit_of(loop), chosen, find_compiler()))
    return library, library.pullback_launch
