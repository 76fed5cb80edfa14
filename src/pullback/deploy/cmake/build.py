"""Running CMake: in a folder of its own, so that the project has no path of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from pullback.bind import runtime
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import toolchain
from pullback.kernels.toolchain import Compiler

NoCMake = Rule("PB734", "no-cmake")
CMakeStopped = Rule("PB735", "cmake-stopped")

# "CMake Error at CMakeLists.txt:3 (find_package):", a blank line, and what it says, indented.
ERROR = re.compile(
    r"^CMake Error(?: at (?P<at>\S+))?[^\n]*\n+(?P<text>(?:  ?[^\n]*\n?)+)", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The programs that build a project."""

    cmake: str
    generator: str
    compiler: Compiler


def tools() -> Tools:
    """Return the programs that are there.

    Raises:
        PullbackError: PB734, no CMake, or nothing that it could leave the work to; PB201, no g++.
    """
    cmake = which("cmake")
    if cmake is None:
        raise NoCMake.error(
            "building the library needs CMake, and there is none on PATH",
            help="install CMake 3.18 or newer: apt install cmake, or pip install cmake",
        )
    for program, generator in (("ninja", "Ninja"), ("make", "Unix Makefiles")):
        if which(program):
            return Tools(cmake=cmake, generator=generator, compiler=toolchain.find("c++"))
    raise NoCMake.error(
        "CMake is there, but neither ninja nor make, which it leaves the work to",
        help="install one: apt install make, or pip install ninja",
    )


def which(program: str) -> str | None:
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
            succeed(configure, folder)
            succeed([tools.cmake, "--build", work, "--parallel", jobs], folder)
        library.parent.mkdir()
        shutil.copyfile(Path(work, library.name), library)
    return library


def succeed(command: list[str], folder: Path) -> None:
    """Run a command to its end.

    Raises:
        PullbackError: PB735, it fails.
    """
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode:
        raise stopped(ran.stdout, folder)


def stopped(output: str, folder: Path) -> PullbackError:
    """Return the error for what CMake or a compiler said."""
    output = output.replace(f"{folder}/", "")
    if match := ERROR.search(output):
        text = re.sub(r"\s+", " ", match["text"]).strip()
        return CMakeStopped.error("CMake cannot configure the project", at=match["at"], error=text)
    first = toolchain.first_error(output)
    return CMakeStopped.error("the project does not compile", at=first.at, error=first.text)
