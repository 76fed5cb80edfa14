"""Operators in index notation with states: recurrences."""

from __future__ import annotations

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math.recur import RecurrentExecutor


class Recurrent(IndexNotation):
    """One recurrence: its states in order, then its outputs."""

    def make_executor(self) -> RecurrentExecutor:
        """Return what computes states, and then the outputs."""
        return RecurrentExecutor(self.definition)
