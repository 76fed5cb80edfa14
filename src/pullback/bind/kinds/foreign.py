"""Operators that somebody else registered: what they lack and the line gives is added."""

from __future__ import annotations

from functools import cached_property

import torch

from pullback.bind import runtime, takeover
from pullback.bind.kinds.declared import Declared
from pullback.bind.operator import Operator, native_operator
from pullback.bind.runtime import Runtime


class Foreign(Declared):
    """One operator that is taken over."""

    @property
    def is_composite(self) -> bool:
        """Whether PyTorch sees through it to the operators that it calls; then it lacks nothing."""
        return takeover.is_composite(self.definition.line.qualname)

    @cached_property
    def runtime(self) -> Runtime | None:
        """The C++ runtime, which provides its autograd."""
        return None if self.is_composite else runtime.load()

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register a fake kernel and a batching rule where it has none."""
        if self.runtime is None:
            return Operator(self, overload)
        takeover.register(self, library, overload)
        return native_operator(self.runtime)(self, overload)

    def in_python(self) -> str:
        """Return the part that runs in Python, or else that the operator was taken over."""
        return super().in_python() or "taken"

    def described(self) -> list[str]:
        """Return nothing: its kernels are not known."""
        return []
