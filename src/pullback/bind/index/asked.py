"""What a user may ask an operator in index notation: its plan, its cost, how it may be split."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pullback.bind import kernel
from pullback.bind.index import flops
from pullback.bind.index import plan as plans
from pullback.bind.index.plan import Plan
from pullback.bind.operator import Operator, misuse
from pullback.define.index import cost as costs


class Cost(costs.Cost):
    """What one call costs; printed in a line."""

    def __str__(self) -> str:
        return costs.shown(self)


def plan(operator: Operator, args: Sequence[object]) -> Plan:
    """Return how a call and its backward are computed, as `Operator.plan` says."""
    require_call(operator, args)
    return plans.plan(operator.kind, tuple(args))


def cost(operator: Operator, args: Sequence[object]) -> Cost:
    """Return what a call costs, as `Operator.cost` says."""
    require_call(operator, args)
    given = kernel.completed(operator.definition, tuple(args), None)
    reals = [t.dtype.itemsize for t in given if isinstance(t, Tensor) and t.is_floating_point()]
    shapes = [tuple(t.shape) if isinstance(t, Tensor) else t for t in given]
    found = flops.cost_of(operator.definition, shapes, max(reals, default=4))
    return Cost(flops=found.flops, read=found.read, written=found.written, dense=found.dense)


def require_call(operator: Operator, args: Sequence[object]) -> None:
    """Stop at arguments that do not fit the line.

    Raises:
        PullbackError: PB341.
    """
    if wrong := misuse(operator, tuple(args), {}):
        raise wrong
