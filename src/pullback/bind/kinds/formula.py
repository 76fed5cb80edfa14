"""Operators that are mathematics: pointwise formulas and index notation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from pullback.bind import runtime
from pullback.bind.batching import BatchedCall
from pullback.bind.dense import elements
from pullback.bind.kinds.kind import Derivatives, Kind
from pullback.bind.math import derive, fake
from pullback.bind.math.lazy import Lazy, LazyFormula
from pullback.bind.math.shown import Derivative, show_derivative
from pullback.bind.operator import Operator
from pullback.bind.runtime import Runtime
from pullback.define.math.formula import Formula
from pullback.define.sharding import Placements, of_formula
from pullback.diagnostic import PullbackError
from pullback.kernels import prebuilt, toolchain


class Mathematics(Kind):
    """One operator whose kernels and derivatives are made from its formula, when first needed."""

    is_differentiable_forever = True
    lazy: ClassVar[type[Lazy]] = Lazy

    @property
    def formula(self) -> Formula:
        """Its formula."""
        assert self.definition.formula
        return self.definition.formula

    @property
    def has_derivative(self) -> bool:
        """Whether it can be differentiated."""
        return True

    @cached_property
    def runtime(self) -> Runtime | None:
        """The C++ runtime; without a compiler PyTorch's operations do it all."""
        try:
            self.require_compiler()
            return runtime.load()
        except PullbackError as error:
            elements.announce(self.definition.line, error)
            return None

    def require_compiler(self) -> None:
        """Stop if its loops cannot be compiled and it does not run without them."""

    def register(self, library: torch.library.Library, overload: torch._ops.OpOverload) -> Operator:
        """Register it; without a runtime, so that PyTorch sees through it."""
        if self.runtime is not None:
            return super().register(library, overload)
        # Autograd, tracing and all else then come from PyTorch's operations.
        run = self.in_pytorch()
        library.impl(self.definition.line.name, run, "CompositeImplicitAutograd")
        self.register_batching(library, overload)
        return Operator(self, overload)

    def install(self) -> None:
        """Hand the definition to the runtime, which asks for the rest when it needs it."""
        self.supplied.begin()

    @cached_property
    def supplied(self) -> Lazy:
        """What the runtime asks for."""
        return self.lazy(self)

    @property
    def runs_on_a_gpu(self) -> bool:
        """That a formula does."""
        return self.runtime is not None

    def reload(self) -> None:
        """Ask again for loops: others may be wanted, as where CUDA runs on the CPU."""
        if self.runtime is not None:
            self.supplied.reload()

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        raise NotImplementedError

    def references(self) -> dict[str, Callable[..., Any]]:
        """Return its reference, and its formula."""
        return {**super().references(), "its formula in PyTorch": self.in_pytorch()}

    def batched(self, call: BatchedCall) -> tuple[Any, Any]:
        """Compute a call under `torch.vmap`, by the same formula with one more dimension."""
        return derive.call_batched(self, call)

    def described(self) -> list[str]:
        """Return that it has a formula."""
        return ["formula"]

    def derivative(self) -> Derivative:
        """Return its derivative, to print."""
        return show_derivative(self.formula)

    def wired(self) -> Derivatives:
        """Register the operators of the first derivatives, and return these."""
        return Derivatives(
            backward=derive.register_derivative(self, "backward"),
            jvp=derive.register_derivative(self, "jvp"),
        )


class Pointwise(Mathematics):
    """One operator that is a formula of each element alone: a loop is compiled for it."""

    lazy = LazyFormula

    def require_compiler(self) -> None:
        """Stop without a compiler: its loops are compiled when they are needed."""
        if not prebuilt.has_loops(self.definition.line):
            toolchain.find("c++")

    def kernel(self) -> Callable[..., object]:
        """Return a function of PyTorch's operations, for devices without a loop."""
        return self.in_pytorch()

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        return elements.kernel_of(self.definition)

    def fake(self) -> Callable[..., object]:
        """Return the fake kernel, whose strides are TensorIterator's."""
        return fake.make_fake_kernel(self.definition)

    def placements(
        self, wanted: Sequence[bool] | None = None, absent: frozenset[str] = frozenset()
    ) -> list[Placements]:
        """Return the ways to split it: along every dimension."""
        del wanted, absent
        return of_formula(self.formula)
