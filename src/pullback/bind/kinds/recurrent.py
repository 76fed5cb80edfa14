"""Operators in index notation with states: recurrences."""

from __future__ import annotations

from functools import cached_property

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math.kept import LazyKeeping
from pullback.bind.math.lazy import Lazy
from pullback.bind.math.recur import RecurrentExecutor


class Recurrent(IndexNotation):
    """One recurrence: its states in order, then its outputs."""

    def make_executor(self) -> RecurrentExecutor:
        """Return what computes states, and then the outputs."""
        return RecurrentExecutor(self.definition, self.forget_shortcuts)

    @cached_property
    def supplied(self) -> Lazy:
        """What the runtime asks for: whether sums over states are kept, too."""
        return LazyKeeping(self, Kept)


class Kept(Recurrent):
    """One recurrence that returns sums over its states too."""

    @cached_property
    def supplied(self) -> Lazy:
        """What the runtime asks for."""
        return Lazy(self)
