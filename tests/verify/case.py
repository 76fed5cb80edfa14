"""A fault and the same code without it, with what the checker has to say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.diagnostic import Level

# Its methods take what each author writes: a base class of any type has no signatures to keep to.
Function: Any = torch.autograd.Function
# A target, and its inputs.
Made = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault.

    Attributes:
        id: of the catalogue, or the code of its probe.
        says: words of which the finding's message, evidence or cure has one: the cause is named.
        make: returns the target and its inputs, with the fault or repaired.
        level: of the finding.
    """

    id: str
    says: tuple[str, ...]
    make: Callable[[bool], Made]
    level: Level = "fault"


Add = Callable[[Callable[[bool], Made]], None]


def into(cases: list[Case]) -> Callable[..., Add]:
    """Return a decorator that adds a fault to a list."""

    def case(id: str, *says: str, level: Level = "fault") -> Add:
        return lambda make: cases.append(Case(id=id, says=says, make=make, level=level))

    return case


def d(*shape: int) -> Tensor:
    """Return random numbers of float64 that require a gradient."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def f(*shape: int) -> Tensor:
    """Return random numbers of float32 that require a gradient."""
    return torch.randn(shape, requires_grad=True)
