"""Whether an output depends smoothly on an input, by differences of forward."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.verify.call import Call, can_require_grad
from pullback.verify.numbers.gradient import parts_of, slope_along
from pullback.verify.numbers.numeric import Slope, draw_direction

# A derivative counts as nonzero if it is this many standard errors away from zero.
SURE = 32.0


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """A derivative that is not zero.

    Attributes:
        leaf: of which input.
        output: of which output.
        value: the largest derivative of an element along a random direction.
        error: its standard error.
    """

    leaf: int
    output: int
    value: float
    error: float


def dependences(call: Call, leaf: int, outputs: Sequence[int]) -> list[Dependence]:
    """Return the outputs that depend smoothly on a leaf, and by how much."""
    own = double_of(call)
    run = own.forward()
    chosen = [i for i in outputs if can_require_grad(run.outputs[i]) and run.outputs[i].numel()]
    if not chosen or not own.leaves[leaf].value.numel():
        return []
    v = draw_direction(own.leaves[leaf].value, 17 + leaf)
    parts = parts_of(slope_along(own, run, {leaf: v}, chosen), run, chosen)
    found = [strongest(leaf, output, part) for output, part in zip(chosen, parts, strict=True)]
    return [one for one in found if one is not None]


def strongest(leaf: int, output: int, part: Slope) -> Dependence | None:
    """Return the most certain derivative of an output, if one is certainly not zero."""
    sure = part.error.isfinite() & ~part.kink & (part.value.abs() > SURE * part.error)
    if not bool(sure.any()):
        return None
    size = torch.where(sure, part.value.abs(), 0.0)
    place = int(size.argmax())
    return Dependence(
        leaf=leaf,
        output=output,
        value=float(part.value[place]),
        error=float(part.error[place]),
    )


def double_of(call: Call) -> Call:
    """Return the call in float64 if it computes in that, even if no gradient can arrive."""
    with suppress(Exception):
        wide = call.to(torch.float64)
        outputs = wide.values([leaf.value for leaf in wide.leaves])
        real = [output for output in outputs if can_require_grad(output)]
        if real and all(is_wide(output) for output in real):
            return wide
    return call


def is_wide(tensor: Tensor) -> bool:
    """Tell whether a tensor is of the highest precision."""
    return tensor.dtype in (torch.float64, torch.complex128)
