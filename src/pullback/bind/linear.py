"""Is a backward linear in the gradients that arrive? Tried out, once for each kind of call.

Forward mode is backward transposed, which takes that for granted. An author's code need not be
linear: it may clip, round or normalize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from pullback.bind.concrete import plain, sized
from pullback.bind.example.trial import seeded
from pullback.bind.levels import unwrapped
from pullback.bind.memo import Memo
from pullback.define.derivative import NoForwardMode
from pullback.diagnostic import PullbackError

Tensors = Sequence[Tensor]
Run = Callable[[Sequence[Tensor | None]], Tensors]

# Powers of two round nothing. A limit may be far from the gradients of any one loss.
FACTORS = (-1.0, 2.0**30, 2.0**-10)
FACTORS_OF_HALF = (-1.0, 2.0**4, 2.0**-4)  # of numbers up to 65504
ALLOWED = 1e-3  # of the largest element: a solver stops at some error
LOST = 0.5  # the same of what is made smaller, where that error is nearer
ROUNDINGS = 16  # by which sums may differ in a dtype of few digits

# The kinds of operators' calls of which it is known.
_known: Memo[object, bool] = Memo()


def require_linear_of(
    qualname: str,
    kind: str,
    tensors: Sequence[Tensor | None],
    arriving: Sequence[bool],
    run: Callable[..., Sequence[Tensor | None]],
) -> None:
    """Stop at an operator's backward that is not linear; the C++ runtime asks in forward mode.

    Args:
        qualname: of the operator.
        kind: the definition, and all but tensors that backward may branch on.
        tensors: inputs of the call, then its outputs.
        arriving: for each output, whether a gradient of it arrives.
        run: backward, of inputs, outputs and gradients in this order.
    """
    key = (kind, *map(sized, tensors))
    if key in _known:
        return
    # On tensors of no level, so that their values are there to be looked at.
    with _disable_current_modes(), temporarily_clear_interpreter_stack(), torch.no_grad():
        given = [plain(tensor) for tensor in tensors]
        outputs = given[len(tensors) - len(arriving) :]
        asked = [o if a else None for o, a in zip(outputs, arriving, strict=True)]

        def gradients(grads: Sequence[Tensor | None]) -> Tensors:
            own = (None if g is None else g.clone() for g in grads)  # it may write into them
            return [torch.zeros(()) if g is None else g for g in run(*given, *own)]

        # What backward raises itself, the transposition raises as well.
        if attempt(gradients, waves(asked, 1)) is None:
            return
        size = require_linear(f"backward of {qualname}", qualname, gradients, asked)
    if size:  # zeros tell nothing
        _known[key] = True


def require_linear(of: str, name: str, run: Run, outputs: Sequence[Tensor | None]) -> float:
    """Stop at a backward whose result does not grow and add up; return the size of an ordinary one.

    Args:
        of: what to call it in messages.
        name: of what it belongs to.
        run: backward, of gradients.
        outputs: of the call, None for one that has no gradient.
    """
    first, second = (waves(outputs, start) for start in (1, 2))
    base = seeded_run(lambda: run(first))
    half = any(t is not None and t.dtype.itemsize == 2 for t in (*base, *outputs))
    for factor in (0.0, *(FACTORS_OF_HALF if half else FACTORS)):
        found = attempt(run, multiplied(first, factor))
        right = multiplied(base, factor)
        allowed = LOST if 0 < factor < 1 else ALLOWED
        if found and unlike(found, right, allowed, beside=base if factor == 0 else right):
            raise not_linear(
                of,
                name,
                f"{factor:.3g} × grad gives {largest(found) / (largest(base) or 1):.3g} × the "
                "gradient of its input, in size",
            )
    other, found = attempt(run, second), attempt(run, summed(first, second))
    if other and found and unlike(found, right := summed(base, other), ALLOWED, beside=right):
        evidence = "the gradient of its input for g + h is not the sum of those"
        raise not_linear(of, name, evidence)
    return largest(base)


def not_linear(of: str, name: str, evidence: str) -> PullbackError:
    """Return the error for a backward that cannot be transposed."""
    return NoForwardMode.error(
        f"forward mode is backward transposed, and {of} is not linear in the gradient that "
        f"arrives: {evidence}",
        help=f"something clips, rounds or normalizes it: give {name} a jvp; or do that in a hook "
        "of the tensor",
    )


def waves(outputs: Sequence[Tensor | None], start: int) -> list[Tensor | None]:
    """Return gradients for outputs: numbers that are all different, and are not drawn."""
    return [None if output is None else wave(output, start) for output in outputs]


def wave(output: Tensor, start: int) -> Tensor:
    """Return a gradient for an output."""
    places = torch.arange(output.numel(), dtype=torch.float64).view(output.shape)
    values = (start + 2.4 * places).sin()
    values = torch.complex(values, values.cos()) if output.is_complex() else values
    return values.to(output.device, output.dtype)


def multiplied(tensors: Sequence[Tensor | None], factor: float) -> list[Any]:
    """Return each tensor times a factor."""
    return [None if t is None else t * factor for t in tensors]


def summed(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> list[Any]:
    """Return the sums of two lists of gradients."""
    pairs = zip(first, second, strict=True)
    return [None if a is None or b is None else a + b for a, b in pairs]


def seeded_run(run: Callable[[], Tensors]) -> Tensors:
    """Run backward, each time with the same random numbers."""
    with seeded(0):
        return run()


def attempt(run: Callable[[Sequence[Tensor | None]], Any], grads: Sequence[Tensor | None]) -> Any:  # noqa: ANN401
    """Run backward; None if it takes no such gradients."""
    try:
        return seeded_run(lambda: run(grads))
    except Exception:  # whatever its author's code raises at numbers of this size
        return None


def largest(tensors: Tensors) -> float:
    """Return the largest absolute value."""
    return max((size_of(tensor) for tensor in tensors), default=0.0)


def size_of(tensor: Tensor) -> float:
    """Return the largest absolute value of one tensor, 0 for an empty one."""
    value = unwrapped(tensor.detach())
    return float(value.abs().max()) if value.numel() else 0.0


def unlike(found: Tensors, right: Tensors, allowed: float, *, beside: Tensors) -> bool:
    """Return whether gradients differ by more than rounding, where all of them are finite.

    Args:
        found: gradients.
        right: what they should be.
        allowed: by which part of the largest element of `beside` they may differ.
        beside: the like of both.
    """
    with torch.no_grad():
        for one, other, scale in zip(found, right, beside, strict=True):
            gap = size_of(one.detach() - other.detach())
            digits = ROUNDINGS * torch.finfo(scale.dtype).eps
            if isfinite(gap) and gap > max(allowed, digits) * size_of(scale):
                return True
    return False
