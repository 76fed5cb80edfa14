"""Work in a process of its own that has imported already what this one has: PyTorch above all.

For what prints, ends its process or changes it for good. Where the process itself is the question,
how it starts, what it imports, it is started: `subprocess`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import NoReturn, TextIO


def in_fork(
    work: Callable[[], object], *, folder: Path, seconds: float = 100, **variables: str
) -> CompletedProcess[str]:
    """Run some work in a fork of this process; return its status and what it printed.

    Args:
        work: what it returns is dropped; an exception is a traceback and the status 1.
        folder: to work in.
        seconds: until it is killed.
        variables: of the environment.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with warnings.catch_warnings():
            # Of threads, which hold nothing that the child waits for.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            be_child(work, folder, variables, out, err)
        status = os.waitstatus_to_exitcode(wait(child, seconds))
        out.seek(0)
        err.seek(0)
        return CompletedProcess([], status, out.read(), err.read())


def be_child(
    work: Callable[[], object], folder: Path, variables: dict[str, str], out: TextIO, err: TextIO
) -> NoReturn:
    """Do the work as a new process would, and end without this one's handlers."""
    status = 1
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        # pytest's own writes to the terminal, where nobody asked for what a child dies of.
        if faulthandler.is_enabled():
            faulthandler.enable(sys.stderr)
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.resetwarnings()
        os.chdir(folder)
        os.environ.update(variables)
        work()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(child: int, seconds: float) -> int:
    """Return the status of a child, which is killed if it takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
