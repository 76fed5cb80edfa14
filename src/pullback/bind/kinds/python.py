"""Operators that are computed by a function in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from pullback.bind import kernel, python_only, runtime
from pullback.bind.kinds.declared import Declared
from pullback.bind.operator import Operator, name_of
from pullback.bind.runtime import Runtime
from pullback.diagnostic import PullbackError


class Python(Declared):
    """One operator with `python=`."""

    uncompiled = "in Python: nothing to compile"

    @cached_property
    def runtime(self) -> Runtime | None:
        """The C++ runtime; without a compiler the operator's calls are slower."""
        try:
            return runtime.load()
        except PullbackError as error:
            python_only.announce(error)
            return None

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register the function and, without a runtime, its autograd."""
        operator = super().register(library, overload)
        if self.runtime is None:
            backward = self.derivatives.backward
            python_only.register_autograd(self.definition, backward, library, overload)
        return operator

    def kernel(self) -> Callable[..., object]:
        """Return a kernel that calls the function and checks its inputs and outputs."""
        return kernel.make_python_kernel(self.definition)

    def references(self) -> dict[str, Callable[..., Any]]:
        """Return its reference, and the function itself."""
        assert self.definition.python
        return {**super().references(), "its Python function": self.definition.python}

    def in_python(self) -> str:
        """Return the function."""
        return "python"

    def described(self) -> list[str]:
        """Return the function's name."""
        return [f"Python: {name_of(self.definition.python)}"]
