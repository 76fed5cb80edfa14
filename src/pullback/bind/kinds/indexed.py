"""Operators in index notation without states."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from pullback.bind.kinds.notation import IndexNotation
from pullback.bind.math import execute, verify


class Indexed(IndexNotation):
    """One operator whose elements need none of each other."""

    def prepare(self) -> None:
        """Compare the two ways to compute it."""
        verify.verify_at_definition(self.definition)
        super().prepare()

    @cached_property
    def executor(self) -> execute.Executor:
        """Chooses how each call is computed."""
        return execute.Executor(self.definition)

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        return execute.make_pytorch_kernel(self.definition)
