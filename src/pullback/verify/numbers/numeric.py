"""Derivatives by differences, with the error that each of them has.

At each of a few scales a curve is evaluated at twelve points around 0, and a polynomial of fifth
degree is fitted to them. The residual is noise, or a term of higher degree: it bounds the error of
the derivative at 0, with seven degrees of freedom, so that one lucky element does not look exact.
For each element the scale with the least error counts. So a kernel that computes in float32, a sum
of a million terms, a steep function or a kink widen their own tolerance; nothing is absolute and
nothing is tuned.

Source: J. J. Moré, S. M. Wild, *Estimating derivatives of noisy simulations*, ACM Transactions on
Mathematical Software 38 (2012); L. F. Richardson, J. A. Gaunt, *The deferred approach to the limit*
(1927).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.randomness import make_generator

# s(t) -> the values at the point t along a line, as one real vector in float64.
Curve = Callable[[float], Tensor]

DOUBLE = 2.0**-52
# Noise below this part of a value may be arithmetic in float32.
SINGLE = 2.0**-20
SCALES = [2.0**-2, 2.0**-5, 2.0**-8, 2.0**-12, 2.0**-18, 2.0**-24]
# Above this size a few unknown elements do not matter.
LARGE = 50_000
GOOD, BEST = 1e-8, 1e-11
# The positive half of twelve Chebyshev points: the steps of a scale, as parts of it.
STEPS = torch.tensor([math.cos(math.pi * (2 * j - 1) / 24) for j in range(1, 7)]).double()
ODD = torch.stack([STEPS, STEPS**3, STEPS**5], 1)
# The even part has the centre as a seventh point.
CENTRED = torch.cat([STEPS, torch.zeros(1).double()])
EVEN = torch.stack([torch.ones(7).double(), CENTRED**2, CENTRED**4], 1)
WEIGHTS = torch.linalg.pinv(ODD)[0]
ODD_REST = torch.eye(6).double() - ODD @ torch.linalg.pinv(ODD)
EVEN_REST = torch.eye(7).double() - EVEN @ torch.linalg.pinv(EVEN)
FREEDOM = 7
AMPLIFIED = float(WEIGHTS.norm())


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The derivative of a curve at 0, element by element, real and in float64.

    Attributes:
        value: the derivative; 0 where it is unknown.
        error: its standard error; infinite where the derivative is unknown.
        kink: where the derivatives from both sides exist and differ.
        finite: where the curve is finite at all points.
    """

    value: Tensor
    error: Tensor
    kink: Tensor
    finite: Tensor


@dataclass(frozen=True)
class CurveFit:
    """The result at one scale: the derivative, its error, the bend at 0, and the relative noise."""

    scale: float
    value: Tensor
    error: Tensor
    bend: Tensor
    rounding: Tensor
    digits: Tensor
    finite: Tensor


def differentiate_curve(curve: Curve, *, eps: float = DOUBLE) -> Slope:
    """Differentiate a curve at 0.

    Args:
        curve: of unit scale: it changes by its own size over a step of about 1.
        eps: the spacing of the values that it is computed in.
    """
    centre = curve(0.0)
    fits: list[CurveFit] = []
    large = centre.numel() > LARGE
    # Kinks on the way cost a large call all of its scales: there we start with a small one.
    # Otherwise we start where rounding and the term of seventh degree are about equal.
    for scale in scales(eps, first=eps ** (1 / 3 if large else 1 / 7)):
        fits.append(fit_curve(curve, centre, scale, eps))
        if is_good(fits[-1], GOOD if large else BEST, part=0.9 if large else 1.0):
            break
    fits.sort(key=lambda f: -f.scale)
    value, error = merge_fits(fits)
    return Slope(
        value=torch.where(error.isfinite(), value, 0.0),
        error=error,
        kink=is_kink(fits),
        finite=torch.stack([f.finite for f in fits]).all(0),
    )


def merge_fits(fits: Sequence[CurveFit]) -> tuple[Tensor, Tensor]:
    """Return the best derivative and its error, element by element; the largest scale is first.

    A function computed in few digits is a staircase: at a small scale it is constant, without any
    noise, and the derivative seems to be exactly 0. Where two scales contradict each other and the
    larger one fits well, their difference is the error.
    """
    value, error, small = fits[0].value, fits[0].error, fits[0].digits <= SINGLE
    for here in fits[1:]:
        apart = (here.value - value).abs()
        stairs = (apart > 16 * (here.error + error)) & (error < 0.1 * value.abs())
        finer = (here.error < error) & ~stairs
        value = torch.where(finer, here.value, value)
        # A derivative of 0 that contradicts a clear one is a staircase, if its steps are those of
        # float32; a function that rounds to larger steps on purpose has none. There we trust
        # neither.
        still = (here.value.abs() <= 16 * here.error) & small
        error = torch.where(stairs & ~still, apart, torch.where(finer, here.error, error))
        small = torch.where(finer, here.digits <= SINGLE, small)
    return value, error


