"""Recurrences of which few states are kept, beside loops that keep all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.loops import scans
from pullback.bind.math import recur
from pullback.bind.operator import Operator

Loop = Callable[..., Tensor]
numbers = itertools.count()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all states for large ones, and have loops compiled for the smallest calls."""
    for least in ("LARGE", "LANES"):
        monkeypatch.setattr(recur, least, 0)
    monkeypatch.setattr(recur, "MANY_STEPS", 0)
    monkeypatch.setattr(recur, "FEW", 0)
    monkeypatch.setattr(scans, "LARGE_FOR_FEW", 0)


def define(line: str) -> Operator:
    """Return an operator that nothing is known of yet."""
    return pb.operator(f"checkpoints::own{next(numbers)}{line}")


def gradients(
    function: Loop, given: Sequence[Tensor], *, wanted: Sequence[int] | None = None
) -> list[Tensor]:
    """Return the value, and the gradients of what depends on all of it."""
    leaves = [t.detach().clone() for t in given]
    chosen = [leaves[k].requires_grad_() for k in wanted or range(len(leaves))]
    y = function(*leaves)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)
    loss = (y.double().sin() * weights).sum()
    return [y.detach(), *torch.autograd.grad(loss, chosen)]


def keeping_all(
    line: str, given: Sequence[Tensor], monkeypatch: pytest.MonkeyPatch
) -> list[Tensor]:
    """Return the same by loops that keep all steps, one for each direction."""
    with monkeypatch.context() as patch:
        patch.setattr(recur, "MANY_STEPS", 2**60)
        return gradients(define(line), given)


def keeps_few(own: Operator, *given: object) -> bool:
    """Return whether the plan says that few steps of a state are kept."""
    return "MB instead of" in str(own.plan(*given))
