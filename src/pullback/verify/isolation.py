"""Work in a forked process, so that crashes, hangs and corrupted state stay there.

The child writes messages into a pipe: items, and last an end mark. A child without an end mark has
died, whatever its exit status is, and whoever else reaps the children of this process.
"""

from __future__ import annotations

import faulthandler
import fcntl
import io
import os
import pickle
import re
import select
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch

from pullback.verify import forks
from pullback.verify.source import SourcePlace, is_authors

Why = Literal["killed", "late", "stopped", "failed"]
How = Why | Literal["well", "refused"]
Seconds = float | Callable[[], float]

# The kind of a message, and its length.
HEADER = struct.Struct("<cQ")
ITEM, END, STOPPED, FAILED, REFUSED = b"i", b"e", b"s", b"f", b"r"
ENDS: dict[bytes, Why] = {STOPPED: "stopped", FAILED: "failed"}
# A line of the traceback that faulthandler writes, innermost first.
FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
# From making a pipe until closing one of its ends nobody else may fork: that child would hold the
# writing end open.
forking = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Died:
    """How a process ended that did not send everything.

    Attributes:
        how: "SIGSEGV", "exit code 3", "no answer in 60 s", "SystemExit: 3".
        why: "killed", it ended itself or something ended it; "late", we ended it; "stopped", the
            work raised something that is not an `Exception`, such as SystemExit; "failed", it
            raised an `Exception`.
        said: the last that it wrote to standard error, including Python's traceback of a crash.
    """

    how: str
    said: str
    why: Why = "killed"

    @property
    def place(self) -> SourcePlace | None:
        """The author's line at which Python was."""
        frames = FRAME.findall(self.said)
        # faulthandler writes the innermost first, a traceback last.
        for file, line, function in frames if self.why == "killed" else reversed(frames):
            if is_authors(file):
                return SourcePlace.at(file, int(line), function)
        return None

    @property
    def words(self) -> str | None:
        """The last words, if they are not Python's own."""
        return self.said.partition("Fatal Python error")[0].strip()[-600:] or None


def run_forked(
    work: Callable[[], Iterator[Any]], *, seconds: Seconds
) -> Generator[Any, None, Died | None]:
    """Run an iterator in a forked process, and yield its items as they come.

    Args:
        work: its items can be pickled. Its output does not reach the terminal.
        seconds: the longest wait for one item; what is called before each of them.

    Returns:
        None; or how the process died before its end.
    """
    with tempfile.TemporaryFile() as said:
        status, why, how = yield from serve_child(work, said.fileno(), seconds)
        if why == "refused":
            forks.note_refused()
            if not forks.can_fork():
                yield from work()
                return None
            status, why, how = yield from serve_child(work, said.fileno(), seconds)
        if why == "well":
            return None
        said.seek(0)
        words = said.read().decode(errors="replace")
        # For a crash, the traceback that faulthandler wrote first, not the modules listed after it.
        crash = words.find("Fatal Python error")
        words = words[-4000:] if crash < 0 else words[max(0, crash - 1000) : crash + 8000]
    assert why != "refused"
    return Died(how=describe_status(status) if why == "killed" else how, said=words, why=why)


def serve_child(
    work: Callable[[], Iterator[Any]], said: int, seconds: Seconds
) -> Generator[Any, None, tuple[int | None, How, str]]:
    """Yield what one child sends; return its status, and how it ended in one word and in more."""
    child, reading = fork_worker(work, said)
    status, why, how = None, "late", ""
    try:
        why, how = yield from read_items(reading, seconds)
    finally:
        os.close(reading)
        # Also if the caller stops listening, or on Ctrl-C: nobody waits for the rest.
        status = wait_for(child, kill=why == "late")
    return status, why, how


def fork_worker(work: Callable[[], Iterator[Any]], said: int) -> tuple[int, int]:
    """Start a process that serves the work; return its id and where to read from."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # none, or closed: a daemon
            stream.flush()
    with forking:
        reading, writing = os.pipe()
        try:
            with warnings.catch_warnings():
                # Python warns about threads because of locks; the child does not take any.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = forks.fork()
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        if child:
            os.close(writing)
            return child, reading
    os.close(reading)
    serve(work, writing, said)


def serve(work: Callable[[], Iterator[Any]], writing: int, said: int) -> NoReturn:
    """Be the child: send each item, and end without the parent's exit handlers."""
    last = HEADER.pack(END, 0)
    try:
        writing = settle(writing, said)
        if forks.is_refused():
            last, work = HEADER.pack(REFUSED, 0), lambda: iter(())
        for item in work():
            packed = pickle.dumps(item)
            send(writing, HEADER.pack(ITEM, len(packed)) + packed)
    except BaseException as error:
        os.write(2, traceback.format_exc().encode(errors="replace"))
        text = f"{type(error).__name__}: {error}".encode(errors="replace")[:1000]
        kind = FAILED if isinstance(error, Exception) else STOPPED
        last = HEADER.pack(kind, len(text)) + text
    finally:
        send(writing, last)
        os._exit(0)


def settle(writing: int, said: int) -> int:
    """Redirect the child's output to a file and reset its handlers; return where to write."""
    # If the process has no standard streams, the pipe may have one of their numbers.
    writing, said = (fcntl.fcntl(file, fcntl.F_DUPFD, 10) for file in (writing, said))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, place in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(file, place)
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), errors="replace", write_through=True
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(2)
    # OpenMP's threads did not survive the fork.
    torch.set_num_threads(1)
    return writing


def send(writing: int, message: bytes) -> None:
    """Write all of a message."""
    view = memoryview(message)
    while view:
        view = view[os.write(writing, view) :]


def read_items(reading: int, seconds: Seconds) -> Generator[Any, None, tuple[How, str]]:
    """Yield what the child sends; return how it ended, in one word and in more."""
    received, waiting = bytearray(), select.poll()
    waiting.register(reading, select.POLLIN | select.POLLHUP)

    def patience() -> tuple[float, float]:
        longest = seconds() if callable(seconds) else seconds
        return longest, time.monotonic() + longest

    longest, deadline = patience()
    while True:
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return "late", f"no answer in {longest:.0f} s"
        more = os.read(reading, 1 << 20)
        if not more:
            return "killed", ""
        received += more
        while len(received) >= HEADER.size:
            kind, length = HEADER.unpack_from(received)
            end = HEADER.size + length
            if len(received) < end:
                break
            message = bytes(received[HEADER.size : end])
            del received[:end]
            if kind in (END, REFUSED):
                return ("well" if kind == END else "refused"), ""
            if kind != ITEM:
                return ENDS[kind], message.decode(errors="replace")
            yield pickle.loads(message)
            longest, deadline = patience()


def wait_for(child: int, *, kill: bool, patience: float = 2.0) -> int | None:
    """Wait for the child; return its status, None where somebody else reaped it.

    Args:
        child: its id.
        kill: kill it at once, and not only if it does not end by itself.
        patience: seconds to wait. A child that closed its end of the pipe may live on.
    """
    deadline = time.monotonic() + (0 if kill else patience)
    killed = False
    with suppress(ChildProcessError):
        while True:
            done, status = os.waitpid(child, 0 if killed else os.WNOHANG)
            if done:
                return status
            if time.monotonic() >= deadline:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                killed = True
            else:
                time.sleep(0.001)
    return None


def describe_status(status: int | None) -> str:
    """Say how a process ended."""
    if status is None:
        return "it ended"
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"


@contextmanager
def silence() -> Generator[None]:
    """Discard the warnings and output of the author's code, which runs many times.

    Under `-W error` a warning would be an exception, and so a fault.
    """
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