def scales(eps: float, *, first: float) -> list[float]:
    """Return the scales at which rounding does not hide everything, starting with one."""
    usable = [h for h in SCALES if h >= 64 * eps] or SCALES[:1]
    return sorted(usable, key=lambda h: abs(math.log2(h / first)))


def fit_curve(curve: Curve, centre: Tensor, scale: float, eps: float) -> CurveFit:
    """Fit a polynomial to a curve at one scale."""
    right = torch.stack([curve(scale * t) for t in STEPS.tolist()])
    left = torch.stack([curve(-scale * t) for t in STEPS.tolist()])
    finite = right.isfinite().all(0) & left.isfinite().all(0) & centre.isfinite()
    size = torch.maximum(right.abs().amax(0), left.abs().amax(0)).maximum(centre.abs())
    right, left = right - centre, left - centre
    # Scaled to the size of 1 for the fit: squares of very small values would vanish.
    unit = torch.maximum(right.abs().amax(0), left.abs().amax(0))
    unit = torch.where((unit > 0) & unit.isfinite(), unit, 1.0)
    odd, even = (right - left) / (2 * unit), (right + left) / (2 * unit)
    even = torch.cat([even, torch.zeros_like(even[:1])])
    rest = (ODD_REST @ odd).square().sum(0) + (EVEN_REST @ even).square().sum(0)
    # A constant element may be a difference of numbers as large as its neighbours, rounded to 0.
    largest = torch.where(size.isfinite(), size, 0.0).amax() if size.numel() else size
    rounding = torch.where((odd == 0).all(0), largest, size)
    noise = raise_noise((rest / FREEDOM).sqrt() * unit, size) + 2 * eps * rounding
    error = AMPLIFIED / scale * noise
    bend = (even[:-1] / STEPS[:, None]).abs().mean(0) * unit / scale
    return CurveFit(
        scale=scale,
        value=(WEIGHTS @ odd * unit / scale).nan_to_num(),
        error=torch.where(finite, error, math.inf).nan_to_num(nan=math.inf, posinf=math.inf),
        bend=bend.nan_to_num(),
        rounding=32 * eps / scale * size,
        digits=(noise / size).nan_to_num(),
        finite=finite,
    )


def raise_noise(noise: Tensor, size: Tensor) -> Tensor:
    """Raise noise that is small by luck to half of the usual noise for values of that size."""
    known = noise.isfinite() & (size > 0)
    if not known.any():
        return noise
    usual = (noise[known] / size[known]).median()
    return noise.maximum(0.5 * usual * size)


def is_good(fit: CurveFit, enough: float, *, part: float) -> bool:
    """Tell whether one scale is enough: whether enough elements are known to many digits."""
    error, size = fit.error.square(), fit.value.square().mean()
    return bool((error <= enough**2 * size).double().mean() >= part)


def is_kink(fits: Sequence[CurveFit]) -> Tensor:
    """Tell where a curve bends at 0 as much at a small scale as at the one above it.

    A smooth curve bends less there, and noise, divided by the scale, many times more.
    """
    found = torch.zeros_like(fits[0].bend, dtype=torch.bool)
    for above, here in itertools.pairwise(fits):
        clear = here.bend > here.rounding
        equal = (here.bend > 0.7 * above.bend) & (here.bend < 1.4 * above.bend)
        found = torch.where(clear, equal, found)
    return found & fits[-1].finite


def flatten(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return tensors as one real vector in float64; a complex number is two; None is left out."""
    parts: list[Tensor] = []
    for tensor in tensors:
        if tensor is None:
            continue
        value = tensor.detach()
        if value.layout != torch.strided:
            value = value.to_dense()
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        parts.append(value.to("cpu", torch.float64).reshape(-1))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def dot(a: Tensor | None, b: Tensor | None) -> float:
    """Return the real inner product in float64; None is zero."""
    if a is None or b is None:
        return 0.0
    return float(flatten([a]) @ flatten([b]))


def draw_direction(value: Tensor, seed: int) -> Tensor:
    """Return a Gaussian direction of the size of a value: of unit size where that is zero."""
    generator = make_generator(seed)
    wide = value.detach().to("cpu", torch.complex128 if value.is_complex() else torch.float64)
    known = wide[wide.isfinite()]
    size = float(known.abs().square().mean().sqrt()) if known.numel() else 1.0
    drawn = torch.randn(value.shape, dtype=wide.dtype, generator=generator)
    return drawn * (size if math.isfinite(size) and size > 0 else 1.0)
