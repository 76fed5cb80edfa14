"""What is built once for all tests of a session."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from building import PACKAGE, SAMPLE, Once, Runs, command, install, pullback


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    return Once(tmp_path_factory, worker_id)


@pytest.fixture(scope="session")
def wheel(once: Once) -> Path:
    """The wheel of the sample."""

    def build(folder: Path) -> None:
        shutil.copytree(SAMPLE, folder / "author", ignore=shutil.ignore_patterns("__pycache__"))
        pullback("build", "sample_ops.py", "--as", "wheel", folder=folder / "author")

    (built,) = (once("wheel", build) / "author" / "dist").iterdir()
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, once: Once) -> Path:
    """A folder in which the wheel is installed."""
    return once("wheel-installed", lambda folder: install(wheel, folder))


@pytest.fixture(scope="session")
def run_away(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run `away.py` where no compiler is on the path and the cache is empty."""

    def run(site: Path) -> dict[str, Any]:
        empty = tmp_path_factory.mktemp("empty")
        shutil.copyfile(SAMPLE / "away.py", empty / "away.py")
        bare = {"PATH": str(empty), "CXX": "", "PULLBACK_CACHE": str(empty / "cache")}
        found = f"{site}{os.pathsep}{PACKAGE}"
        answer = command("away.py", "sample_ops", folder=empty, PYTHONPATH=found, **bare)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    return run
