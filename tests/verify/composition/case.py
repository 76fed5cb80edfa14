"""A fault with its repaired twin, and right code that has to stay silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.diagnostic import Level

Made = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault.

    Attributes:
        code: of its probe.
        says: words of which the finding has one.
        make: returns the target and its inputs, with the fault or repaired.
        level: of the finding.
    """

    code: str
    says: tuple[str, ...]
    make: Callable[[bool], Made]
    level: Level = "fault"


CASES: list[Case] = []
RIGHT: list[Callable[[], Made]] = []


def case(code: str, *says: str, level: Level = "fault") -> Callable[[Callable[[bool], Made]], None]:
    """Add a fault."""

    def add(make: Callable[[bool], Made]) -> None:
        CASES.append(Case(code=code, says=says, make=make, level=level))

    return add


def right(make: Callable[[], Made]) -> None:
    """Add right code."""
    RIGHT.append(make)


def d(*shape: int) -> Tensor:
    """Return random numbers of float64 that require a gradient."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def f(*shape: int) -> Tensor:
    """Return random numbers of float32 that require a gradient."""
    return torch.randn(shape, requires_grad=True)
