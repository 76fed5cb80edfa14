"""Whether differences can be trusted where the checker, and not the author, has chosen the values.

At such values a function may be a staircase with small steps, have a jump, or change by its own
size over a tiny step, so that neither differences nor a right backward say anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pullback.verify.call import Call
from pullback.verify.gradient import Mismatch, backward_of, spacing
from pullback.verify.numeric import direction, flat

# Over a step of a quarter of its size a function that is followed changes by less than this.
STEEPEST = 1e4
# Steps at which differences are taken once more, as powers of the spacing.
POWERS = (0.3, 0.45, 0.6)
FAR = 0.25


def is_trusted(call: Call, found: Mismatch) -> bool:
    """Tell whether a mismatch is seen at several steps, and not at one of the sizes of a stair."""
    call = call.double or call
    run = call.forward()
    if not run.outputs[found.output].requires_grad:
        return True
    eps = spacing(call, run)
    curve = along(call, found)
    here, far = curve(0.0), [curve(FAR), curve(-FAR)]
    seen = max(float(own.nan_to_num(0, 0, 0).norm()) for own in (here, *far))
    if math.isnan(found.analytic):
        return is_lipschitz(curve, here, far, eps)
    if found.size > STEEPEST * seen or is_fragile(call, found, eps):
        return False
    generator = torch.Generator().manual_seed(11)
    drawn = torch.randn(here.shape, dtype=torch.float64, generator=generator)
    output = run.outputs[found.output]
    if output.is_complex():
        grad = torch.view_as_complex(drawn.reshape(*output.shape, 2)).to(output)
    else:
        grad = drawn.reshape(output.shape).to(output)
    v = direction(call.leaves[found.leaf].value, 31 * found.leaf)
    gradient = backward_of(run, found.output, grad)[found.leaf]
    mine = 0.0 if gradient is None else float(flat([gradient]) @ flat([v]))
    return not agrees_at_a_step(curve, here, flat([grad]), mine, eps)


def along(call: Call, found: Mismatch) -> Callable[[float], Tensor]:
    """Return one output as a function of the way in a random direction of one input."""
    values = [leaf.value for leaf in call.leaves]
    start = values[found.leaf]
    v = direction(start, 31 * found.leaf)

    def curve(t: float) -> Tensor:
        values[found.leaf] = (start.to(v) + t * v).to(start)
        return flat([call.values(values)[found.output]])

    return curve


def agrees_at_a_step(
    curve: Callable[[float], Tensor], here: Tensor, grad: Tensor, mine: float, eps: float
) -> bool:
    """Tell whether differences over one of several small steps are what backward says."""
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
        if mine == 0 and not bool(terms.any()):  # between two steps
            return True
    return False


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
    generator = torch.Generator().manual_seed(5)
    values = [
        leaf.value * (1 + 4 * eps * noise(leaf.value, generator)) if leaf.wanted else leaf.value
        for leaf in call.leaves
    ]
    kept = [v.to(leaf.value) for v, leaf in zip(values, call.leaves, strict=True)]
    moved = gradient_of(call.with_values(kept), found.leaf)
    return float((moved - plain).norm()) > found.relative / 30 * float(plain.norm())


def noise(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return normal numbers of a tensor's shape, in float64."""
    return torch.randn(value.shape, dtype=torch.float64, generator=generator).to(value.device)


def gradient_of(call: Call, leaf: int) -> Tensor:
    """Return the gradient of a leaf for fixed random gradients."""
    run = call.forward()
    return flat([run.backward(run.random_grads())[leaf]])
