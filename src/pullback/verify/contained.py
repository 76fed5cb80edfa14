"""Work in a forked process, so that what dies, hangs or spoils something does so there alone."""

from __future__ import annotations

import faulthandler
import os
import pickle
import re
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from pullback.verify.source import Place, is_authors

HEADER = struct.Struct("<Q")
# A line of the traceback that faulthandler writes, innermost first.
FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')


@dataclass(frozen=True, kw_only=True)
class Died:
    """How a process ended that did not say all that it had to.

    Attributes:
        how: "SIGSEGV", "exit code 3", "no answer in 60 s".
        said: the last it wrote to standard error, a Python traceback of a crash among it.
    """

    how: str
    said: str

    def evidence(self) -> list[tuple[str, str]]:
        """Return the author's line that Python was in, or the last words."""
        for file, line, function in FRAME.findall(self.said):
            if is_authors(file):
                return [("in", str(Place.at(file, int(line), function)))]
        words = self.said.partition("Fatal Python error")[0].strip()[-600:]
        return [("last words", words)] if words else []


def can_fork() -> bool:
    """Tell whether a process can be forked: the state of a GPU in use would not survive."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


def stream(
    work: Callable[[], Iterator[Any]], *, seconds: float
) -> Generator[Any, None, Died | None]:
    """Run an iterator in a forked process, and yield its items as they come.

    Args:
        work: its items can be pickled.
        seconds: the longest wait for one item.

    Returns:
        None; or how the process died before its end.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said:
        child = fork()
        if child == 0:
            os.close(reading)
            serve(work, writing, said.fileno())
        os.close(writing)
        late = False
        try:
            late = not (yield from items(reading, seconds))
        finally:
            os.close(reading)
            # Also where the caller stops listening: nobody waits for the rest.
            status = ended(child, kill=late or sys.exc_info()[0] is GeneratorExit)
        if status == 0:
            return None
        said.seek(0)
        how = f"no answer in {seconds:.0f} s" if late else named(status)
        return Died(how=how, said=said.read()[-4000:].decode(errors="replace"))


def fork() -> int:
    """Fork; Python's warning about threads is about locks that the child does not take."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def serve(work: Callable[[], Iterator[Any]], writing: int, said: int) -> NoReturn:
    """Be the child: send each item, and end without the parent's exit handlers."""
    os.dup2(said, 2)
    faulthandler.enable(2)
    # OpenMP's threads did not survive the fork.
    torch.set_num_threads(1)
    status = 1
    try:
        for item in work():
            packed = pickle.dumps(item)
            send(writing, HEADER.pack(len(packed)) + packed)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def send(writing: int, message: bytes) -> None:
    """Write all of a message."""
    view = memoryview(message)
    while view:
        view = view[os.write(writing, view) :]


def items(reading: int, seconds: float) -> Generator[Any, None, bool]:
    """Yield what the child sends; return whether it closed its end in time."""
    received = b""
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        more = os.read(reading, 1 << 16)
        if not more:
            return True
        received += more
        while len(received) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(received)[0]
            if len(received) < end:
                break
            item, received = received[HEADER.size : end], received[end:]
            yield pickle.loads(item)
            deadline = time.monotonic() + seconds


def ended(child: int, *, kill: bool) -> int:
    """Wait for the child, which may be killed first; return its status."""
    if kill:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def named(status: int) -> str:
    """Say how a process ended."""
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"
