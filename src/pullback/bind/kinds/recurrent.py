"""Operators in index notation with states: recurrences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from pullback.bind.kinds.formula import Mathematics
from pullback.bind.math import plan as plans
from pullback.bind.math.plan import Plan
from pullback.bind.math.recur import RecurrentExecutor
from pullback.bind.operator import Operator, require_call
from pullback.define.line import Line
from pullback.define.math import derived, sharding
from pullback.define.sharding import Placements


class Recurrent(Mathematics):
    """One recurrence: its states step by step, then its outputs."""

    uncompiled = "a recurrence: its steps are computed by PyTorch's operations"

    def kernel(self) -> Callable[..., object]:
        """Return the executor."""
        return self.executor

    @cached_property
    def executor(self) -> RecurrentExecutor:
        """Computes each call."""
        return RecurrentExecutor(self.definition)

    def reload(self) -> None:
        """Choose again."""
        super().reload()
        self.executor.known.clear()

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
