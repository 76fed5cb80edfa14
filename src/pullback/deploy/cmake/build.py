"""Operators -> a CMake project -> a shared library that registers them without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pullback.bind import runtime
from pullback.deploy import shims, target
from pullback.deploy.cmake.index_loops import NeedsPython
from pullback.deploy.cmake.project import Project
from pullback.deploy.index_loops import Sizes
from pullback.deploy.shipped import Shipped
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import toolchain
from pullback.kernels.glue import Device
from pullback.kernels.toolchain import Compiler

NoCMake = Rule("PB734", "no-cmake")
CMakeStopped = Rule("PB735", "cmake-stopped")

# "CMake Error at CMakeLists.txt:3 (find_package):", a blank line, and what it says, indented.
ERROR = re.compile(
    r"^CMake Error(?: at (?P<at>\S+))?[^\n]*\n+(?P<text>(?:  ?[^\n]*\n?)+)", re.MULTILINE
)

# For those who compile the project elsewhere, with nvcc.
WITHOUT_NVCC = ("sm_80", "sm_90", "compute_90")
BUT = "; or ship it with --as wheel"
# The parts that only Python can run, by what `Kind.in_python` calls them, and what to do about it.
IN_PYTHON = {
    "python": (
        "its python=",
        "write a kernel in C++, cpu=pb.source(...), or a formula in the line" + BUT,
    ),
    "function": (
        "its function=",
        "write its kernels, cpu=pb.source(...) and backward=..., or a formula in the line" + BUT,
    ),
    "backward": (
        "its backward=",
        "write it as expressions, {'x': 'grad * y'}, or as an operator and give its name" + BUT,
    ),
    "jvp": (
        "its jvp=",
        "write it as expressions, {'y': 'tangent_x * y'}, or as an operator and give its name"
        + BUT,
    ),
    "taken": (
        "what was added to it",
        "it is somebody else's operator: ship it as a wheel",
    ),
}


def build_cmake(
    shipped: Sequence[Shipped],
    folder: Path,
    architectures: Sequence[str] | None = None,
    sizes: Sequence[Sizes] = (),
) -> Path:
    """Write a CMake project and build it.

    Args:
        shipped: the operators and what their derivatives call.
        folder: for the project; exists, and is empty.
        architectures: GPUs, "sm_90"; None stands for the usual ones, if PyTorch has CUDA.
        sizes: that loops over indices are made for, besides those for any sizes.

    Returns:
        The library, in the folder.

    Raises:
        PullbackError: PB733, a part that only Python can run; PB734, no CMake; PB735, CMake or a
            compiler stopped; PB736, two operators of one base name; PB705, PB706.
    """
    require_no_python(shipped)
    shims.require_base_names([each.line.qualname for each in shipped if each.order == 0])
    found = find_tools()
    devices: tuple[Device, ...] = ("cpu", "cuda") if architectures else ("cpu",)
    project = Project(shipped, target.gpus(architectures) or WITHOUT_NVCC, sizes, devices)
    project.write(folder)
    return run(project.name, folder, found, cuda=True if architectures else None)


def require_no_python(shipped: Sequence[Shipped]) -> None:
    """Stop at operators that need Python.

    Raises:
        PullbackError: PB733.
    """
    for each in shipped:
        if part := each.kind.in_python():
            what, cure = IN_PYTHON[part]
            name = each.line.qualname
            raise NeedsPython.error(
                f"{name} cannot be in a library without Python: {what} runs in Python",
                help=cure,
            )


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The programs that build a project."""

    cmake: str
    generator: str
    compiler: Compiler


def find_tools() -> Tools:
    """Return the programs that build a project.

    Raises:
        PullbackError: PB734, no CMake, or neither ninja nor make; PB201, no g++.
    """
    cmake = find_program("cmake")
    if cmake is None:
        raise NoCMake.error(
            "building the library needs CMake, and there is none on PATH",
            help="install CMake 3.18 or newer: apt install cmake, or pip install cmake",
        )
    for program, generator in (("ninja", "Ninja"), ("make", "Unix Makefiles")):
        if find_program(program):
            return Tools(cmake=cmake, generator=generator, compiler=toolchain.find("c++"))
    raise NoCMake.error(
        "CMake is installed, but neither ninja nor make, one of which it needs",
        help="install one: apt install make, or pip install ninja",
    )


def find_program(program: str) -> str | None:
    """Return where a program is, on PATH or beside this Python, where pip puts it."""
    beside = Path(sys.executable).parent
    return shutil.which(program) or shutil.which(program, path=str(beside))


def run(name: str, folder: Path, tools: Tools, *, cuda: bool | None = None) -> Path:
    """Build a project; return the library, which is put into its `lib`.

    Args:
        name: of the project.
        folder: where it is.
        tools: what builds it.
        cuda: whether to compile for GPUs; None leaves that to the project.

    Raises:
        PullbackError: PB735.
    """
    library = folder / "lib" / f"lib{name}.so"
    with tempfile.TemporaryDirectory(prefix="pullback-cmake-") as work:
        configure = [tools.cmake, "-S", str(folder), "-B", work, "-G", tools.generator]
        configure += [f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"]
        configure += [f"-DCMAKE_CXX_COMPILER={tools.compiler.path}"]
        configure += [] if cuda is None else [f"-DPULLBACK_CUDA={'ON' if cuda else 'OFF'}"]
        jobs = str(len(os.sched_getaffinity(0)))
        with runtime.announce(f"building lib{name}.so with CMake and {tools.compiler}"):
            run_command(configure, folder)
            run_command([tools.cmake, "--build", work, "--parallel", jobs], folder)
        library.parent.mkdir()
        shutil.copyfile(Path(work, library.name), library)
    return library


def run_command(command: list[str], folder: Path) -> None:
    """Run a command to its end.

    Raises:
        PullbackError: PB735, it fails.
    """
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode:
        raise build_failure(ran.stdout, folder)


def build_failure(output: str, folder: Path) -> PullbackError:
    """Return the error for what CMake or a compiler said."""
    output = output.replace(f"{folder}/", "")
    if match := ERROR.search(output):
        text = re.sub(r"\s+", " ", match["text"]).strip()
        return CMakeStopped.error("CMake cannot configure the project", at=match["at"], error=text)
    first = toolchain.first_error(output)
    return CMakeStopped.error("the project does not compile", at=first.at, error=first.text)
