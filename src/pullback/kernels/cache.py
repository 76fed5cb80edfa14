"""Compiled libraries by content: a folder that no crash, race or edit can make lie.

An entry is a folder named by `Plan.key`. Its manifest lists variants: which text of the author's
files gave which library. Every file is complete before it gets its name, and a library is handed
out only if it still has the SHA-256 that was recorded, so readers need no lock; the lock only
keeps two processes from compiling the same thing.

What it cannot see: a new header that would now be found before the one that was included.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pullback.kernels.plan import Plan

BUILDS = "builds"
MANIFEST = "manifest.json"
MOST_VARIANTS = 8
ENTRY = re.compile(r"[0-9a-f]{32}")

# https://bford.info/cachedir: backup programs skip a folder that holds this file.
TAG = "CACHEDIR.TAG"
TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# pullback's cache; safe to remove.\n"

# Seconds after which a temporary file or folder belongs to no build that still runs.
ABANDONED = 86_400.0


class CacheNotice(UserWarning):
    """The cache folder cannot be used; libraries are kept for this process only."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The library that one state of the author's files gave."""

    dependencies: dict[str, str]
    library: str
    sha256: str

    def holds(self, entry: Path, digests: dict[str, str | None]) -> bool:
        """Tell whether files and library are as recorded; `digests` spares a second reading."""
        for path, recorded in self.dependencies.items():
            if path not in digests:
                digests[path] = digest(Path(path))
            if digests[path] != recorded:
                return False
        return self.sound(entry)

    def sound(self, entry: Path) -> bool:
        """Tell whether the library is there, whole and untouched."""
        return digest(entry / self.library) == self.sha256


def folder() -> Path:
    """Return the cache folder: $PULLBACK_CACHE or the user's own, made and checked.

    One that cannot be trusted or written is replaced by a temporary one, with a `CacheNotice`.
    """
    import platformdirs  # noqa: PLC0415  (4 ms that `import pullback` need not take)

    chosen = os.environ.get("PULLBACK_CACHE")
    own = platformdirs.user_cache_path("pullback")
    path = Path(chosen).expanduser().absolute() if chosen else own
    reason = _objection(path)
    return path if reason is None else _instead_of(path, reason)


def lookup(plan: Plan) -> Path | None:
    """Return the plan's library if one is there for the author's files as they are now."""
    entry = folder() / plan.key
    digests: dict[str, str | None] = {}
    for variant in reversed(_read_manifest(entry)):
        if variant.holds(entry, digests):
            return entry / variant.library
    return None


def store(plan: Plan, library: Path, dependencies: Mapping[Path, str]) -> Path:
    """Keep a library under its own hash, and return where.

    Args:
        plan: what gave it.
        library: the compiler's output; it is copied.
        dependencies: the author's files, each with the SHA-256 it had when compiled.
    """
    entry = _entry(plan)
    content = library.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    variant = Variant(
        dependencies={str(path): recorded for path, recorded in dependencies.items()},
        library=f"{plan.name}-{sha256[:16]}.so",
        sha256=sha256,
    )
    _write(entry / variant.library, content)
    kept = [
        old
        for old in _read_manifest(entry)
        if old.dependencies != variant.dependencies and old.sound(entry)
    ]
    variants = [*kept, variant][-MOST_VARIANTS:]
    text = json.dumps({"variants": [asdict(each) for each in variants]}, indent=1)
    _write(entry / MANIFEST, text.encode())
    _remove_unlisted(entry, {each.library for each in variants})
    return entry / variant.library


def keep_log(plan: Plan, text: str) -> Path:
    """Keep what the compiler said last about a plan, and return where."""
    path = _entry(plan) / "compile.log"
    _write(path, text.encode())
    return path


@contextmanager
def lock(plan: Plan) -> Generator[None]:
    """Let one process or thread at a time build a plan.

    The system drops the lock when its holder dies. Where the filesystem cannot lock, two may
    build the same library, and both store it whole.
    """
    handle = _locked(folder() / f"{plan.key}.lock")
    try:
        yield
    finally:
        _unlock(handle)


