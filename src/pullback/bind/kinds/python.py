"""Operators that are computed by a function in Python."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pullback.bind import kernel, python_only
from pullback.bind.kinds.declared import Declared
from pullback.bind.operator import Operator, name_of
from pullback.bind.runtime import Runtime
from pullback.diagnostic import PullbackError


class Python(Declared):
    """One operator with `python=`."""

    uncompiled = "in Python: nothing to compile"

    def runtime(self) -> Runtime | None:
        """Return the C++ runtime; without a compiler the operator goes a slower way."""
        try:
            return super().runtime()
        except PullbackError as error:
            python_only.announce(error)
            return None

    def register(
        self,
        library: torch.library.Library,
        overload: torch._ops.OpOverload,
        runtime: Runtime | None,
    ) -> Operator:
        """Register the function, and its autograd where no runtime has it."""
        made = super().register(library, overload, runtime)
        if runtime is None:
            backward = self.derivatives.backward
            python_only.register_autograd(self.definition, backward, library, overload)
        return made

    def kernel(self) -> Callable[..., object]:
        """Return what calls the function, its inputs and outputs checked."""
        return kernel.python_kernel(self.definition)

    def described(self) -> list[str]:
        """Return the function's name."""
        return [f"Python: {name_of(self.definition.python)}"]
