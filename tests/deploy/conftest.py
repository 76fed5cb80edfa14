"""What is built once for all tests of a session."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from building import PACKAGE, SAMPLE, Runs, command, install, pullback


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An author's folder."""
    folder = tmp_path_factory.mktemp("author") / "sample"
    return Path(shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="session")
def wheel(sources: Path) -> Path:
    """The wheel of the sample."""
    pullback("build", "sample_ops.py", "--as", "wheel", folder=sources)
    (built,) = (sources / "dist").iterdir()
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed."""
    return install(wheel, tmp_path_factory.mktemp("user") / "site")


@pytest.fixture(scope="session")
def run_away(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run `away.py` where no compiler is on the path and the cache is empty."""

    def run(site: Path) -> dict[str, Any]:
        empty = tmp_path_factory.mktemp("empty")
        shutil.copyfile(SAMPLE / "away.py", empty / "away.py")
        bare = {"PATH": str(empty), "PULLBACK_CACHE": str(empty / "cache")}
        found = f"{site}{os.pathsep}{PACKAGE}"
        answer = command("away.py", "sample_ops", folder=empty, PYTHONPATH=found, **bare)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    return run
