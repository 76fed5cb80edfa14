"""Operators in index notation without states."""

from __future__ import annotations

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math import verify
from pullback.bind.math.execute import Executor


class Indexed(IndexNotation):
    """One operator whose elements need none of each other."""

    def prepare(self) -> None:
        """Compare the two ways to compute it."""
        verify.verify_at_definition(self.definition)
        super().prepare()

    def make_executor(self) -> Executor:
        """Return what chooses how each call is computed."""
        return Executor(self.definition)
