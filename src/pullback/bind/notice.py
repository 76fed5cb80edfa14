"""Notices: warnings that point at the author's line, and not at one of ours."""

from __future__ import annotations

import sys
import warnings


def notice(text: str, category: type[Warning]) -> None:
    """Warn at the line outside of pullback that led here."""
    level = 2
    while sys._getframe(level - 1).f_globals.get("__name__", "").startswith("pullback."):
        level += 1
    warnings.warn(text, category, stacklevel=level)
