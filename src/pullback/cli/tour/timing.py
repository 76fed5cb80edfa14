"""What one call costs: pullback's operator beside PyTorch's own and an autograd.Function."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CALLS, ROUNDS, ELEMENTS = 200, 40, 16

Call = Callable[[Tensor, Tensor], Tensor]
Situation = Callable[[Call, Tensor, Tensor], object]


class AddFunction(torch.autograd.Function):
    """The usual way to write an operator in Python; it adds by torch.add."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:  # noqa: ANN401
        """Return a + b."""
        return torch.add(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Return the gradient, twice."""
        return grads[0], grads[0]


def without_grad(call: Call, a: Tensor, b: Tensor) -> object:
    """Call where nothing is recorded."""
    with torch.no_grad():
        for _ in range(CALLS):
            call(a, b)


def forward(call: Call, a: Tensor, b: Tensor) -> object:
    """Call and record."""
    for _ in range(CALLS):
        call(a, b)


def both(call: Call, a: Tensor, b: Tensor) -> object:
    """Call, record and go back."""
    ones = torch.ones_like(a)
    for _ in range(CALLS):
        torch.autograd.grad(call(a, b), (a, b), ones)


SITUATIONS: dict[str, Situation] = {
    "no grad": without_grad,
    "forward": forward,
    "forward + backward": both,
}


def measure(calls: dict[str, Call]) -> dict[str, dict[str, float]]:
    """Return the median microseconds of a call, by name and situation.

    The calls take turns within each round, so that what disturbs the machine disturbs all.
    """
    a, b = (torch.randn(ELEMENTS, requires_grad=True) for _ in range(2))
    seen: dict[str, dict[str, list[float]]] = {
        name: {situation: [] for situation in SITUATIONS} for name in calls
    }
    for _ in range(ROUNDS):
        for situation, run in SITUATIONS.items():
            for name, call in calls.items():
                started = time.perf_counter_ns()
                run(call, a, b)
                seen[name][situation].append((time.perf_counter_ns() - started) / CALLS / 1000)
    return {
        name: {situation: statistics.median(times) for situation, times in row.items()}
        for name, row in seen.items()
    }
