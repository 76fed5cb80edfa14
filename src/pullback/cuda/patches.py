"""Temporary replacements of other modules' attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

MISSING = object()


class Patches:
    """The replaced attributes, so that they can be restored in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401  (anything)
        """Replace an attribute; if a function replaces it, its `__wrapped__` is the old one."""
        was = vars(owner).get(name, MISSING)
        if callable(value) and not isinstance(value, type) and was is not MISSING:
            cast("Any", value).__wrapped__ = was
        setattr(owner, name, value)
        if was is MISSING:
            self._undo.append(partial(delattr, owner, name))
        else:
            self._undo.append(partial(setattr, owner, name, was))

    def at_end(self, action: Callable[[], object]) -> None:
        """Do something when everything is restored."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()
