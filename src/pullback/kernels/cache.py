"""Compiled libraries by content: a folder that no crash, race or edit can make lie.

An entry is a folder named by `BuildPlan.key`. Its manifest lists variants: which text of the
author's files gave which library. Every file is complete before it gets its name, and a library is
handed out only if it still has the SHA-256 that was recorded, so readers need no lock; the lock
only keeps two processes from compiling the same thing.

What it cannot see: a new header that would now be found before the one that was included.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pullback.kernels.cache_folder import folder, folders, mistrust, set_aside
from pullback.kernels.plan import BuildPlan

BUILDS = "builds"
MANIFEST = "manifest.json"
MOST_VARIANTS = 8
ENTRY = re.compile(r"[0-9a-f]{32}")

# https://bford.info/cachedir: backup programs skip a folder that holds this file.
TAG = "CACHEDIR.TAG"
TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# pullback's cache; safe to remove.\n"

# Seconds after which a temporary file or folder belongs to no build that still runs.
ABANDONED = 86_400.0


@dataclass(frozen=True, kw_only=True)
class LibraryVariant:
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
        """Tell whether the library is there, whole and untouched, and nobody else's."""
        return is_ours(entry, self.library) and digest(entry / self.library) == self.sha256


def look_up(plan: BuildPlan) -> Path | None:
    """Return the plan's library if one is there for the author's files as they are now."""
    digests: dict[str, str | None] = {}
    for entry in entries(plan.key):
        for variant in reversed(read_manifest(entry)):
            if variant.holds(entry, digests):
                return entry / variant.library
    return None


def entries(key: str) -> list[Path]:
    """Return the entries of a name that may be read: one in each folder that has it."""
    return [entry for root in folders() if is_ours(entry := root / key)]


def is_ours(entry: Path, *files: str) -> bool:
    """Tell whether an entry and files in it are there, and nobody else's.

    Anything but a plain file is not ours either: reading a pipe would not end.
    """
    if mistrust(entry, stat.S_ISDIR, link=False):
        return False
    return not any(mistrust(entry / file, stat.S_ISREG, link=False) for file in files)


def store(plan: BuildPlan, library: Path, dependencies: Mapping[Path, str]) -> Path:
    """Keep a library under its own hash, and return where.

    Args:
        plan: what gave it.
        library: the compiler's output; it is copied.
        dependencies: the author's files, each with the SHA-256 it had when compiled.
    """
    entry = _entry(plan)
    content = library.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    variant = LibraryVariant(
        dependencies={str(path): recorded for path, recorded in dependencies.items()},
        library=f"{plan.name}-{sha256[:16]}.so",
        sha256=sha256,
    )
    _write(entry / variant.library, content)
    kept = [
        old
        for old in read_manifest(entry)
        if old.dependencies != variant.dependencies and old.sound(entry)
    ]
    variants = [*kept, variant][-MOST_VARIANTS:]
    text = json.dumps({"variants": [asdict(each) for each in variants]}, indent=1)
    _write(entry / MANIFEST, text.encode())
    _remove_unlisted(entry, {each.library for each in variants})
    return entry / variant.library


def keep_log(plan: BuildPlan, text: str) -> Path:
    """Keep what the compiler said last about a plan, and return where."""
    path = _entry(plan) / "compile.log"
    _write(path, text.encode())
    return path


@contextmanager
def lock(plan: BuildPlan) -> Generator[None]:
    """Let one process or thread at a time build a plan.

    The system drops the lock when its holder dies. Where the filesystem cannot lock, two may
    build the same library, and both store it whole.
    """
    handle = _lock(clear_path(folder() / f"{plan.key}.lock", stat.S_ISREG))
    try:
        yield
    finally:
        _unlock(handle)


@contextmanager
def workspace(plan: BuildPlan) -> Generator[Path]:
    """Lend an empty folder for one build; those of builds that died are removed."""
    # All in one folder: looking through every entry would cost more than compiling a formula.
    builds = clear_path(_entry(plan).parent / BUILDS, stat.S_ISDIR)
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
            held = clear_path(root / f"{key}.lock", stat.S_ISREG)
            handle = _lock(held)
            try:
                _remove(root / key)
                _remove(held)
            finally:
                _unlock(handle)
    _remove(root / TAG)
    for path in (root / BUILDS, root):
        with suppress(OSError):
            path.rmdir()


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return None


def clear_path(path: Path, kind: Callable[[int], bool]) -> Path:
    """Return a path to write to; what is in the way, or somebody else's, is set aside.

    Args:
        path: in the cache.
        kind: tells by its mode whether it is what is expected: `stat.S_ISREG`.
    """
    if os.path.lexists(path):
        reason = mistrust(path, kind, link=False)
        if reason is None and not os.access(path, os.R_OK | os.W_OK):
            reason = "cannot be written"  # root's, from a run with sudo
        if reason:
            set_aside(path, reason)
    return path


def _entry(plan: BuildPlan) -> Path:
    root = folder()
    entry = clear_path(root / plan.key, stat.S_ISDIR)
    entry.mkdir(mode=0o700, exist_ok=True)
    if not (root / TAG).exists():
        _write(root / TAG, TAG_TEXT.encode())
    return entry


def read_manifest(entry: Path) -> list[LibraryVariant]:
    """Return the variants; none where the manifest is missing, damaged or not ours."""
    if not is_ours(entry, MANIFEST):
        return []
    try:
        variants: Any = json.loads((entry / MANIFEST).read_bytes())["variants"]
        return [
            LibraryVariant(
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
    clear_path(path, stat.S_ISREG)
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
            _remove(path)


def _remove(path: Path) -> None:
    """Remove what is there, if it can be: a folder, a file or a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _is_abandoned(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED
    except OSError:
        return False


def _lock(path: Path) -> int | None:
    """Wait for the lock; None where the filesystem has none."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
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
