"""A row of the catalogue: one fault, and the same function without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pullback.diagnostic import Level

# Its methods take what each author writes: a base class of any type has no signatures to keep to.
Function: Any = torch.autograd.Function
Made = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One class of faults.

    Attributes:
        id: of the catalogue.
        make: returns the target and its inputs, with the fault or without.
        says: words of which the finding's message, evidence or cure has one: the cause is named.
        level: of the finding.
        options: of `pb.check`.
    """

    id: str
    make: Callable[[bool], Made]
    says: tuple[str, ...]
    level: Level = "fault"
    options: dict[str, Any] = field(default_factory=dict[str, Any])


ROWS: list[Row] = []


def row(
    id: str, *says: str, level: Level = "fault", **options: object
) -> Callable[[Callable[[bool], Made]], None]:
    """Add a row."""

    def add(make: Callable[[bool], Made]) -> None:
        ROWS.append(Row(id=id, make=make, says=says, level=level, options=options))

    return add


def d(*shape: int) -> Tensor:
    """Return random numbers of float64 that require a gradient."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def f(*shape: int) -> Tensor:
    """Return random numbers of float32 that require a gradient."""
    return torch.randn(*shape, requires_grad=True)
