"""How the tests build and install: by the commands that an author and a user type."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pullback as pb

SAMPLE = Path(__file__).parent / "sample"
PACKAGE = str(Path(pb.__file__).parents[1])
# For every process: warnings are for who reads them.
ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}


def command(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with some words."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


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


Runs = Callable[[Path], dict[str, Any]]
