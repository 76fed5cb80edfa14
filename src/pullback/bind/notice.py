"""Notices: warnings that point at the author's line, not at ours."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType


def notice(text: str, category: type[Warning]) -> None:
    """Warn at the line outside of pullback that led here."""
    level, _ = author()
    warnings.warn(text, category, stacklevel=level)


def authors_file() -> Path | None:
    """Return the Python file outside of pullback that led here; None in a notebook."""
    _, frame = author()
    file = frame.f_globals.get("__file__") if frame else None
    return Path(file).resolve() if file else None


def author() -> tuple[int, FrameType | None]:
    """Return the frame outside of pullback that led here, and how far above its caller it is.

    PyTorch calls kernels, and its frames are not the author's either. On PyTorch's own threads
    there is no such frame.
    """
    level, frame = 2, sys._getframe(2)
    while frame and frame.f_globals.get("__name__", "").startswith(("pullback.", "torch.")):
        level, frame = level + 1, frame.f_back
    return level, frame
