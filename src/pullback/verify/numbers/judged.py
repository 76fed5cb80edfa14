"""Which elements of a slope are known, and whether a derivative agrees with them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.numbers.numeric import Slope, flatten
from pullback.verify.randomness import make_generator

# An element whose slope is not known to three digits does not count.
KNOWN = 1e-3
# By how many standard errors two numbers may differ.
ERRORS = 8.0


def eps_of(call: Call) -> float:
    """Return the spacing of the numbers that a call computes in."""
    dtypes = [leaf.value.dtype for leaf in call.leaves if leaf.wanted]
    return max(torch.finfo(dtype).eps for dtype in dtypes)


def draw_weights(found: Slope, seed: int) -> Tensor | None:
    """Return Gaussian weights where the slope is known, zero elsewhere; None if few are known."""
    if not found.value.numel():
        return None
    size = float(found.value.square().mean().sqrt())
    floor = torch.clamp(found.value.abs(), min=max(size, 1e-300))
    good = (found.error <= KNOWN * floor) & ~found.kink & found.finite
    if float(good.double().mean()) < 0.5:
        return None
    generator = make_generator(seed + 5)
    drawn = torch.randn(good.shape, dtype=torch.float64, generator=generator)
    return torch.where(good, drawn, 0.0)


def find_disagreement(
    call: Call, tangent: Tensor | None, found: Slope, weights: Tensor
) -> tuple[float, float] | None:
    """Return the weighted sums of a tangent and of a slope, if they do not agree."""
    mine = torch.zeros_like(found.value) if tangent is None else flatten([tangent])
    used = weights != 0
    a, b = (weights * mine)[used], (weights * found.value)[used]
    size = float(a.abs().sum() + b.abs().sum())
    allowed = ERRORS * float((weights.abs() * found.error)[used].sum())
    apart = abs(float(a.sum()) - float(b.sum()))
    if apart <= allowed + math.sqrt(eps_of(call)) * size:
        return None
    return float(a.sum()), float(b.sum())
