"""How the tests build and install: by the commands that an author and a user type."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import pullback as pb
from tests import fresh

SAMPLE = Path(__file__).parent / "sample"
PACKAGE = str(Path(pb.__file__).parents[1])
# For every process: warnings are for who reads them.
ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE}


def command(*words: str | Path, folder: Path, **variables: str) -> CompletedProcess[str]:
    """Run Python with some words."""
    return fresh.python(*words, folder=folder, **{"PYTHONPATH": PACKAGE, **variables})


def pullback(*words: str | Path, folder: Path, **variables: str) -> str:
    """Run the command line, which has to end well; return what it prints."""
    answer = command("-m", "pullback", *words, folder=folder, **variables)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def install(what: Path, into: Path, *options: str) -> Path:
    """Install a wheel or a project into a folder of its own, without the network."""
    words = ["pip", "install", "-q", "--no-deps", "--no-index", *options, "--target", into, what]
    answer = command("-m", *words, folder=into.parent)
    assert answer.returncode == 0, answer.stderr
    return into


class Once:
    """Folders that are filled once for all of pytest-xdist's workers, by the first that asks."""

    def __init__(self, factory: pytest.TempPathFactory, worker: str) -> None:
        base = factory.getbasetemp()
        self.shared = base if worker == "master" else base.parent

    def __call__(self, name: str, fill: Callable[[Path], object]) -> Path:
        """Return a folder of that name, filled."""
        folder = self.shared / name
        with (self.shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            filled = self.shared / f"{name}.filled"
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder


Runs = Callable[[Path], dict[str, Any]]
