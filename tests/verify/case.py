"""A fault and the same code without it, with what the checker has to say of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import pullback as pb
from pullback.diagnostic import Level
from pullback.verify.report import Report

# Its methods take what each author writes: a base class of any type has no signatures to keep to.
Function: Any = torch.autograd.Function
# A target, and its inputs.
Made = tuple[Any, tuple[Any, ...]]
# Their faults change the process for good.
SPOILING = ("PB522",)
# Other sizes, special values, regions, compiling, another device: four fifths of a check's time.
DEAR = ("PB559", "PB560", "PB561", "PB583", "PB590")


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


def asked(
    made: Made, *, dear: Collection[str] = (), isolate: bool = False, **options: Any
) -> Report:
    """Check in this process; without `probes` all are asked but the dear ones that are not named.

    A tenth of the price of `pb.check(target, *inputs)`, and the same findings. What dies, hangs or
    changes its process is checked as a user does.
    """
    target, inputs = made
    skip = [] if "probes" in options else [code for code in DEAR if code not in dear]
    return pb.check(target, *inputs, isolate=isolate, skip=skip, **options)


def d(*shape: int) -> Tensor:
    """Return random numbers of float64 that require a gradient."""
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def f(*shape: int) -> Tensor:
    """Return random numbers of float32 that require a gradient."""
    return torch.randn(shape, requires_grad=True)
