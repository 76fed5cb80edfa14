"""Load an extension once, after a trial that loading it does not end the process.

`TORCH_LIBRARY` registers while the library is loaded. If it refuses (a name that is taken, a schema
with a typing error), it throws where nobody can catch it, and the process ends. So a forked child,
which has the same registrations, loads the library first: 10 ms.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import resource
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from pullback.bind import runtime
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import compile as compilation

RegisteredAlready = Rule("PB214", "registered-already")
LoadingStopped = Rule("PB215", "loading-stopped")

TAKEN = re.compile(
    r"Only a single TORCH_LIBRARY|register an operator .* multiple times|is already registered",
    re.DOTALL,
)
THROWN = re.compile(
    r"^\s*what\(\):\s*(.*?)(?=\nException raised from|\nFatal Python|\Z)", re.M | re.S
)
FIRST_AT = re.compile(r"[Pp]revious registration.* at (\S+?:\d+)")
MODULE = re.compile(rb"\0PyInit_(\w+)\0")
RESTART = (
    "a process cannot give up what a library has registered: restart it (in a notebook, restart "
    "the kernel)"
)
# For a child that inherited a lock that another thread holds; loading takes milliseconds.
PATIENCE = 20.0

_loaded: dict[str, ModuleType] = {}
_one_at_a_time = threading.Lock()


class Extension(ModuleType):
    """A library that defines no Python module: what it registered."""

    operators: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<extension {', '.join(self.operators) or 'without new operators'}>"


def load(library: Path) -> ModuleType:
    """Return a library's Python module, or an `Extension`; the same one for the same content.

    Args:
        library: from the cache, so its file's name has the hash of its content.

    Raises:
        PullbackError: PB206, it lacks a symbol; PB214, what it registers is registered already;
            PB215, loading it raises.
    """
    with _one_at_a_time:
        if library.name not in _loaded:
            _loaded[library.name] = _load(library)
        return _loaded[library.name]


def _load(library: Path) -> ModuleType:
    _try_in_a_child(library)
    before = _operators()
    handle = compilation.open_library(library)
    # pybind11 returns an earlier module of the same name, so each state of the author's files has
    # a name of its own; Python looks for the last part of it.
    package, _, content = library.stem.rpartition("-")
    for name in MODULE.findall(library.read_bytes()):
        if hasattr(handle, f"PyInit_{name.decode()}"):
            try:
                return runtime.import_library(f"{package}_{content}.{name.decode()}", library)
            except Exception as error:
                raise _load_error(library, str(error)) from error
    extension = Extension(package)
    extension.__file__ = str(library)
    extension.operators = tuple(sorted(_operators() - before))
    return extension


def _operators() -> set[str]:
    listed = cast("Any", torch._C)._dispatch_get_all_op_names()
    return {str(name) for name in listed}


def _try_in_a_child(library: Path) -> None:
    """Raise the error that would end this process."""
    with tempfile.TemporaryFile() as output:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads that hold locks: hence `PATIENCE`.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _open_and_exit(library, output.fileno())
        status = _status(child)
        if status in (0, None):
            return
        output.seek(0)
        text = output.read().decode(errors="replace")
    thrown = THROWN.search(text)
    reason = thrown[1].strip() if thrown else signal.strsignal(os.WTERMSIG(status)) or text
    raise _load_error(library, reason)


def _open_and_exit(library: Path, output: int) -> None:
    """In the child: load, and exit without running the parent's handlers."""
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(output, 1)
        os.dup2(output, 2)
        ctypes.CDLL(str(library))
    finally:
        # An error that Python reports (a missing symbol) will be raised in the parent too.
        os._exit(0)


def _status(child: int) -> int | None:
    """Wait for the child; return None if it hangs or its status cannot be known."""
    end = time.monotonic() + PATIENCE
    pause = 0.001
    while time.monotonic() < end:
        try:
            done, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # something else in this process waits for every child
            return None
        if done:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _load_error(library: Path, reason: str) -> PullbackError:
    """Return the error for loading: a name that is taken, or an error of its own."""
    name = library.name.rpartition("-")[0]
    if TAKEN.search(reason):
        return RegisteredAlready.error(
            f"{name} registers what this process has registered already",
            # The rest is PyTorch's advice for authors of another TORCH_LIBRARY.
            reason=reason.partition(";")[0],
            first_at=first[1] if (first := FIRST_AT.search(reason)) else None,
            help=RESTART,
        )
    return LoadingStopped.error(f"{name} stops while it is loaded", reason=reason, at=library)
