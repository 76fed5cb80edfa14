"""Operators in index notation with states: recurrences."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math.recur import RecurrentExecutor


class Recurrent(IndexNotation):
    """One recurrence: its states in order, then its outputs."""

    @cached_property
    def executor(self) -> RecurrentExecutor:
        """Computes each call."""
        return RecurrentExecutor(self.definition)

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        return self.executor.by_pytorch
