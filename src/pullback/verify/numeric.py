"""Derivatives by differences, with the error that each of them has.

Central differences at steps that shrink by four, extrapolated once (Richardson); what two successive
extrapolations differ by is taken as the error of the better one. So a kernel that computes in
float32, a sum of a million terms or a steep function widen their own tolerance; nothing is tuned.

Source: L. F. Richardson, J. A. Gaunt, *The deferred approach to the limit* (1927); C. J. F. Ridders,
*Accurate computation of F'(x) and F'(x)F''(x)*, Advances in Engineering Software 4 (1982).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# s(t) -> the values at the point t along a line, as one real vector in float64.
Curve = Callable[[float], Tensor]

LARGEST = 2.0**-4
RATIO = 4.0
COUNT = 7
# An error that is estimated from a difference of two may be that much larger by chance.
SAFETY = 8.0


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The derivative of a curve at 0, element by element, real and in float64.

    Attributes:
        value: the derivative.
        error: what it may be off by; infinite where nothing can be said.
        kink: where the derivatives from both sides exist and differ.
    """

    value: Tensor
    error: Tensor
    kink: Tensor


def slope(curve: Curve, *, eps: float = 2.0**-52) -> Slope:
    """Differentiate a curve at 0.

    Args:
        curve: of unit scale: it changes by its own size over a step of about 1.
        eps: the spacing of the values that it is computed in.
    """
    steps = [LARGEST / RATIO**k for k in range(COUNT)]
    steps = [h for h in steps if h > 64 * eps]
    centre = curve(0.0)
    right, left = [curve(h) for h in steps], [curve(-h) for h in steps]
    central = [(r - l) / (2 * h) for r, l, h in zip(right, left, steps, strict=True)]
    square = RATIO**2
    better = [(square * b - a) / (square - 1) for a, b in zip(central, central[1:], strict=False)]
    size = torch.stack([centre.abs(), *(v.abs() for v in (*right, *left))]).amax(0)
    rounding = [4 * eps * size / h for h in steps[1:]]
    errors = [
        SAFETY * (b - a).abs() + r
        for a, b, r in zip(better, better[1:], rounding[1:], strict=False)
    ]
    error, choice = torch.stack(errors).nan_to_num(nan=math.inf).min(0)
    value = torch.stack(better[1:]).gather(0, choice[None])[0]
    jumps = [(r - 2 * centre + l) / h for r, l, h in zip(right, left, steps, strict=True)]
    return Slope(
        value=value,
        error=torch.where(value.isfinite(), error, math.inf),
        kink=is_kink(jumps, [4 * eps * size / h for h in steps]),
    )


def is_kink(jumps: Sequence[Tensor], rounding: Sequence[Tensor]) -> Tensor:
    """Tell where the derivatives from both sides differ: their difference does not shrink with h."""
    found = torch.zeros_like(jumps[0], dtype=torch.bool)
    for (a, b), noise in zip(zip(jumps, jumps[1:], strict=False), rounding[1:], strict=False):
        found |= (
            (b.abs() > 0.7 * a.abs()) & (b.abs() > 32 * noise) & (b.abs() > 1e-6 * a.abs().amax())
        )
    return found


def flat(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return tensors as one real vector in float64; a complex number is two; None is left out."""
    parts: list[Tensor] = []
    for tensor in tensors:
        if tensor is None:
            continue
        value = tensor.detach()
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        parts.append(value.to(torch.float64).reshape(-1))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def dot(a: Tensor | None, b: Tensor | None) -> float:
    """Return the real inner product in float64; None is zero."""
    if a is None or b is None:
        return 0.0
    return float(flat([a]) @ flat([b]))


def direction(value: Tensor, seed: int) -> Tensor:
    """Return a Gaussian direction of the size of a value: of unit size where that is zero."""
    generator = torch.Generator().manual_seed(seed)
    wide = value.detach().to(torch.complex128 if value.is_complex() else torch.float64)
    size = float(wide.abs().square().mean().sqrt()) if wide.numel() else 1.0
    drawn = torch.randn(value.shape, dtype=wide.dtype, generator=generator)
    return drawn * (size if math.isfinite(size) and size > 0 else 1.0)
