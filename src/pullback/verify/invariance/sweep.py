"""An elementwise target at many values at once: each element has its own derivative.

The Jacobian of an elementwise function is diagonal, so a direction of ones shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.agreement import rounding
from pullback.verify.call import Call, is_same
from pullback.verify.invariance.sizes import axes_of, resize
from pullback.verify.numbers.iterated import iterates
from pullback.verify.numbers.numeric import differentiate_curve, flatten
from pullback.verify.randomness import make_generator

COUNT = 400


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The derivative at many values of one input.

    Attributes:
        x: the values, from the least to the largest.
        analytic: backward's derivative.
        numeric: the derivative by differences.
        wrong: where they certainly disagree.
        judged: where differences are meaningful.
    """

    x: Tensor
    analytic: Tensor
    numeric: Tensor
    wrong: Tensor
    judged: Tensor


def sweep(call: Call, leaf: int, points: Tensor) -> Sweep | None:
    """Differentiate an elementwise target at many values of an input.

    Returns:
        None if forward refuses, if an output element depends on other elements, or if forward stops
        at a tolerance, which is large relative to small values.
    """
    if iterates(call):
        return None
    call = call.double or call
    for wide in widen(call, leaf, len(points)):
        start = wide.leaves[leaf].value
        order = torch.arange(start.numel()) % len(points)
        value = points.to(start)[order].reshape(start.shape)
        try:
            found = follow_sweep(wide, leaf, value)
        except Exception:  # forward refuses it
            continue
        if found is not None:
            return found
    return None


def widen(call: Call, leaf: int, count: int) -> Iterator[Call]:
    """Yield the call with about as many elements in a leaf as there are points."""
    value = call.leaves[leaf].value
    if value.numel() >= count:
        yield call
        return
    for axes in axes_of(call):
        if axes.of[leaf]:
            power, others = len(axes.of[leaf]), value.numel() // axes.size ** len(axes.of[leaf])
            size = round((count / max(others, 1)) ** (1 / power) + 0.5)
            yield from resize(call, axes, size)


def follow_sweep(call: Call, leaf: int, value: Tensor) -> Sweep | None:
    """Compare backward with differences at each value."""
    values = [own.value for own in call.leaves]
    values[leaf] = value
    here = call.with_values(values)
    if not is_elementwise(here, leaf):
        return None
    output = here.forward().outputs[0]
    size = value.abs().to(torch.float64)
    # With steps as large as a large value, a staircase would look like a slope.
    scale = torch.where(size == 0, torch.ones_like(size), torch.minimum(size, size.sqrt()))
    start = value.to(torch.float64)

    def curve(t: float) -> Tensor:
        values[leaf] = (start + t * scale).to(value)
        return flatten(here.values(values)[:1])

    eps = max(rounding(value.dtype), rounding(output.dtype))
    own = differentiate_curve(curve, eps=eps)
    run = here.forward()
    gradient = run.backward(
        [torch.ones_like(own) if own.requires_grad else None for own in run.outputs]
    )
    analytic = flatten([torch.zeros_like(value) if gradient[leaf] is None else gradient[leaf]])
    step = flatten([scale])
    numeric, error = own.value / step, own.error / step
    result = flatten([output])
    typical = (
        result[result.isfinite()].abs().median()
        if result.isfinite().any()
        else result.new_zeros(())
    )
    # The digits that forward loses when it adds numbers of ordinary size.
    floor = eps**0.5 * torch.maximum(result.abs(), typical) / step
    allowed = 16 * error + eps**0.25 * torch.maximum(analytic.abs(), numeric.abs()) + floor
    judged = error.isfinite() & result.isfinite() & ~own.kink
    judged &= 16 * error < 0.25 * torch.maximum(analytic.abs(), numeric.abs()) + floor
    # Near a pole differences are meaningless.
    near = result.abs() <= 1e6 * (typical + flatten([value]).abs())
    bounded = result.isfinite() & near & (error.isfinite() | own.kink)
    # Between two steps of a staircase the slope is 0, whatever it seems to be across many.
    tiny = eps**0.6
    still = (curve(tiny) == result) & (curve(-tiny) == result) & (analytic == 0)
    judged &= ~still
    unlike = judged & analytic.isfinite() & ((analytic - numeric).abs() > allowed)
    wrong = unlike | (bounded & ~analytic.isfinite())
    order = flatten([value]).argsort()
    return Sweep(
        x=flatten([value])[order],
        analytic=analytic[order],
        numeric=numeric[order],
        wrong=wrong[order],
        judged=(judged | wrong)[order],
    )


def is_elementwise(call: Call, leaf: int) -> bool:
    """Tell whether each element of the only output depends on its own element of an input."""
    value = call.leaves[leaf].value
    values = [own.value for own in call.leaves]
    first = call.values(values)
    if len(first) != 1 or first[0].shape != value.shape or value.is_complex():
        return False
    # Chosen at random: every other element could be whole columns.
    generator = make_generator(value.numel())
    some = torch.rand(value.shape, generator=generator) < 0.5
    for moved in (some, ~some):
        values[leaf] = torch.where(moved, value + 1e-3 * value.abs() + 1e-3, value)
        second = call.values(values)
        if not is_same(first[0][~moved], second[0][~moved]):
            return False
    return not is_same(first[0], second[0])


def points_for(limits: list[float]) -> Tensor:
    """Return values of all magnitudes and both signs, denser around the limits in the code."""
    sizes = torch.logspace(-6, 3, 70, dtype=torch.float64)
    steps = torch.linspace(0.05, 10.05, 101, dtype=torch.float64)
    near = [
        limit * sign * (1 + step)
        for limit in limits
        for sign in (1, -1)
        for step in (-0.2, -0.05, -0.01, -1e-3, 1e-3, 0.01, 0.05, 0.2)
    ]
    extra = torch.tensor([0.0, 25.3, -25.3, 60.7, -60.7, 87.2, -87.2, *near], dtype=torch.float64)
    return torch.cat([sizes, -sizes, steps, -steps, extra]).unique()


def describe_region(found: Sweep, limits: Sequence[float] = ()) -> str:
    """Say for which values backward is right: "|x| < 20", if possible with a number in the code."""
    bad, good = found.x[found.wrong], found.x[found.judged & ~found.wrong]
    if not good.numel():
        return "nowhere"
    low, high = bad.abs().min(), bad.abs().max()
    edge = float(bad.min())
    for limit in limits:
        low = limit if good.abs().max() <= abs(limit) <= low else low
        edge = limit if good.max() <= limit <= edge else edge
    told = {
        f"|x| < {abs(low):.4g}": good.abs().max() < bad.abs().min(),
        f"x < {edge:.4g}": good.max() < bad.min(),
        f"x > {bad.max():.4g}": good.min() > bad.max(),
        f"|x| > {high:.4g}": high < good.abs().min(),
        f"x other than {bad.min():.4g}": bad.min() == bad.max(),
    }
    outside = f"x outside of [{bad.min():.4g}, {bad.max():.4g}]"
    return next((text for text, holds in told.items() if holds), outside)
