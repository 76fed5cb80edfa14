"""Backward is not linear in the gradient that arrives."""

from collections.abc import Iterator
from math import inf

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.agreement import describe_differing, find_differing, rounding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import (
    Answer,
    backward_place,
    compute_answer,
    max_finite,
    scale_grads,
    steady_answer,
)
from pullback.verify.probe import NotApplicable, Probe

# Powers of two: multiplying by them rounds nothing, so a linear backward follows bit by bit.
FACTORS = (-1.0, 2.0**30, 2.0**-10)
FACTORS_OF_HALF = (-1.0, 2.0**4, 2.0**-4)


class Nonlinear(Probe):
    """Backward is linear in the gradient that arrives: a derivative is.

    ## Why
    An operator that clips, rounds or normalizes gradients changes the direction of the whole step,
    and differently for each scale of the loss. Gradients of size 1, as in tests, often do not show
    it.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return (2 * grad).clamp(-10, 10)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleUnclipped(Double):
        @staticmethod
        def backward(ctx, grad):
            return 2 * grad
    ```

    ## Cannot see
    A limit above a billion times ordinary gradients.
    """

    code = "PB531"
    name = "nonlinear-in-grad"
    help = "if it is meant, declare it: clipping=True or nonlinear_grad=True"
    about = frozenset({"random", "numbers"})
    explains = frozenset({"numbers", "values", "second", "transform"})
    intentions = frozenset({"nonlinear_grad", "clipping"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare vjp(a·g) with a·vjp(g), then vjp(g + h) with vjp(g) + vjp(h)."""
        finding = self.found(call)
        # A backward that is linear in float64 loses digits in a lower precision: still linear.
        if finding is not None and (call.double is None or self.found(call.double)):
            yield finding

    def found(self, call: Call) -> Finding | None:
        """Return the first way in which the gradient is not linear."""
        base = steady_answer(call)
        if any(g is not None and not g.isfinite().all() for g in base.gradients):
            raise NotApplicable("the ordinary gradient is not finite")
        return self.offset(call, base) or self.scales(call, base) or self.sums(call, base)

    def offset(self, call: Call, base: Answer) -> Finding | None:
        """Send zeros, which have to give zeros."""
        zero = compute_answer(call, scale_grads(base.grads, 0.0))
        for index, gradient in enumerate(zero.gradients):
            size, ordinary = max_finite(gradient), max_finite(base.gradients[index])
            # An iterative solver for the gradient leaves a small rest where the result should be 0.
            if gradient is None or base.floors[index] >= size:
                continue
            if rounding(gradient.dtype) ** 0.25 * ordinary < size < inf:
                return self.breach(
                    f"{call.target.name}: a zero gradient gives `{call.leaves[index].name}` a "
                    f"gradient of up to {size:.3g}: backward is not linear in grad_output, it adds "
                    "something that does not depend on it",
                    where=backward_place(call),
                )
        return None

    def scales(self, call: Call, base: Answer) -> Finding | None:
        """Send multiples."""
        for factor in FACTORS_OF_HALF if of_half_range(base) else FACTORS:
            other = compute_answer(call, scale_grads(base.grads, factor))
            for index, gradient in enumerate(other.gradients):
                right = base.gradients[index]
                right = None if right is None else right * factor
                if not is_fair(gradient, right):
                    continue
                where = find_differing(gradient, right, floor=abs(factor) * base.floors[index])
                # An iterative solver that stops at some absolute error is nearly linear.
                if where is None or (abs(factor) < 1 and not is_lost(gradient, right)):
                    continue
                ratio = max_finite(gradient) / (max_finite(base.gradients[index]) or 1.0)
                return self.breach(
                    f"{call.target.name}: backward is not linear in grad_output: "
                    f"{factor:.3g} × grad gives {ratio:.3g} × the gradient of "
                    f"`{call.leaves[index].name}` (in size): something clips, rounds or "
                    "normalizes it",
                    where=backward_place(call, "clamp", "clamp_", "clip", "clip_", "round", "sign"),
                    wrong=describe_differing(where, gradient, right),
                )
        return None

    def sums(self, call: Call, base: Answer) -> Finding | None:
        """Send a sum of two gradients."""
        sent = [grad for grad in base.grads if grad is not None]
        if max(rounding(grad.dtype) for grad in sent) > 1e-4:
            return None  # in half precision, rounding changes the sum
        second = compute_answer(call, other_grads(base))
        both = compute_answer(
            call,
            [
                None if a is None or b is None else a + b
                for a, b in zip(base.grads, second.grads, strict=True)
            ],
        )
        for index, (a, b, found) in enumerate(
            zip(base.gradients, second.gradients, both.gradients, strict=True)
        ):
            right = a if b is None else b if a is None else a + b
            where = find_differing(found, right, floor=both.floors[index])
            if is_fair(found, right) and where is not None:
                return self.breach(
                    f"{call.target.name}: backward is not linear in grad_output: the gradient of "
                    f"`{call.leaves[index].name}` for g + h is not the sum of those for g and h",
                    where=backward_place(call),
                    wrong=describe_differing(where, found, right),
                )
        return None


def other_grads(base: Answer) -> list[Tensor | None]:
    """Return other Gaussian gradients: the given ones, in another order."""
    return [
        None if grad is None else grad.flatten().roll(1).view(grad.shape) - 0.5 * grad
        for grad in base.grads
    ]


def of_half_range(base: Answer) -> bool:
    """Tell whether one of the tensors has a dtype with numbers up to 65504 only."""
    every = [*base.outputs, *(g for g in base.gradients if g is not None)]
    return any(t.is_floating_point() and t.dtype.itemsize == 2 for t in every)


def is_fair(found: Tensor | None, right: Tensor | None) -> bool:
    """Tell whether a comparison makes sense: nothing ran out of range."""
    every = [t for t in (found, right) if t is not None]
    return all(bool(t.isfinite().all()) for t in every)


def is_lost(found: Tensor | None, right: Tensor | None) -> bool:
    """Tell whether half of the largest element of a gradient is missing."""
    if right is None:
        return False
    at = right.abs().flatten().argmax()
    own = 0.0 if found is None else found.flatten()[at]
    return bool(abs(right.flatten()[at] - own) > 0.5 * right.flatten()[at].abs())
