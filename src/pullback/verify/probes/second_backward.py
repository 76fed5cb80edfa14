"""A second backward through one graph is not like the first."""

from collections.abc import Iterator

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.agreement import described, first_differing
from pullback.verify.answer import backward_place, scaled, steady
from pullback.verify.call import Call
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shortened


class SecondBackward(Probe):
    """A graph that is kept can be gone through again, with the same result.

    ## Why
    `retain_graph=True` is what two losses on one output, Jacobians and gradient penalties need.
    What backward frees, overwrites or counts is not there any more, or another, the second time.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.factors = [2.0, 1.0]
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            ctx.factors.reverse()
            return ctx.factors[1] * x * grad


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareAgain(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return ctx.factors[0] * x * grad
    ```

    ## Cannot see
    What goes wrong from the fourth backward on.
    """

    code = "PB539"
    name = "second-backward-differs"
    help = "backward only reads what it finds on ctx, in saved tensors and on the class"
    about = frozenset({"repeat", "random"})
    explains = frozenset({"repeat", "second", "transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Go back with one gradient, with another, and with the first again."""
        base = steady(call)
        run = call.forward()
        first = run.backward(base.grads)
        kept = [None if gradient is None else gradient.detach().clone() for gradient in first]
        try:
            run.backward(scaled(base.grads, -0.5))
            third = run.backward(base.grads)
        except Exception as error:
            yield self.breach(
                f"{call.target.name}: a second backward (retain_graph=True) raises",
                where=place_of_error(error) or backward_place(call),
                error=f"{type(error).__name__}: {shortened(str(error))}",
            )
            return
        yield from self.changed(call, "a second backward gives another gradient of", third, kept)
        yield from self.changed(
            call, "a second backward writes into what the first returned, the gradient of",
            first, kept,
        )  # fmt: skip

    def changed(
        self,
        call: Call,
        what: str,
        found: tuple[Tensor | None, ...],
        right: list[Tensor | None],
    ) -> Iterator[Finding]:
        """Yield a finding if gradients differ."""
        if (wrong := first_differing(found, right)) is not None:
            index, where = wrong
            yield self.breach(
                f"{call.target.name}: {what} `{call.leaves[index].name}`, for the same grad",
                where=backward_place(call),
                wrong=described(where, found[index], right[index]),
            )
