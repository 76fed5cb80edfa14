"""What backward does, tried out once for each kind of call: is it linear, is it what is watched?

Forward mode is backward transposed, which takes a backward for linear in the gradient that arrives;
and a derivative of backward is that of a run which PyTorch watches. An author's code need not be
either: it may clip, or catch what autograd raises inside a transform and go on without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from pullback.bind.cut import as_list
from pullback.bind.example.trial import seeded
from pullback.bind.functions.adopted import Adopted
from pullback.bind.functions.carried import Pull
from pullback.bind.functions.context import Context, State, with_tensors
from pullback.bind.kernel import described, remember
from pullback.bind.levels import asks, unwrapped
from pullback.define.derivative import NoForwardMode
from pullback.diagnostic import PullbackError, Rule

Tensors = Sequence[Tensor]
Run = Callable[[Sequence[Tensor | None]], Tensors]

# Powers of two round nothing. A limit may be far from the gradients of any one loss.
FACTORS = (-1.0, 2.0**30, 2.0**-10)
FACTORS_OF_HALF = (-1.0, 2.0**4, 2.0**-4)  # of numbers up to 65504
ALLOWED = 1e-3  # of the largest element: a solver stops at some error
LOST = 0.5  # the same of what is made smaller, where that error is nearer
ROUNDINGS = 16  # by which sums may differ in a dtype of few digits


class Tried:
    """What was found out of one Function's backward, by the kind of its call."""

    def __init__(self, adopted: Adopted) -> None:
        self.adopted = adopted
        self.known: dict[object, bool] = {}

    def require_linear(self, kind: object, run: Run, outputs: Sequence[Tensor | None]) -> None:
        """Stop at a backward that is not linear in the gradients of these outputs.

        Args:
            kind: of the call.
            run: backward, of gradients.
            outputs: of the call, None for one that has no gradient.
        """
        if ("linear", kind) in self.known:
            return
        with _disable_current_modes():  # a tracer would take it for a part of the program
            size = self.linear_at(run, outputs)
        if size:  # zeros tell nothing
            remember(self.known, ("linear", kind), True)

    def linear_at(self, run: Run, outputs: Sequence[Tensor | None]) -> float:
        """Return the size of an ordinary gradient; stop if it does not grow and add up."""
        first, second = (waves(outputs, start) for start in (1, 2))
        base = seeded_run(lambda: run(first))
        half = any(t is not None and t.dtype.itemsize == 2 for t in (*base, *outputs))
        for factor in (0.0, *(FACTORS_OF_HALF if half else FACTORS)):
            found = attempt(run, multiplied(first, factor))
            right = multiplied(base, factor)
            allowed = LOST if 0 < factor < 1 else ALLOWED
            if found and unlike(found, right, allowed, beside=base if factor == 0 else right):
                raise self.not_linear(
                    f"{factor:.3g} × grad gives {largest(found) / (largest(base) or 1):.3g} × the "
                    "gradient of its input, in size"
                )
        other, found = attempt(run, second), attempt(run, summed(first, second))
        if other and found and unlike(found, right := summed(base, other), ALLOWED, beside=right):
            raise self.not_linear("the gradient of its input for g + h is not the sum of those")
        return largest(base)

    def not_linear(self, evidence: str) -> PullbackError:
        """Return the error for a backward that cannot be transposed."""
        return NoForwardMode.error(
            f"forward mode is backward transposed, and {self.adopted.backward_of} is not linear in "
            f"the gradient that arrives: {evidence}",
            help=f"something clips, rounds or normalizes it: give {self.adopted.function.__name__} "
            "a jvp; or do that in a hook of the tensor",
        )

    def require_same(
        self, kind: object, watched: Callable[[], Tensors], plain: Callable[[], Tensors], rule: Rule
    ) -> None:
        """Stop at a backward that gives something else while PyTorch watches it.

        Args:
            kind: of the call.
            watched: runs it so that it can be differentiated.
            plain: runs it as it is.
            rule: of what asks for it.
        """
        if (rule.code, kind) in self.known:
            return
        with _disable_current_modes():
            seen, right = seeded_run(watched), seeded_run(plain)
            other = unlike(seen, right, ALLOWED, beside=right)
        if other:
            raise rule.error(
                f"{self.adopted.backward_of} gives other gradients where PyTorch has to look into "
                "it, so it cannot be differentiated: it computes a gradient itself and goes on "
                "where that raises, or asks whether a tensor requires one",
                help="compute in PyTorch on the tensors themselves; for forward mode, give a jvp",
            )
        remember(self.known, (rule.code, kind), True)

    def is_watchable(self, ctx: Context, plain: Context, grads: Sequence[Tensor | None]) -> bool:
        """Return whether backward gives the same on tensors that are connected to the inputs.

        Args:
            ctx: with such tensors.
            plain: as PyTorch itself gives it.
            grads: that arrive.
        """
        tensors = [*ctx.saved_tensors, *grads]
        watched = (tensor is not None and tensor.requires_grad for tensor in tensors)
        kind = ("watchable", *map(described, tensors), *watched, *scalars_in(vars(ctx)))
        if kind not in self.known:
            seen = attempt(lambda given: self.alone(ctx, given), grads)
            with torch.no_grad():
                right = attempt(lambda given: self.alone(plain, given), grads)
            same = seen is not None and right is not None and agree(seen, right)
            remember(self.known, kind, same)
        return self.known[kind]

    def alone(self, ctx: Context, grads: Sequence[Tensor | None]) -> list[Any]:
        """Run backward on tensors like these, so that nothing arrives at what they depend on."""
        own = [None if grad is None else stand_in(grad) for grad in grads]
        return as_list(self.adopted.pull(with_tensors(ctx, stand_in), *own))


def stand_in(tensor: Tensor) -> Tensor:
    """Return a tensor of the same values, a leaf or not, that requires a gradient or not."""
    if not tensor.requires_grad:
        return tensor.detach()
    own = asks(tensor)
    return own if tensor.is_leaf else own.view_as(own)


def agree(found: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether a backward gave what it should, None for what it has no gradient for."""
    pairs = [p for p in zip(found, right, strict=False) if p != (None, None)]
    if any(not isinstance(t, Tensor) for pair in pairs for t in pair):
        return False
    if len(found) != len(right) or any(a.shape != b.shape for a, b in pairs):
        return False
    found, right = [a for a, _ in pairs], [b for _, b in pairs]
    return not unlike(found, right, ALLOWED, beside=right)


def kind_of(state: State, pull: Pull) -> object:
    """Return all that backward may branch on without a look at a tensor's values."""
    return (*map(described, pull.flat()), *pull.needs, *scalars_in(state.attributes))


def scalars_in(attributes: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return those of a ctx's attributes that are numbers, strings or None."""
    return [(k, v) for k, v in attributes.items() if v is None or isinstance(v, int | float | str)]


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
