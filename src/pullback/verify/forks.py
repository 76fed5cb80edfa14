"""Fork a process in whose child autograd works.

Once autograd has started threads, which with a GPU it does at the first backward, PyTorch refuses
every backward in a child of `fork`, by a handler that `fork` runs there. `_Fork` (POSIX.1-2024,
glibc 2.34) runs no handlers; and the child needs no threads, since a backward on the CPU runs in
the thread that calls it. As the handlers have other purposes too, `fork` is tried first.
"""

from __future__ import annotations

import ctypes
import os
import threading

import torch

_libc = ctypes.PyDLL(None)  # calls keep the GIL
_refused = threading.Event()  # autograd's threads never end


def can_fork() -> bool:
    """Tell whether a child would work: a GPU's state and a process group do not survive a fork."""
    if not hasattr(os, "fork") or torch.cuda.is_initialized() or has_process_group():
        return False
    return hasattr(_libc, "_Fork") or not _refused.is_set()


def has_process_group() -> bool:
    """Tell whether this process is in a process group: a child has none of its threads."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def fork() -> int:
    """Return 0 in the child, and its id in this process, as `os.fork` does."""
    return _bare_fork() if _refused.is_set() else os.fork()


def is_refused() -> bool:
    """Tell, in a child, whether PyTorch refuses a backward."""
    try:
        torch.ones((), requires_grad=True).clone().backward()
    except RuntimeError:
        return True
    return False


def note_refused() -> None:
    """Use the other kind of fork from now on, since a child has found it necessary."""
    _refused.set()


def _bare_fork() -> int:
    """Fork without C's fork handlers, but with Python's own."""
    ctypes.pythonapi.PyOS_BeforeFork()
    child = int(_libc._Fork())
    if child:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    if child < 0:
        raise OSError("no process can be forked")
    return child
