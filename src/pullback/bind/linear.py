"""Is a backward linear in the gradients that arrive? Tested once for each kind of call.

Forward mode is backward transposed, and only a linear function can be transposed. An author's code
may clip, round or normalize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from pullback.bind.concrete import metadata_of, unwrap_values
from pullback.bind.example.trial import seed_generators
from pullback.bind.levels import unwrap
from pullback.bind.memo import Memo
from pullback.define.derivative import NoForwardMode
from pullback.diagnostic import PullbackError

Tensors = Sequence[Tensor]
Run = Callable[[Sequence[Tensor | None]], Tensors]

# Powers of two do not round. They are far apart, as a clipping limit may be anywhere.
FACTORS = (-1.0, 2.0**30, 2.0**-10)
FACTORS_OF_HALF = (-1.0, 2.0**4, 2.0**-4)  # of numbers up to 65504
ALLOWED = 1e-3  # of the largest element: a solver leaves some error
LOST = 0.5  # the same for gradients that are scaled down, which are closer to that error
ROUNDINGS = 16  # that sums may differ by in a dtype of few digits

# The kinds of operators' calls that were found linear.
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
        kind: the definition, and all that backward may branch on except tensors.
        tensors: inputs of the call, then its outputs.
        arriving: for each output, whether a gradient of it arrives.
        run: backward, which takes inputs, outputs and gradients in this order.
    """
    key = (kind, *map(metadata_of, tensors))
    if key in _known:
        return
    # On tensors outside of all levels, so that their values can be read.
    with _disable_current_modes(), temporarily_clear_interpreter_stack(), torch.no_grad():
        given = [unwrap_values(tensor) for tensor in tensors]
        outputs = given[len(tensors) - len(arriving) :]
        asked = [o if a else None for o, a in zip(outputs, arriving, strict=True)]

        def gradients(grads: Sequence[Tensor | None]) -> Tensors:
            copies = (None if g is None else g.clone() for g in grads)  # it may write into them
            return [torch.zeros(()) if g is None else g for g in run(*given, *copies)]

        # If backward itself raises, so will the transposition.
        if attempt(gradients, make_waves(asked, 1)) is None:
            return
        size = require_linear(f"backward of {qualname}", qualname, gradients, asked)
    if size:  # zeros prove nothing
        _known[key] = True


def require_linear(of: str, name: str, run: Run, outputs: Sequence[Tensor | None]) -> float:
    """Stop at a backward that is not linear; return the size of the gradients that it gives.

    Args:
        of: what to call it in messages.
        name: of the operator that it belongs to.
        run: backward, which takes gradients.
        outputs: of the call, None for one that has no gradient.
    """
    first, second = (make_waves(outputs, start) for start in (1, 2))
    base = run_seeded(lambda: run(first))
    half = any(t is not None and t.dtype.itemsize == 2 for t in (*base, *outputs))
    for factor in (0.0, *(FACTORS_OF_HALF if half else FACTORS)):
        found = attempt(run, scale_tensors(first, factor))
        right = scale_tensors(base, factor)
        allowed = LOST if 0 < factor < 1 else ALLOWED
        if found and differ(found, right, allowed, beside=base if factor == 0 else right):
            raise not_linear(
                of,
                name,
                f"{factor:.3g} × grad gives {max_abs(found) / (max_abs(base) or 1):.3g} × the "
                "gradient of its input, in size",
            )
    other, found = attempt(run, second), attempt(run, add_gradients(first, second))
    if (
        other
        and found
        and differ(found, right := add_gradients(base, other), ALLOWED, beside=right)
    ):
        evidence = "the gradient of its input for g + h is not the sum of those"
        raise not_linear(of, name, evidence)
    return max_abs(base)


def not_linear(of: str, name: str, evidence: str) -> PullbackError:
    """Return the error for a backward that cannot be transposed."""
    return NoForwardMode.error(
        f"forward mode is backward transposed, and {of} is not linear in the gradient that "
        f"arrives: {evidence}",
        help=f"something clips, rounds or normalizes it: give {name} a jvp; or do that in a hook "
        "of the tensor",
    )


def make_waves(outputs: Sequence[Tensor | None], start: int) -> list[Tensor | None]:
    """Return gradients for outputs: numbers that all differ and are not random."""
    return [None if output is None else make_wave(output, start) for output in outputs]


def make_wave(output: Tensor, start: int) -> Tensor:
    """Return a gradient for an output."""
    places = torch.arange(output.numel(), dtype=torch.float64).view(output.shape)
    values = (start + 2.4 * places).sin()
    values = torch.complex(values, values.cos()) if output.is_complex() else values
    return values.to(output.device, output.dtype)


def scale_tensors(tensors: Sequence[Tensor | None], factor: float) -> list[Any]:
    """Return each tensor times a factor."""
    return [None if t is None else t * factor for t in tensors]


def add_gradients(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> list[Any]:
    """Return the sums of two lists of gradients."""
    pairs = zip(first, second, strict=True)
    return [None if a is None or b is None else a + b for a, b in pairs]


def run_seeded(run: Callable[[], Tensors]) -> Tensors:
    """Run backward, each time with the same random numbers."""
    with seed_generators(0):
        return run()


def attempt(run: Callable[[Sequence[Tensor | None]], Any], grads: Sequence[Tensor | None]) -> Any:  # noqa: ANN401
    """Run backward; return None if it raises."""
    try:
        return run_seeded(lambda: run(grads))
    except Exception:  # whatever its author's code raises at numbers of this size
        return None


def max_abs(tensors: Tensors) -> float:
    """Return the largest absolute value."""
    return max((max_abs_of(tensor) for tensor in tensors), default=0.0)


def max_abs_of(tensor: Tensor) -> float:
    """Return the largest absolute value of one tensor, 0 for an empty one."""
    value = unwrap(tensor.detach())
    return float(value.abs().max()) if value.numel() else 0.0


def differ(found: Tensors, right: Tensors, allowed: float, *, beside: Tensors) -> bool:
    """Return whether gradients differ by more than rounding, where all of them are finite.

    Args:
        found: gradients.
        right: what they should be.
        allowed: how far they may differ, as a part of the largest element of `beside`.
        beside: gradients of the usual size.
    """
    with torch.no_grad():
        for one, other, scale in zip(found, right, beside, strict=True):
            gap = max_abs_of(one.detach() - other.detach())
            digits = ROUNDINGS * torch.finfo(scale.dtype).eps
            if isfinite(gap) and gap > max(allowed, digits) * max_abs_of(scale):
                return True
    return False
