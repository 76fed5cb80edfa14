"""Where libraries are kept, and whose are loaded.

A library that is loaded may do all that its user may. So a folder and what is in it are read only
if nobody can have written there but this user and root, who needs no cache to do harm.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = 0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# The replacement for each cache folder that cannot be used.
_instead: dict[Path | None, Path] = {}


class CacheNotice(UserWarning):
    """The cache folder, or something in it, cannot be used; it says what is done instead."""


def folder() -> Path:
    """Return the folder to write to: $PULLBACK_CACHE or the user's own, made and checked.

    One that cannot be trusted or written is replaced by a temporary one, with a `CacheNotice`.
    """
    path = _choose()
    if path is None:
        return _use_instead(None, "there is no home folder")
    reason = _make(path) or mistrust(path, stat.S_ISDIR) or _why_unwritable(path)
    return path if reason is None else _use_instead(path, reason)


def folders() -> list[Path]:
    """Return the folders to look for libraries in; the first one may be read-only."""
    path = _choose()
    readable = path is not None and mistrust(path, stat.S_ISDIR) is None
    own = _instead.get(path)
    return [*([path] if path and readable else []), *([own] if own else [])]


def mistrust(path: Path, kind: Callable[[int], bool], *, link: bool = True) -> str | None:
    """Return why something in the file system must not be read; None if it may be.

    Args:
        path: what is looked at.
        kind: tells by its mode whether it is what is expected: `stat.S_ISREG`.
        link: whether a symbolic link may lead there.
    """
    try:
        status = path.stat() if link else path.lstat()
    except (OSError, ValueError) as error:
        return _reason_of(error)
    if not kind(status.st_mode):
        return "is not a folder" if kind is stat.S_ISDIR else "is not a file"
    if status.st_uid not in (os.geteuid(), ROOT):
        return f"belongs to user {status.st_uid}"
    return "can be written by other users" if status.st_mode & OTHERS_WRITE else None


def set_aside(path: Path, reason: str) -> None:
    """Give something in the cache another name, so that it can be made anew, and say so."""
    aside = path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):  # another process did it
        path.rename(aside)
    warnings.warn(
        f"{path} {reason}: it is now {aside.name} and is made anew",
        CacheNotice,
        stacklevel=2,
    )


def _choose() -> Path | None:
    """Return the folder that the user wants; None where there is no home for it."""
    given = os.environ.get("PULLBACK_CACHE")
    try:
        if given:
            return Path(given).expanduser().absolute()
        import platformdirs  # noqa: PLC0415  (4 ms that `import pullback` need not take)

        own = platformdirs.user_cache_path("pullback")
    except (RuntimeError, KeyError):
        return None
    # "~/.cache/pullback", where nobody knows what ~ is, is no place.
    return own if own.is_absolute() else None


def _make(path: Path) -> str | None:
    """Make the folder, or close one that is empty, and return why that cannot be done."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        own, open_ = status.st_uid == os.geteuid(), status.st_mode & OTHERS_WRITE
        # Sticky: a place such as /tmp, which must not be closed to others.
        if own and open_ and not status.st_mode & stat.S_ISVTX and not any(path.iterdir()):
            path.chmod(0o700)
            # Meanwhile somebody may have put something there.
            if any(path.iterdir()):
                return "could be written by other users"
    except OSError as error:
        return _reason_of(error)
    return None


def _why_unwritable(path: Path) -> str | None:
    if path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK):
        return None
    return "cannot be written"


def _reason_of(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _use_instead(path: Path | None, reason: str) -> Path:
    """Return this process's own folder; the notice comes once."""
    if path in _instead:
        return _instead[path]
    private = _instead[path] = Path(tempfile.mkdtemp(prefix="pullback-"))
    atexit.register(_remove_own, private, os.getpid())
    of = "" if path is None else f" {path}"
    warnings.warn(
        f"the cache folder{of} cannot be used: {reason}. "
        "Operators that are not there are compiled anew in every process. "
        "help: set PULLBACK_CACHE to a folder of your own that only you can write to",
        CacheNotice,
        stacklevel=4,
    )
    return private


def _remove_own(private: Path, process: int) -> None:
    # Not a forked child: it leaves by the same exit while its parent still uses the folder.
    if os.getpid() == process:
        shutil.rmtree(private, ignore_errors=True)
