"""Operators that an existing `torch.autograd.Function` is made into."""

from __future__ import annotations

import torch

from pullback.bind.functions import operator as functions
from pullback.bind.functions.adopted import Adopted, adopt
from pullback.bind.kinds.kind import Kind
from pullback.bind.operator import Operator, name_of
from pullback.bind.registration import overload_of


class Function(Kind):
    """One operator with `function=`, which brings its own autograd."""

    uncompiled = "a Function: nothing to compile"

    adopted: Adopted

    def prepare(self) -> None:
        """Look at the Function."""
        assert self.definition.function
        super().prepare()
        self.adopted = adopt(self.definition.line, self.definition.function)

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register the Function, and the operators that run its forward and backward."""
        return functions.install(self, self.adopted, library, overload_of)

    @property
    def has_derivative(self) -> bool:
        """Whether it can be differentiated."""
        return True

    def described(self) -> list[str]:
        """Return the Function's name."""
        return [f"autograd.Function: {name_of(self.definition.function)}"]
