"""An elementwise target at many values at once: each element's derivative stands for itself.

Source of the idea: the Jacobian of an elementwise function is diagonal, so one direction of ones
shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.agreement import rounding
from pullback.verify.call import Call, same
from pullback.verify.numeric import flat, slope
from pullback.verify.sizes import axes_of, resized

COUNT = 400


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The derivative at many values of one input.

    Attributes:
        x: the values, from the least to the largest.
        analytic: what backward says.
        numeric: what differences say.
        wrong: where they certainly disagree.
        judged: where differences say something.
    """

    x: Tensor
    analytic: Tensor
    numeric: Tensor
    wrong: Tensor
    judged: Tensor


def sweep(call: Call, leaf: int, points: Tensor) -> Sweep | None:
    """Follow an input of an elementwise target through values.

    Returns:
        None if forward refuses, or if an output element depends on other elements.
    """
    call = call.double or call
    for wide in widened(call, leaf, len(points)):
        start = wide.leaves[leaf].value
        order = torch.arange(start.numel()) % len(points)
        value = points.to(start)[order].reshape(start.shape)
        try:
            found = followed(wide, leaf, value)
        except Exception:  # forward refuses it
            continue
        if found is not None:
            return found
    return None


def widened(call: Call, leaf: int, count: int) -> Iterator[Call]:
    """Yield the call with about as many elements in a leaf as there are points."""
    value = call.leaves[leaf].value
    if value.numel() >= count:
        yield call
        return
    for axes in axes_of(call):
        if axes.of[leaf]:
            power, others = len(axes.of[leaf]), value.numel() // axes.size ** len(axes.of[leaf])
            size = round((count / max(others, 1)) ** (1 / power) + 0.5)
            yield from resized(call, axes, size)


def followed(call: Call, leaf: int, value: Tensor) -> Sweep | None:
    """Compare backward with differences at each value."""
    values = [own.value for own in call.leaves]
    values[leaf] = value
    here = call.with_values(values)
    if not is_elementwise(here, leaf):
        return None
    output = here.forward().outputs[0]
    scale = torch.where(value == 0, torch.ones_like(value), value.abs()).to(torch.float64)
    start = value.to(torch.float64)

    def curve(t: float) -> Tensor:
        values[leaf] = (start + t * scale).to(value)
        return flat(here.values(values)[:1])

    eps = max(rounding(value.dtype), rounding(output.dtype))
    own = slope(curve, eps=eps)
    run = here.forward()
    gradient = run.backward(
        [torch.ones_like(own) if own.requires_grad else None for own in run.outputs]
    )
    analytic = flat([torch.zeros_like(value) if gradient[leaf] is None else gradient[leaf]])
    size = flat([scale])
    numeric, error = own.value / size, own.error / size
    result = flat([output])
    typical = (
        result[result.isfinite()].abs().median()
        if result.isfinite().any()
        else result.new_zeros(())
    )
    # What forward loses when it adds up numbers of ordinary size.
    floor = eps**0.5 * torch.maximum(result.abs(), typical) / size
    allowed = 16 * error + eps**0.25 * torch.maximum(analytic.abs(), numeric.abs()) + floor
    judged = error.isfinite() & result.isfinite() & ~own.kink
    judged &= 16 * error < 0.25 * torch.maximum(analytic.abs(), numeric.abs()) + floor
    bounded = result.isfinite() & (error.isfinite() | own.kink)
    unlike = judged & analytic.isfinite() & ((analytic - numeric).abs() > allowed)
    wrong = unlike | (bounded & ~analytic.isfinite())
    order = flat([value]).argsort()
    return Sweep(
        x=flat([value])[order],
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
    even = (torch.arange(value.numel()) % 2 == 0).reshape(value.shape)
    for moved in (even, ~even):
        values[leaf] = torch.where(moved, value + 1e-3 * value.abs() + 1e-3, value)
        second = call.values(values)
        if not same(first[0][~moved], second[0][~moved]):
            return False
    return not same(first[0], second[0])


def points_for(limits: list[float]) -> Tensor:
    """Return values of all sizes and both signs, closer around the limits that code names."""
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


def region(found: Sweep) -> str:
    """Say for which values backward is right: "|x| < 20"."""
    bad, good = found.x[found.wrong], found.x[found.judged & ~found.wrong]
    if not good.numel():
        return "nowhere"
    low, high = bad.abs().min(), bad.abs().max()
    told = {
        f"|x| < {low:.4g}": good.abs().max() < low,
        f"x < {bad.min():.4g}": good.max() < bad.min(),
        f"x > {bad.max():.4g}": good.min() > bad.max(),
        f"|x| > {high:.4g}": high < good.abs().min(),
        f"x other than {bad.min():.4g}": bad.min() == bad.max(),
    }
    outside = f"x outside of [{bad.min():.4g}, {bad.max():.4g}]"
    return next((text for text, holds in told.items() if holds), outside)
