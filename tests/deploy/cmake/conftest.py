"""The library is built once for all tests, in a process of its own."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from building import command

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder that was built; `torch.ops.shiplib` has the operators in no other process."""
    base = tmp_path_factory.getbasetemp()
    # pytest-xdist's workers share what the first of them built.
    shared = base if worker_id == "master" else base.parent
    folder = shared / "shiplib-cmake"
    with (shared / "shiplib-cmake.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "expected.pt").exists():
            ran = command(HERE / "build_library.py", folder, folder=shared)
            assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="session")
def library(project: Path) -> Path:
    """The library."""
    return project / "lib" / "libshiplib.so"
