"""Whether differences can be trusted where the checker, and not the author, chose the values.

At such values a function may be a staircase with small steps, have a jump, or change by its own
size over a tiny step, so that neither differences nor a right backward mean anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.numbers.gradient import Mismatch, backward_of, spacing_of
from pullback.verify.numbers.numeric import draw_direction, flatten
from pullback.verify.randomness import make_generator

# Over a step of a quarter of its size, a function that can be judged changes by less than this.
STEEPEST = 1e4
# Steps at which differences are taken again, as powers of the spacing.
POWERS = (0.3, 0.45, 0.6)
FAR = 0.25
# Outputs this many times as large as the inputs have overflowed on the way, or are about to.
LARGEST = 1e8


def is_trusted(call: Call, found: Mismatch) -> bool:
    """Tell whether a mismatch shows at several step sizes, and not only at that of a staircase."""
    call = call.double or call
    run = call.forward()
    if not run.outputs[found.output].requires_grad:
        return True
    eps = spacing_of(call, run)
    curve = outputs_along(call, found.leaf, [found.output])
    here, far = curve(0.0), [curve(FAR), curve(-FAR)]
    seen = max(float(own.nan_to_num(0, 0, 0).norm()) for own in (here, *far))
    if seen > LARGEST * max(1.0, float(flatten([own.value for own in call.leaves]).abs().max())):
        return False
    if math.isnan(found.analytic):
        # A jump of another output shows a point where none of them is defined.
        every = outputs_along(call, found.leaf, run.differentiable)
        return is_lipschitz(every, every(0.0), [every(FAR), every(-FAR)], eps)
    if found.size > STEEPEST * seen or is_fragile(call, found, eps):
        return False
    generator = make_generator(11)
    drawn = torch.randn(here.shape, dtype=torch.float64, generator=generator)
    output = run.outputs[found.output]
    if output.is_complex():
        grad = torch.view_as_complex(drawn.reshape(*output.shape, 2)).to(output)
    else:
        grad = drawn.reshape(output.shape).to(output)
    v = draw_direction(call.leaves[found.leaf].value, 31 * found.leaf)
    gradient = backward_of(run, found.output, grad)[found.leaf]
    if gradient is None or not bool(gradient.any()):
        return not is_staircase(curve, here, far, eps)
    return not agrees_at_a_step(
        curve, here, flatten([grad]), flatten([gradient]) @ flatten([v]), eps
    )


def outputs_along(call: Call, leaf: int, outputs: Sequence[int]) -> Callable[[float], Tensor]:
    """Return outputs as a function of the distance in a random direction of one input.

    NaN where forward refuses, at the edge of its domain.
    """
    values = [own.value for own in call.leaves]
    start = values[leaf]
    v = draw_direction(start, 31 * leaf)
    first = call.values(values)
    unknown = torch.full_like(flatten([first[i] for i in outputs]), math.nan)

    def curve(t: float) -> Tensor:
        values[leaf] = (start.to(v) + t * v).to(start)
        try:
            found = call.values(values)
        except Exception:
            return unknown
        return flatten([found[i] for i in outputs])

    return curve


def agrees_at_a_step(
    curve: Callable[[float], Tensor], here: Tensor, grad: Tensor, own: Tensor, eps: float
) -> bool:
    """Tell whether differences over one of several small steps agree with backward."""
    mine = float(own)
    for power in POWERS:
        step = eps**power
        terms = grad * (curve(step) - curve(-step)) / (2 * step)
        noise = 4 * eps / step * float((grad * here).nan_to_num(0, 0, 0).norm())
        numeric, size = float(terms.sum()), float(terms.norm())
        apart = abs(mine - numeric)
        if apart <= noise + 1e-3 * max(abs(mine), abs(numeric)) and noise <= 0.05 * max(
            abs(mine), size
        ):
            return True
    return False


def is_staircase(
    curve: Callable[[float], Tensor], here: Tensor, far: Sequence[Tensor], eps: float
) -> bool:
    """Tell whether most elements that change over a large step do not over a tiny one."""
    tiny = eps ** POWERS[-1]
    moving = torch.stack([own != here for own in far]).any(0)
    still = (curve(tiny) == here) & (curve(-tiny) == here)
    return bool(moving.any()) and float(still[moving].double().mean()) > 0.5


def is_lipschitz(
    curve: Callable[[float], Tensor], here: Tensor, far: Sequence[Tensor], eps: float
) -> bool:
    """Tell whether a function changes little over a tiny step: it has no jump and no root there."""
    step = eps**0.45
    most = max(float((own - here).norm()) for own in far) / FAR
    for sign in (1, -1):
        change = float((curve(sign * step) - here).norm())
        if not change <= 64 * step * most + 64 * eps * float(here.norm()):
            return False
    return True


def is_fragile(call: Call, found: Mismatch, eps: float) -> bool:
    """Tell whether other last bits of the inputs change the gradient by as much as it is off."""
    plain = gradient_of(call, found.leaf)
    generator = make_generator(5)
    values = [
        leaf.value * (1 + 4 * eps * draw_noise(leaf.value, generator))
        if leaf.wanted
        else leaf.value
        for leaf in call.leaves
    ]
    kept = [v.to(leaf.value) for v, leaf in zip(values, call.leaves, strict=True)]
    moved = gradient_of(call.with_values(kept), found.leaf)
    return float((moved - plain).norm()) > found.relative / 30 * float(plain.norm())


def draw_noise(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal numbers of a tensor's shape, in float64."""
    return torch.randn(value.shape, dtype=torch.float64, generator=generator).to(value.device)


def gradient_of(call: Call, leaf: int) -> Tensor:
    """Return the gradient of a leaf for fixed random gradients."""
    run = call.forward()
    return flatten([run.backward(run.random_grads())[leaf]])
