"""Whether two answers differ by no more than rounding the inputs explains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.verify.agreement import rounding
from pullback.verify.call import Call, Prepare, can_require_grad
from pullback.verify.invariance.answer import Answer, compute_answer, max_finite

# How many times larger than the effect of rounding its inputs a difference has to be.
BEYOND = 64.0


def is_noise(
    call: Call, base: Answer, values: Sequence[Prepare], found: Answer, right: Answer
) -> bool:
    """Tell whether two layouts differ by no more than rounding the inputs makes of it.

    An expanded input may have no variance, and what is divided by it no digits.
    """
    try:
        shaken = compute_answer(call, base.grads, prepare=[shake(own) for own in values])
    except Exception:  # a value that must not change
        return False
    own = [*right.outputs, *right.gradients]
    pairs = zip(own, [*found.outputs, *found.gradients], strict=True)
    moved = [max_difference(a, b) for a, b in pairs]
    noise = [
        max_difference(a, b) for a, b in zip(own, [*shaken.outputs, *shaken.gradients], strict=True)
    ]
    return all(a <= BEYOND * b for a, b in zip(moved, noise, strict=True))


def shake(prepare: Prepare) -> Prepare:
    """Return what prepares a leaf and moves its elements by a unit in the last place or two."""

    def shaken(leaf: Tensor) -> Tensor:
        made = prepare(leaf)
        if not can_require_grad(made):
            return made
        signs = torch.arange(made.numel()).remainder(3).reshape(made.shape) - 1
        return made * (1 + 2 * rounding(made.dtype) * signs.to(made.dtype))

    return shaken


def max_difference(a: Tensor | None, b: Tensor | None) -> float:
    """Return the largest difference of two tensors; infinite if it is unknown."""
    if a is None or b is None:
        return 0.0 if a is b else math.inf
    if a.shape != b.shape:
        return math.inf
    return max_finite(a - b) if can_require_grad(a) else float(not torch.equal(a, b))
