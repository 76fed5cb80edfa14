"""`pullback build --as cmake`: a shared library that registers operators without Python.

What an author wrote and what was derived from it becomes C++ data (`definitions`), which the
runtime that Python loads too (csrc/runtime) takes as it takes Python's. csrc/library adds what only
such a library needs: registration when it is loaded, a kernel for tensors without memory, autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pullback.deploy import target
from pullback.deploy.cmake import accepted, build
from pullback.deploy.cmake.project import Project
from pullback.deploy.shipped import Shipped

# For who compiles the project elsewhere, where there is nvcc.
WITHOUT_NVCC = ("sm_80", "sm_90", "compute_90")


def build_cmake(
    shipped: Sequence[Shipped], folder: Path, architectures: Sequence[str] | None = None
) -> Path:
    """Write a CMake project and build it.

    Args:
        shipped: the operators and what their derivatives call.
        folder: for the project; is there, and empty.
        architectures: GPUs, "sm_90"; None stands for the usual ones, if PyTorch has CUDA.

    Returns:
        The library, in the folder.

    Raises:
        PullbackError: PB733, a part that only Python can run; PB734, no CMake; PB735, CMake or a
            compiler stopped; PB736, two operators of one base name; PB705, PB706.
    """
    accepted.require(shipped)
    tools = build.tools()
    project = Project(shipped, target.gpus(architectures) or WITHOUT_NVCC)
    project.write(folder)
    return build.run(project.name, folder, tools, cuda=True if architectures else None)
