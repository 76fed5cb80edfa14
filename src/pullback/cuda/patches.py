"""Attributes of other modules, replaced for a while."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

MISSING = object()


class Patches:
    """What was replaced, so that it can be put back in the other order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401  (anything)
        """Replace an attribute; what it was is its `__wrapped__`, if a function replaces it."""
        was = vars(owner).get(name, MISSING)
        if callable(value) and not isinstance(value, type) and was is not MISSING:
            cast("Any", value).__wrapped__ = was
        setattr(owner, name, value)
        if was is MISSING:
            self._undo.append(partial(delattr, owner, name))
        else:
            self._undo.append(partial(setattr, owner, name, was))

    def at_end(self, action: Callable[[], object]) -> None:
        """Do something when all is put back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()
