"""The library is built once for all tests, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Once, command

from tests.quickly import LAUNCHER

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def project(once: Once) -> Path:
    """The folder that was built; `torch.ops.shiplib` has the operators in no other process."""

    def build(folder: Path) -> None:
        # Looking for nvcc takes CMake two seconds.
        variables = {**LAUNCHER, "CUDACXX": "/nowhere/nvcc"}
        ran = command(HERE / "build_library.py", folder / "shiplib", folder=folder, **variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return once("shiplib-cmake", build) / "shiplib"


@pytest.fixture(scope="session")
def library(project: Path) -> Path:
    """The library."""
    return project / "lib" / "libshiplib.so"
