"""Gradients compared with finite differences, which use no derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """⟨w, J v⟩ for random v and w: by backward, and by central differences."""

    backward: float
    differences: float
    allowed: float

    @property
    def off(self) -> float:
        """How much the two differ."""
        return abs(self.backward - self.differences)

    @property
    def agrees(self) -> bool:
        """Whether rounding and the step explain the difference."""
        return self.off <= self.allowed


def compare(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], *, step: float, seed: int = 0
) -> Comparison:
    """Compare the derivative along a random direction with differences of values.

    Args:
        function: of the inputs; one tensor.
        inputs: of any shape, float32 or float64.
        step: of the differences; a power of two costs no rounding of its own.
        seed: draws v, shaped like the inputs, and w, shaped like the output.

    Returns:
        Both numbers, and what may lie between them: |D(2h) - D(h)|, three times the leading
        error of the step, and eps times the sum of |terms| for rounding, divided by the step
        where the differences divide by it.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    v = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in inputs]
    output = function(*leaves)
    w = torch.randn(output.shape, dtype=output.dtype, generator=generator)
    gradients = torch.autograd.grad(output, leaves, w)

    def difference(h: float) -> float:
        up = function(*(x + h * d for x, d in zip(inputs, v, strict=True)))
        down = function(*(x - h * d for x, d in zip(inputs, v, strict=True)))
        return float((w.double() * (up.double() - down.double())).sum() / (2 * h))

    pairs = list(zip(gradients, inputs, v, strict=True))
    moved = sum(float((g * x).abs().sum()) for g, x, _ in pairs)
    summed = sum(float((g * d).abs().sum()) for g, _, d in pairs)
    terms = float((w * output.detach()).abs().sum())
    once, twice = difference(step), difference(2 * step)
    eps = torch.finfo(output.dtype).eps
    return Comparison(
        backward=sum(float((g.double() * d.double()).sum()) for g, _, d in pairs),
        differences=once,
        allowed=abs(twice - once) + eps * ((terms + moved) / step + 4 * summed),
    )
