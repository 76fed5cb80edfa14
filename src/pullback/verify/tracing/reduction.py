"""The axes over which to sum a gradient: those that the engine takes, and the right ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.call import Call, Run
from pullback.verify.numbers.gradient import slope_along, spacing_of
from pullback.verify.numbers.numeric import dot, draw_direction

# A difference of forward is trusted to this many standard errors.
SURE = 16.0
TRIALS = 2


@dataclass(frozen=True, kw_only=True)
class Directional:
    """The derivatives that the gradient of one leaf has to give along a few directions.

    Attributes:
        directions: v.
        values: the derivative of ⟨grads, outputs⟩ along each.
        allowed: by how much each may be off.
    """

    directions: list[Tensor]
    values: list[float]
    allowed: list[float]

    def fits(self, gradient: Tensor) -> bool:
        """Tell whether a gradient gives the derivatives."""
        return all(
            abs(dot(gradient, v) - value) <= allowed
            for v, value, allowed in zip(self.directions, self.values, self.allowed, strict=True)
        )

    def factor(self, gradient: Tensor) -> float | None:
        """Return the one factor that a gradient is too large by, if there is one."""
        found = [
            dot(gradient, v) / s for v, s in zip(self.directions, self.values, strict=True) if s
        ]
        if not found or not all(math.isclose(c, found[0], rel_tol=1e-3) for c in found):
            return None
        return found[0]


def differentiate_directional(
    call: Call, run: Run, leaf: int, grads: Sequence[Tensor | None]
) -> Directional:
    """Differentiate ⟨grads, outputs⟩ along a few directions of a leaf.

    Raises:
        ArithmeticError: it is unknown: a kink, noise, a value that is not finite.
    """
    outputs = run.differentiable
    eps = spacing_of(call, run)
    directions, values, allowed = list[Tensor](), list[float](), list[float]()
    for trial in range(TRIALS):
        v = draw_direction(call.leaves[leaf].value, 101 * trial + leaf)
        slope = slope_along(call, run, {leaf: v})
        weights = torch.cat([as_real(grads[i]) for i in outputs if grads[i] is not None])
        terms = weights * slope.value
        error = weights * slope.error
        if bool(slope.kink.any()) or not bool(error.isfinite().all()):
            raise ArithmeticError("nothing can be said of the derivative here")
        directions.append(v)
        values.append(float(terms.sum()))
        rounding = 64 * eps * float(terms.abs().sum())
        allowed.append(SURE * float(error.norm()) + rounding)
    return Directional(directions=directions, values=values, allowed=allowed)


def as_real(tensor: Tensor | None) -> Tensor:
    """Return a tensor as one real vector in float64."""
    assert tensor is not None
    value = tensor.detach()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.to(torch.float64).reshape(-1)


def engines_axes(given: torch.Size, wanted: torch.Size) -> list[int] | None:
    """Return the axes over which the engine sums a gradient; None if it raises."""
    extra = len(given) - len(wanted)
    if extra < 0:
        return None
    axes = list(range(extra))
    for axis, size in enumerate(wanted):
        if size != given[extra + axis]:
            if size != 1:
                return None
            axes.append(extra + axis)
    return axes


def iter_reductions(gradient: Tensor, wanted: torch.Size) -> Iterator[tuple[list[int], Tensor]]:
    """Yield each choice of axes that leaves the wanted shape, and the gradient summed over them."""
    for count in range(gradient.dim() + 1):
        for axes in itertools.combinations(range(gradient.dim()), count):
            own = gradient.sum(axes, keepdim=True) if axes else gradient
            rest = [size for axis, size in enumerate(gradient.shape) if axis not in axes]
            if list(wanted) in (rest, list(own.shape)):
                yield list(axes), own.reshape(wanted)


def iter_permutations(gradient: Tensor, wanted: torch.Size) -> Iterator[tuple[int, ...]]:
    """Yield the orders of the axes that give the wanted shape."""
    if gradient.dim() == len(wanted) <= 5:
        for order in itertools.permutations(range(gradient.dim())):
            if gradient.permute(order).shape == wanted:
                yield order


def right_axes(known: Directional | None, gradient: Tensor, wanted: torch.Size) -> list[int] | None:
    """Return the axes over which to sum to get the right gradient."""
    choices = list(iter_reductions(gradient, wanted))
    if known is None:
        return choices[0][0] if len(choices) == 1 else None
    return next((axes for axes, summed in choices if known.fits(summed)), None)


def known_directional(
    call: Call, run: Run, leaf: int, grads: Sequence[Tensor | None]
) -> Directional | None:
    """Differentiate, or return None if that is inconclusive."""
    with suppress(ArithmeticError, RuntimeError, ValueError, TypeError):
        return differentiate_directional(call, run, leaf, grads)
    return None
