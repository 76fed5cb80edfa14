"""Operators in index notation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from pullback.bind.kinds.formula import Mathematics
from pullback.bind.math import execute, flops, verify
from pullback.bind.math import plan as plans
from pullback.bind.math.flops import Cost
from pullback.bind.math.plan import Plan
from pullback.bind.operator import Operator, require_call
from pullback.define.line import Line
from pullback.define.math import derived, sharding
from pullback.define.sharding import Placements


class Indexed(Mathematics):
    """One operator in index notation: loops for a call's sizes, or PyTorch's operations."""

    uncompiled = "in index notation: a loop is compiled for a call's sizes"

    def prepare(self) -> None:
        """Compare the two ways to compute it."""
        verify.verify_at_definition(self.definition)
        super().prepare()

    def register_rules(
        self, library: torch.library.Library, overload: torch._ops.OpOverload
    ) -> None:
        """Register what follows from the line, and its number of operations."""
        super().register_rules(library, overload)
        flops.register(self.definition, overload)

    def kernel(self) -> Callable[..., object]:
        """Return the executor, which chooses how each call is computed."""
        return self.executor

    @cached_property
    def executor(self) -> execute.Executor:
        """Chooses how each call is computed."""
        return execute.Executor(self.definition)

    def reload(self) -> None:
        """Choose again."""
        super().reload()
        self.executor.prepared.clear()

    def in_pytorch(self) -> Callable[..., object]:
        """Return a function that computes it with PyTorch's operations."""
        return execute.make_pytorch_kernel(self.definition)

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
