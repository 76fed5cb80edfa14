"""Write files into folders that are made for them, whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pullback.diagnostic import PullbackError, Rule

FolderNotEmpty = Rule("PB707", "folder-not-empty")

# It names the process that makes it, so that what a killed one left is recognised.
UNFINISHED = re.compile(r"\.pullback-(\d+)-\w+")


def require_empty(folder: Path) -> None:
    """Stop at a target folder that has something in it.

    Raises:
        PullbackError: PB707.
    """
    if folder.is_dir():
        have = sorted(path.name for path in folder.iterdir() if not UNFINISHED.match(path.name))
    else:
        have = [folder.name] if folder.exists() else []
    if have:
        raise not_empty(folder, have)


def not_empty(folder: Path, have: list[str]) -> PullbackError:
    """Return the error for a target that has something in it."""
    return FolderNotEmpty.error(
        f"the target {folder} is not empty",
        have=", ".join(have[:8]) + (", ..." if len(have) > 8 else ""),
        help="name another with --into, or remove it first: nothing is overwritten",
    )


def require_only_wheels(folder: Path) -> None:
    """Stop at a folder that has something else than distributions in it.

    Raises:
        PullbackError: PB707.
    """
    if folder.exists() and not folder.is_dir():
        raise not_empty(folder, [folder.name])
    have = sorted(path.name for path in folder.glob("*") if not is_distribution(path.name))
    if have:
        raise not_empty(folder, have)


def is_distribution(name: str) -> bool:
    """Tell whether a file may lie beside a wheel."""
    return name.endswith((".whl", ".tar.gz")) or bool(UNFINISHED.match(name))


@contextmanager
def stage_folder(target: Path) -> Generator[Path]:
    """Lend an empty folder that becomes the target if all goes well, and vanishes if not.

    Raises:
        PullbackError: PB707, the target is not empty.
    """
    require_empty(target)
    with stage_beside(target) as work:
        yield work
        require_empty(target)
        if target.exists():
            target.rmdir()
        work.chmod(0o755)
        work.rename(target)


@contextmanager
def stage_beside(target: Path) -> Generator[Path]:
    """Lend an empty folder on the target's disk; what is left in it is removed."""
    parent = target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    clear(parent)
    work = Path(tempfile.mkdtemp(prefix=f".pullback-{os.getpid()}-", dir=parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def clear(folder: Path) -> None:
    """Remove what killed builds left."""
    for path in folder.iterdir():
        match = UNFINISHED.fullmatch(path.name)
        if match and not _lives(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's
    return True


def format_folder(folder: Path) -> str:
    """Return a folder's path, relative to the working folder if it is inside that."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def write(path: Path, text: str) -> None:
    """Write a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
