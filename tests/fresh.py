"""Python in processes of their own, in which PyTorch is there already and nothing of pullback's.

Importing PyTorch is most of what a short program costs. One process has done it and waits; a
program runs in a fork of that.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import subprocess
import sys
import types
import warnings
from collections.abc import Generator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.forked import in_fork

# What a test may take is less, and pytest's limit says where it hung.
LIMIT = 590.0


def python(*words: str | Path, folder: Path, **variables: str) -> CompletedProcess[str]:
    """Run `python WORDS`, which has `-W ACTION`, and a script, `-c TEXT` or `-m MODULE`.

    Args:
        words: of the command line.
        folder: to run it in.
        variables: of the environment, beside those that this process has now.
    """
    asked = [[*map(str, words)], str(folder), {**os.environ, **variables}]
    process = waiting()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    status, out, err = json.loads(process.stdout.readline())
    return CompletedProcess(words, status, out, err)


@functools.cache
def waiting() -> subprocess.Popen[str]:
    """Start the process that others are forks of."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fresh"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Generator[None]:
    """End the process that waits, if there is one."""
    yield
    if waiting.cache_info().currsize:
        waiting().communicate()
        waiting.cache_clear()


# --- In the process that waits


def serve() -> None:
    """Run what is asked for, one program after the other."""
    importlib.import_module("torch")
    installed = sys.path[1:]
    # Programs print to files, and nobody types.
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in questions:
        words, folder, variables = json.loads(line)
        program = functools.partial(ended, words, installed, variables)
        done = in_fork(program, folder=Path(folder), seconds=LIMIT)
        answers.write(json.dumps([done.returncode, done.stdout, done.stderr]) + "\n")
        answers.flush()


def ended(words: list[str], installed: list[str], variables: dict[str, str]) -> None:
    """Run a program; what it gives `sys.exit` to say is said."""
    # Whoever asks may have taken some away since this process began.
    os.environ.clear()
    os.environ.update(variables)
    try:
        run(words, installed)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
        raise


def run(words: list[str], installed: list[str]) -> None:
    """Do what Python does with its command line."""
    if words[0] == "-W":
        warnings.simplefilter(words[1])  # pyright: ignore[reportArgumentType]
        words = words[2:]
    what, *rest = words
    first = str(Path.cwd() if what in ("-c", "-m") else Path(what).absolute().parent)
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [first, *filter(None, found), *installed]
    if what == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    serve()
