"""A call at other values: large, small, zero, equal, and around the limits in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from pullback.verify.call import Call, can_require_grad
from pullback.verify.invariance.options import constants_in
from pullback.verify.numbers.gradient import structure_of
from pullback.verify.source import Text, last_name

# Functions whose numbers are limits.
LIMITS = (
    "clamp", "clamp_", "clip", "clip_", "threshold", "where", "maximum", "minimum", "hardtanh",
    "gt", "lt", "ge", "le", "max", "min", "softplus",
)  # fmt: skip
MOST = 6


@dataclass(frozen=True, kw_only=True)
class ValueVariant:
    """Other values for one input.

    Attributes:
        leaf: which input.
        name: completes "wrong for `x` ...".
        value: the values.
    """

    leaf: int
    name: str
    value: Tensor

    def call(self, call: Call) -> Call:
        """Return the call with these values."""
        leaves = [
            replace(own, value=self.value) if i == self.leaf else own
            for i, own in enumerate(call.leaves)
        ]
        return call.with_values([leaf.value for leaf in leaves])


def variants_of(call: Call) -> Iterator[ValueVariant]:
    """Yield other values for each input whose gradient is checked, the likeliest faults first."""
    limits = limits_of(call)
    makers = [make(call, leaf, limits) for leaf in call.wanted]
    while makers:
        for maker in list(makers):
            if (variant := next(maker, None)) is None:
                makers.remove(maker)
            elif keeps_structure(call, variant):
                yield variant


def keeps_structure(call: Call, variant: ValueVariant) -> bool:
    """Tell whether values are symmetric, or a triangle, if the given ones are."""
    restore = structure_of(call.leaves[variant.leaf].value)
    return restore is None or torch.allclose(restore(variant.value), variant.value)


def make(call: Call, leaf: int, limits: list[float]) -> Iterator[ValueVariant]:
    """Yield other values for one input."""
    value = call.leaves[leaf].value
    if not value.numel():
        return
    yield ValueVariant(leaf=leaf, name="of zeros", value=torch.zeros_like(value))
    yield from equal_to_others(call, leaf)
    yield ValueVariant(leaf=leaf, name="30 times as large", value=value * 30)
    if value.ndim > 1 and value.shape[0] > 1:
        rows = value.clone()
        rows[0] = 0
        yield ValueVariant(leaf=leaf, name="with a row of zeros", value=rows)
    if not value.is_complex():
        for limit in limits:
            yield ValueVariant(
                leaf=leaf, name=f"around {limit:g}", value=values_around(value, limit)
            )
        yield ValueVariant(leaf=leaf, name="larger by 30", value=value + 30)
        yield ValueVariant(leaf=leaf, name="smaller by 30", value=value - 30)
    yield ValueVariant(leaf=leaf, name="1000 times as large", value=value * 1000)
    yield ValueVariant(leaf=leaf, name="of the opposite sign", value=-value)
    mean = value.mean() if value.ndim else value
    yield ValueVariant(leaf=leaf, name="of equal elements", value=mean.expand(value.shape).clone())
    yield ValueVariant(leaf=leaf, name="a millionth as large", value=value * 1e-6)


def equal_to_others(call: Call, leaf: int) -> Iterator[ValueVariant]:
    """Yield the values of other inputs of the same shape: a distance is 0 there."""
    value = call.leaves[leaf].value
    for index, other in enumerate(call.leaves):
        alike = other.value.shape == value.shape and other.value.dtype == value.dtype
        if index > leaf and alike and can_require_grad(other.value):
            yield ValueVariant(
                leaf=leaf, name=f"equal to `{other.name}`", value=other.value.clone()
            )


def values_around(value: Tensor, limit: float) -> Tensor:
    """Return values on both sides of a limit, with the signs of the ordinary ones."""
    size = max(abs(limit), 1e-3)
    steps = value.new_tensor([-0.2, 0.2, 0.05, -0.05, 0.4, -0.4])
    own = steps[torch.arange(value.numel()) % len(steps)].reshape(value.shape)
    # No two are equal, so that their order is unique.
    small = 1e-2 * torch.linspace(0.1, 1, value.numel(), dtype=torch.float64).to(value)
    return limit + size * (own + small.reshape(value.shape))


def limits_of(call: Call) -> list[float]:
    """Return the numbers with which the author's code compares, and those among the arguments."""
    found: dict[float, None] = {}
    for part in call.target.parts.values():
        for node in ast.walk(Text(part).tree):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and last_name(node.func) in LIMITS:
                sides = [*node.args, *(word.value for word in node.keywords)]
            else:
                continue
            for side in sides:
                found |= dict.fromkeys(float(own) for own in constants_in(side) if is_limit(own))
    every = [*call.arguments, *call.keywords.values()]
    found |= dict.fromkeys(own for own in every if isinstance(own, float) and is_limit(own))
    return list(found)[:MOST]


def is_limit(constant: object) -> TypeGuard[float]:
    """Tell whether a constant may be a limit of values; zero is tried anyway."""
    return (
        isinstance(constant, int | float)
        and not isinstance(constant, bool)
        and 1e-12 < abs(constant) < 1e6
    )
