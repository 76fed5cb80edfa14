"""Operators made from an existing `torch.autograd.Function`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from pullback.bind import kernel
from pullback.bind.functions import operator as functions
from pullback.bind.functions.adopted import Adopted, adopt
from pullback.bind.functions.context import Context
from pullback.bind.kinds.kind import Kind
from pullback.bind.operator import Operator, name_of
from pullback.bind.registration import overload_of


class Function(Kind):
    """One operator with `function=`, which brings its own autograd."""

    uncompiled = "a Function: nothing to compile"

    @cached_property
    def adopted(self) -> Adopted:
        """The Function and its line."""
        assert self.definition.function
        return Adopted(self.definition.line, self.definition.function)

    def prepare(self) -> None:
        """Stop if the Function does not fit the line."""
        super().prepare()
        self.adopted = adopt(self.definition.line, self.definition.function)

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register the Function, and the operators that run its forward and backward."""
        return functions.install(self, self.adopted, library, overload_of)

    def references(self) -> dict[str, Callable[..., Any]]:
        """Return its reference, and the Function's forward."""
        name = f"forward of {self.adopted.function.__name__}"
        return {**super().references(), name: self.forward}

    def forward(self, *arguments: object) -> Any:  # noqa: ANN401
        """Run forward on the line's arguments, with a `ctx` that is then dropped."""
        flat, lengths = self.adopted.flat(arguments)
        ctx = Context([False] * len(flat))
        return kernel.unwrap_single(
            self.adopted.forward(ctx, self.adopted.as_forward(flat, lengths))
        )

    def in_python(self) -> str:
        """Return the Function."""
        return "function"

    @property
    def has_derivative(self) -> bool:
        """Whether it can be differentiated."""
        return True

    def described(self) -> list[str]:
        """Return the Function's name."""
        return [f"autograd.Function: {name_of(self.definition.function)}"]