@contextmanager
def workspace(plan: Plan) -> Generator[Path]:
    """Lend an empty folder for one build; those of builds that died are removed."""
    # All in one folder: looking through every entry would cost more than compiling a formula.
    builds = _entry(plan).parent / BUILDS
    builds.mkdir(mode=0o700, exist_ok=True)
    for left in builds.iterdir():
        if _is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix="build-", dir=builds))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def clean() -> None:
    """Remove every library; a build that is running is waited for. Other files stay."""
    root = folder()
    for key in {path.name.removesuffix(".lock") for path in root.iterdir()}:
        if ENTRY.fullmatch(key):
            held = root / f"{key}.lock"
            handle = _locked(held)
            try:
                shutil.rmtree(root / key, ignore_errors=True)
                held.unlink(missing_ok=True)
            finally:
                _unlock(handle)
    (root / TAG).unlink(missing_ok=True)
    for path in (root / BUILDS, root):
        with suppress(OSError):
            path.rmdir()


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _objection(path: Path) -> str | None:
    """Make the folder and return why it cannot be used, if so."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        if status.st_uid != os.getuid():
            return f"belongs to user {status.st_uid}"
        if not os.access(path, os.W_OK | os.X_OK):
            return "cannot be written"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Not any folder: PULLBACK_CACHE=/tmp, set by root, must not close /tmp to others.
            ours = (path / TAG).is_file() or not any(path.iterdir())
            if status.st_mode & stat.S_ISVTX or not ours:
                return "can be written by other users"
            path.chmod(0o700)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


@cache
def _instead_of(path: Path, reason: str) -> Path:
    """Return this process's own folder. Cached, and so the notice comes once."""
    warnings.warn(
        f"the cache folder {path} cannot be used: {reason}. Operators are compiled anew in every "
        "process. help: set PULLBACK_CACHE to a folder of your own",
        CacheNotice,
        stacklevel=4,
    )
    private = Path(tempfile.mkdtemp(prefix="pullback-"))
    atexit.register(_remove_own, private, os.getpid())
    return private


def _remove_own(private: Path, process: int) -> None:
    # Not a forked child: it leaves by the same exit while its parent still uses the folder.
    if os.getpid() == process:
        shutil.rmtree(private, ignore_errors=True)


def _entry(plan: Plan) -> Path:
    root = folder()
    entry = root / plan.key
    entry.mkdir(mode=0o700, exist_ok=True)
    if not (root / TAG).exists():
        _write(root / TAG, TAG_TEXT.encode())
    return entry


def _read_manifest(entry: Path) -> list[Variant]:
    """Return the variants; none where the manifest is missing, damaged or not ours."""
    try:
        variants: Any = json.loads((entry / MANIFEST).read_bytes())["variants"]
        return [
            Variant(
                dependencies={str(path): str(sha) for path, sha in row["dependencies"].items()},
                library=Path(row["library"]).name,
                sha256=str(row["sha256"]),
            )
            for row in variants
        ]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []


def _write(path: Path, content: bytes) -> None:
    """Write a whole file or none: the name appears when the content is on the disk."""
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_unlisted(entry: Path, listed: set[str]) -> None:
    """Remove libraries no variant names, and files of a writer that died."""
    for path in entry.iterdir():
        dead = path.name.startswith(".") and _is_abandoned(path)
        if dead or (path.suffix == ".so" and path.name not in listed):
            path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED
    except OSError:
        return False


def _locked(path: Path) -> int | None:
    """Wait for the lock; None where the filesystem has none."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except BaseException as error:
            os.close(handle)
            if isinstance(error, OSError):
                return None
            raise
        # `clean` may have removed the file meanwhile: a lock on it excludes nobody.
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _unlock(handle: int | None) -> None:
    if handle is not None:
        # Not left to close: a child forked during the build shares the handle.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
