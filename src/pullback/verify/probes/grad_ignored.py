"""Backward does not use the gradient that arrives."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call, is_same
from pullback.verify.invariance.answer import (
    backward_place,
    compute_answer,
    grad_name,
    scale_grads,
    steady_answer,
)
from pullback.verify.probe import Probe


class GradIgnored(Probe):
    """Backward multiplies by the gradient that arrives, even if that is 1 in tests.

    ## Why
    `loss.backward()` sends 1, so a loss whose backward forgets it looks right. A loss weight,
    a gradient scaler or an average over machines then has no effect on this gradient.

    ## Fails
    ```python
    class SumOfSquares(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SumOfSquaresScaled(SumOfSquares):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    A gradient of which only a part is used, such as its first element: the numeric probes find
    that.
    """

    code = "PB530"
    name = "grad-output-ignored"
    help = "multiply by the gradient that backward is given"
    explains = frozenset({"numbers", "values", "second", "transform", "tangent"})
    intentions = frozenset({"nonlinear_grad"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send another gradient: the result has to change as well."""
        base = steady_answer(call)
        others = [compute_answer(call, scale_grads(base.grads, factor)) for factor in (-2.0, 0.25)]
        names: list[str] = []
        for index, gradient in enumerate(base.gradients):
            own = [other.gradients[index] for other in others]
            if gradient is None or not gradient.any() or not gradient.isfinite().all():
                continue
            if all(other is not None and is_same(other, gradient) for other in own):
                names.append(f"`{call.leaves[index].name}`")
        if names:
            sent = [grad_name(call, i) for i, grad in enumerate(base.grads) if grad is not None]
            yield self.breach(
                f"{call.target.name}: `{'`, `'.join(sent)}` is never used in the gradient of "
                f"{', '.join(names)}: scaling the loss (loss weights, GradScaler, averaging over "
                "machines) does not scale this gradient",
                where=backward_place(call),
                seen="the same gradient for grad, -2 × grad and 0.25 × grad",
            )
