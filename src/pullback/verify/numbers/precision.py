"""Gradients in a lower precision compared with those in float64 at the same numbers.

The effect of rounding is measured, not assumed: the float64 gradient is taken again with the
inputs, the gradient that arrives and every saved tensor changed by the lower dtype's rounding, and
again with the result rounded. A kernel also rounds in between, so a multiple of that is allowed,
and never less than half of the dtype's digits: sums in another order may cost them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from pullback.verify.call import Call, Run, cast_precision
from pullback.verify.numbers.gradient import compare_gradients
from pullback.verify.numbers.numeric import flatten
from pullback.verify.probe import NotApplicable
from pullback.verify.randomness import make_generator

MULTIPLE = 30.0
LOWER = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The error of a gradient in lower precision.

    Attributes:
        leaf: which input.
        dtype: the lower one.
        own: the gradient in it, as float64.
        right: the gradient in float64.
        allowed: by how much each element may be off.
    """

    leaf: int
    dtype: torch.dtype
    own: Tensor
    right: Tensor
    allowed: float

    @property
    def wrong(self) -> Tensor:
        """The elements that are off by more than is allowed."""
        size = self.right.abs().maximum(self.right.square().mean().sqrt())
        return ~((self.own - self.right).abs() <= self.allowed * size)

    @property
    def relative(self) -> float:
        """The error of the whole gradient relative to its size."""
        return float((self.own - self.right).norm() / self.right.norm().clamp_min(1e-300))

    @property
    def factor(self) -> float | None:
        """The factor, if the gradient is a multiple of the right one."""
        c = float(self.own @ self.right / self.right.square().sum().clamp_min(1e-300))
        off = float((self.own - c * self.right).norm() / self.right.norm().clamp_min(1e-300))
        return c if off <= self.allowed / 3 and abs(c - 1) > self.allowed else None


def is_lost(loss: Loss) -> bool:
    """Tell whether many elements are wrong: a few may be on the other side of a kink or a tie."""
    return loss.allowed < 0.5 and bool(loss.wrong.double().mean() > 0.25)


def right_in_float64(call: Call) -> Call:
    """Return the call in float64, with which lower precisions are compared.

    Raises:
        NotApplicable: it is wrong itself, or there is none.
    """
    double = call.double
    if double is None:
        raise NotApplicable("forward does not compute in float64")
    if compare_gradients(call).mismatches:
        raise NotApplicable("the float64 gradient is wrong itself")
    return double


def measure_losses(
    call: Call, dtype: torch.dtype, *, seed: int = 0, positive: bool = False
) -> list[Loss] | None:
    """Return the errors of a call's gradients in a dtype; None if they cannot be compared.

    Args:
        call: it computes in float64.
        dtype: a lower one.
        seed: of the gradient that arrives.
        positive: make all its elements, and those of the inputs, positive: nothing cancels.
    """
    values = [cast_precision(leaf.value, dtype) for leaf in call.leaves]
    if positive:
        values = [v.abs() if v.is_floating_point() else v for v in values]
    wide = [cast_precision(v, torch.float64) for v in values]
    try:
        lower = call.with_values(values).forward()
        grads = [
            g.abs() if g is not None and positive and not g.is_complex() else g
            for g in lower.random_grads(seed)
        ]
        own = lower.backward(grads)
        exact = call.with_values(wide).forward()
    except Exception:  # it does not take the dtype
        return None
    right = right_of(exact, grads)
    if right is None or not is_same_function(lower, exact, dtype):
        return None
    moved = [right_of(run, g) for run, g in run_rounded(call, wide, grads, dtype)]
    sent = sum(
        float(flatten([g * o]).norm())
        for g, o in zip(grads, exact.outputs, strict=True)
        if g is not None
    )
    found = [
        loss_of(leaf, dtype, own[leaf], right[leaf], [m[leaf] for m in moved if m is not None])
        for leaf in call.wanted
        if is_clear(right[leaf], exact.leaves[leaf], sent, dtype)
    ]
    return [loss for loss in found if loss is not None]


def is_same_function(lower: Run, exact: Run, dtype: torch.dtype) -> bool:
    """Tell whether forward computes in the dtype, and the same as in float64."""
    own = (dtype, dtype.to_complex())
    return all(lower.outputs[i].dtype in own for i in lower.differentiable) and all(
        bool(flatten([a]).isfinite().all()) and close(a, b, dtype)
        for a, b in zip(lower.outputs, exact.outputs, strict=True)
    )


def is_clear(right: Tensor | None, value: Tensor, sent: float, dtype: torch.dtype) -> bool:
    """Tell whether a gradient is more than rounding, and fits the dtype."""
    if right is None or not flatten([right]).isfinite().all() or not right.numel():
        return False
    # A gradient that cancels except for rounding, as that of x/|x|, is not compared.
    effect, info = float(flatten([right * value]).norm()), torch.finfo(dtype)
    size = float(flatten([right]).abs().max())
    return effect > 64 * info.eps * sent and 64 * info.smallest_normal < size < info.max / 16


def loss_of(
    leaf: int,
    dtype: torch.dtype,
    own: Tensor | None,
    right: Tensor | None,
    moved: Sequence[Tensor | None],
) -> Loss | None:
    """Return the error of one gradient."""
    if own is None or right is None:
        return None
    eps = torch.finfo(dtype).eps
    allowed = max(
        MULTIPLE * max([eps, *(relative_difference(right, other) for other in moved)]),
        2 * math.sqrt(eps),
    )
    return Loss(leaf=leaf, dtype=dtype, own=flatten([own]), right=flatten([right]), allowed=allowed)


def right_of(run: Run, grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...] | None:
    """Return the gradients in float64; None if there are none."""
    try:
        wide = [None if g is None else cast_precision(g, torch.float64) for g in grads]
        return run.backward(wide)
    except Exception:
        return None


def run_rounded(
    call: Call, wide: Sequence[Tensor], grads: Sequence[Tensor | None], dtype: torch.dtype
) -> list[tuple[Run, Sequence[Tensor | None]]]:
    """Return forwards with inputs off by half a spacing, and with saved tensors rounded."""
    eps = torch.finfo(dtype).eps
    generator = make_generator(17)

    def off(value: Tensor) -> Tensor:
        drawn = torch.rand(value.shape, dtype=torch.float64, generator=generator)
        return value * (1 + eps * (drawn.to(value.device) - 0.5))

    moved = call.with_values(
        [off(v) if v.is_floating_point() or v.is_complex() else v for v in wide]
    )
    found: list[tuple[Run, Sequence[Tensor | None]]] = []
    try:
        found.append(
            (
                moved.forward(),
                [None if g is None else off(cast_precision(g, torch.float64)) for g in grads],
            )
        )
        with saved_tensors_hooks(
            lambda t: cast_precision(t, dtype), lambda t: cast_precision(t, torch.float64)
        ):
            found.append((call.with_values(list(wide)).forward(), grads))
    except Exception:
        return found
    return found


def relative_difference(gradient: Tensor, other: Tensor | None) -> float:
    """Return the difference of two gradients relative to their size."""
    if other is None or not flatten([other]).isfinite().all():
        return math.inf
    a = flatten([gradient])
    return float((a - flatten([other])).norm() / a.norm().clamp_min(1e-300))


def close(a: Tensor, b: Tensor, dtype: torch.dtype) -> bool:
    """Tell whether an output is the same function in both dtypes, to half of the digits."""
    if a.shape != b.shape:
        return False
    one, other = flatten([a]), flatten([b])
    size = float(other.norm())
    return float((one - other).norm()) <= 4 * math.sqrt(torch.finfo(dtype).eps) * size
