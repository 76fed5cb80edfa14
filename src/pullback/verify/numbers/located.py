"""Which elements of a gradient are wrong: a sample is followed one by one, then the edge."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.numbers.gradient import Mismatch
from pullback.verify.numbers.numeric import differentiate_curve, flatten
from pullback.verify.randomness import make_generator

SAMPLE = 24


class Elements:
    """One leaf's gradient, and the means to follow each of its elements."""

    def __init__(self, call: Call, leaf: int) -> None:
        call = call.double or call
        self.call, self.leaf = call, leaf
        run = call.forward()
        self.grads = run.random_grads()
        gradient = run.backward(self.grads)[leaf]
        own = call.leaves[leaf].value
        self.gradient = torch.zeros_like(own) if gradient is None else gradient.detach()
        self.eps = max(
            torch.finfo(t.dtype).eps for t in (own, *(o for o in run.outputs if o.requires_grad))
        )

    def numeric(self, index: int) -> tuple[float, float]:
        """Return the derivative of an element, and what it may be off by."""
        values = [leaf.value for leaf in self.call.leaves]
        start = values[self.leaf]
        chosen = [i for i, grad in enumerate(self.grads) if grad is not None]
        weights = flatten([self.grads[i] for i in chosen])
        # A step of the element's own size; near zero, of the others'.
        scale = float(start.reshape(-1)[index].abs()) or float(start.abs().mean()) or 1.0
        # Steps of the size of a large value would take a staircase for a slope.
        scale = min(scale, scale**0.5)

        def curve(t: float) -> Tensor:
            moved = start.clone().reshape(-1)
            moved[index] += t * scale
            values[self.leaf] = moved.reshape(start.shape)
            found = self.call.values(values)
            return flatten([found[i] for i in chosen])

        own = differentiate_curve(curve, eps=self.eps)
        value, error = own.value * weights, own.error * weights.abs()
        if not bool(error.isfinite().all()):
            return math.nan, math.inf
        return float(value.sum()) / scale, float(error.sum()) / scale

    def is_wrong(self, index: int) -> bool:
        """Tell whether an element is certainly wrong."""
        analytic = complex(self.gradient.reshape(-1)[index].item()).real
        numeric, error = self.numeric(index)
        if not math.isfinite(error):
            return False
        if math.isnan(analytic):
            return True
        allowed = 16 * error + self.eps**0.25 * max(abs(analytic), abs(numeric))
        return abs(analytic - numeric) > allowed


def is_confirmed(call: Call, leaf: int) -> bool:
    """Tell whether an element of a gradient is wrong, each followed on its own.

    At a nearby point, where no two values are equal and none is zero: at a point where derivatives
    in different directions do not add up, such as a tie, no gradient is right.
    """
    value = call.leaves[leaf].value
    if value.is_complex():
        return True
    size = float(value.abs().max()) or 1.0
    generator = make_generator(value.numel())
    noise = torch.randn(value.shape, dtype=torch.float64, generator=generator).to(value)
    values = [own.value for own in call.leaves]
    values[leaf] = value + 1e-3 * size * noise
    try:
        elements = Elements(call.with_values(values), leaf)
        count = value.numel()
        sample = sorted({round(k * (count - 1) / (SAMPLE - 1)) for k in range(SAMPLE)})
        return any(elements.is_wrong(index) for index in sample)
    except Exception:  # forward refuses values nearby
        return False


def describe_wrong_elements(call: Call, mismatch: Mismatch | None) -> str | None:
    """Say which elements of a gradient are wrong, if they are one range of a right gradient."""
    if mismatch is None or call.leaves[mismatch.leaf].value.is_complex():
        return None
    try:
        return describe_range(Elements(call, mismatch.leaf), call.leaves[mismatch.leaf].name)
    except Exception:  # it was only to say it better
        return None


def describe_range(elements: Elements, name: str) -> str | None:
    """Return "the gradient of `x` is 0 for elements 64..99 of 100"."""
    count = elements.gradient.numel()
    sample = sorted({round(k * (count - 1) / (SAMPLE - 1)) for k in range(SAMPLE)})
    wrong = [index for index in sample if elements.is_wrong(index)]
    right = [index for index in sample if index not in wrong]
    if not wrong or not right:
        return None
    first, last = wrong[0], wrong[-1]
    if any(first < index < last for index in right):
        return None
    before = max((index for index in right if index < first), default=None)
    behind = min((index for index in right if index > last), default=None)
    if before is not None:
        first = find_edge(elements, before, first)
    if behind is not None:
        last = find_edge(elements, behind, last)
    part = elements.gradient.reshape(-1)[first : last + 1]
    what = "0" if not bool(part.any()) else "NaN" if bool(part.isnan().all()) else "wrong"
    where = f"element {first}" if first == last else f"elements {first}..{last}"
    tail = ": the tail of the last block is not written" if what == "0" and behind is None else ""
    return f"the gradient of `{name}` is {what} for {where} of {count}{tail}"


def find_edge(elements: Elements, right: int, wrong: int) -> int:
    """Return the wrong element next to the right ones, by halving."""
    while abs(wrong - right) > 1:
        middle = (wrong + right) // 2
        if elements.is_wrong(middle):
            wrong = middle
        else:
            right = middle
    return wrong
