"""What a machine lacks, and what follows from that."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.gpu import sanitizer
from pullback.bind import gpu as current
from pullback.bind.loops import gpu
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain
from pullback.kernels.toolchain import Language


@dataclass(frozen=True)
class Need:
    """Something that may be missing.

    Attributes:
        name: what it is called.
        is_there: tells whether it is not.
        otherwise: what follows if it is.
    """

    name: str
    is_there: Callable[[], bool]
    otherwise: str


def has_compiler(language: Language) -> bool:
    """Return whether there is a compiler that we can use."""
    try:
        return bool(toolchain.find(language))
    except PullbackError:
        return False


def package(name: str, otherwise: str) -> Need:
    """Return the need of a package."""
    return Need(name, lambda: importlib.util.find_spec(name) is not None, otherwise)


NEEDS = (
    Need(
        "a GPU", current.is_available, "this is a rehearsal: CUDA runs on the CPU, at small sizes"
    ),
    Need("g++", lambda: has_compiler("c++"), "nothing of ours can be compiled, so nothing is run"),
    Need("nvcc", lambda: has_compiler("cuda"), "kernels are compiled by NVRTC alone"),
    Need("NVRTC", lambda: gpu.find_nvrtc() is not None, "its half of `build` is left out"),
    Need("compute-sanitizer", lambda: sanitizer.find() is not None, "`sanitizer` is left out"),
    package("pykeops", "no column for KeOps"),
    package("triton", "torch.compile has nothing to compile with for a GPU"),
    package("pytest", "`tests` is left out"),
    package("hypothesis", "`tests` is left out: conftest.py needs it"),
    package("xdist", "tests run one after another"),
    package("pytest_timeout", "a test that hangs takes the time of those after it"),
    package("rich", "the other benchmarks and the commands of pullback do not start"),
    package("typer", "the commands of pullback do not start"),
    package("platformdirs", "PULLBACK_CACHE has to be set; it is a folder of ours if it is not"),
    package("numpy", "PyTorch and pullback miss what they convert by it"),
    package("sympy", "torch.compile does not start"),
    package("setuptools", "torch.compile may not start"),
)


def missing() -> Iterator[str]:
    """Yield a line for each thing that is missing."""
    for need in NEEDS:
        if not need.is_there():
            yield f"missing: {need.name}: {need.otherwise}"
