"""Results in float64, a few rows at a time, and how far others are from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.cases import Case

# Numbers of float64 that the plain computation of some rows holds.
AT_A_TIME = 2**27
# Largest errors of a result that counts, relative to the largest value of its tensor.
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Exact:
    """The output, and the gradients of the real inputs."""

    output: Tensor
    gradients: tuple[Tensor, ...]


def compute_exactly(case: Case, inputs: Sequence[Tensor], grad: Tensor) -> Exact:
    """Return what float64 gives.

    Args:
        case: the operator.
        inputs: its inputs.
        grad: the gradient that arrives.
    """
    doubles = [t.double() if t.is_floating_point() else t for t in inputs]
    outputs: list[Tensor] = []
    firsts: list[Tensor] = []
    others: list[Tensor] | None = None
    for rows in slices(case, len(doubles[0])):
        first = doubles[0][rows].requires_grad_()
        rest = [t.detach().requires_grad_(t.is_floating_point()) for t in doubles[1:]]
        output = case.eager(first, *rest)
        wrt = [first, *(t for t in rest if t.requires_grad)]
        arriving = grad.double()[rows] if case.by_rows else grad.double()
        found = torch.autograd.grad(output, wrt, arriving)
        outputs.append(output.detach())
        firsts.append(found[0])
        added = list(found[1:])
        others = added if others is None else [a + b for a, b in zip(others, added, strict=True)]
    output = torch.cat(outputs) if case.by_rows else outputs[0]
    first_gradient = torch.cat(firsts) if case.by_rows else firsts[0]
    return Exact(output, (first_gradient, *(others or ())))


def slices(case: Case, count: int) -> Iterator[slice]:
    """Yield the rows that are computed together."""
    step = max(1, AT_A_TIME // max(1, case.row)) if case.by_rows else count
    for first in range(0, count, step):
        yield slice(first, first + step)


def worst(values: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Return the largest error, relative to the largest value of its tensor; NaN counts as inf."""
    errors = [0.0]
    for value, want in zip(values, wanted, strict=True):
        if value.shape != want.shape:
            return float("inf")
        if not want.numel():
            continue
        difference = (value.double() - want).abs().max() / want.abs().max().clamp(min=1e-300)
        errors.append(difference.nan_to_num(nan=float("inf")).item())
    return max(errors)
