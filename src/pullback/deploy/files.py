"""Files of a project that is written: each makes the folders that it is in."""

from __future__ import annotations

import shutil
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
