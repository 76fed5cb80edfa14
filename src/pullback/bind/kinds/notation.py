"""What operators in index notation share, with states or without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

import torch

from pullback.bind.kinds.formula import Mathematics
from pullback.bind.kinds.kind import KeptBy
from pullback.bind.math import flops
from pullback.bind.math import plan as plans
from pullback.bind.math.flops import Cost
from pullback.bind.math.kept import LazyKeeping
from pullback.bind.math.plan import Plan
from pullback.bind.math.shortcuts import Shortcuts
from pullback.bind.operator import Operator, require_call
from pullback.bind.registry import operators
from pullback.define.line import Line
from pullback.define.math import derived, sharding
from pullback.define.sharding import Placements


class Executes(Protocol):
    """Chooses how each call is computed, and computes it."""

    def __call__(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the outputs, None for those that are not wanted."""

    def by_pytorch(self, *arguments: object, output_mask: list[bool] | None = None) -> object:
        """Return the same by PyTorch's operations alone, which autograd and tracers see through."""

    def forget(self) -> None:
        """Choose again."""


class IndexNotation(Mathematics):
    """One operator in index notation: loops for a call's sizes, or PyTorch's operations."""

    uncompiled = "in index notation: a loop is compiled for a call's sizes"

    def make_executor(self) -> Executes:
        """Return what computes each call."""
        raise NotImplementedError

    @cached_property
    def executor(self) -> Executes:
        """Computes each call."""
        return self.make_executor()

    def keeping(self, given: Iterable[object]) -> KeptBy | None:
        """Return the operators by which a call keeps what its gradients read."""
        own = self.supplied
        if not isinstance(own, LazyKeeping) or self.runtime is None:
            return None
        found = own.keeping_of(tuple(given))
        if found is None:
            return None
        forward, [backward] = found.forward, found.backward.calls
        made = operators[forward].definition, operators[backward.operator].definition
        return KeptBy(*made, found.is_scaled)

    def register_rules(
        self, library: torch.library.Library, overload: torch._ops.OpOverload
    ) -> None:
        """Register what follows from the line, and its number of operations."""
        super().register_rules(library, overload)
        flops.register(self.definition, overload)

    @cached_property
    def shortcuts(self) -> Shortcuts | None:
        """Has the runtime make the calls that are known."""
        return Shortcuts(self.definition, self.executor) if self.runtime else None

    @property
    def known_calls(self) -> object | None:
        """The runtime's part of these."""
        return self.shortcuts and self.shortcuts.native

    def kernel(self) -> Callable[..., object]:
        """Return what computes the calls that the runtime does not make alone."""
        return self.shortcuts or self.executor

    def reload(self) -> None:
        """Choose again."""
        super().reload()
        self.executor.forget()
        self.forget_shortcuts()

    def forget_shortcuts(self) -> None:
        """Find out anew which calls the runtime can make alone."""
        if self.shortcuts:
            self.shortcuts.forget()

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        return self.executor.by_pytorch

    def placements(
        self, wanted: Sequence[bool] | None = None, absent: frozenset[str] = frozenset()
    ) -> list[Placements]:
        """Return the ways to split it that the formula allows."""
        return sharding.rules(self.formula, wanted, absent)

    def tables(self) -> list[tuple[Line, list[Placements]]]:
        """Return the ways to split it and its gradients."""
        tables = super().tables()
        if backward := derived.backward(self.formula):
            gradients = backward.formula
            tables.append((gradients.line, sharding.rules(gradients)))
        return tables

    def plan(self, operator: Operator, given: tuple[object, ...], device: str | None) -> Plan:
        """Return how a call and its backward are computed."""
        require_call(operator, given)
        return plans.plan(self, given, device)

    def cost(self, operator: Operator, given: tuple[object, ...]) -> Cost:
        """Return what a call costs."""
        require_call(operator, given)
        return flops.cost_of_call(self.definition, given)
