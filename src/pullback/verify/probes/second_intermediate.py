"""An intermediate result is saved for backward."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second, describe_wrong_seconds
from pullback.verify.probe import Probe
from pullback.verify.tracing.kept import find_constants


class IntermediateSaved(Probe):
    """Backward reads only inputs, outputs, and what it computes itself.

    ## Why
    Forward runs without autograd: a tensor that it computes and keeps has no history. The gradient
    is right, but a second derivative takes that tensor for a constant.

    ## Fails
    ```python
    class Gauss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            e = (-x * x).exp()
            ctx.save_for_backward(x, e)
            return 3 * e

        @staticmethod
        def backward(ctx, grad):
            x, e = ctx.saved_tensors
            return -6 * grad * x * e


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class GaussOfOutput(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = 3 * (-x * x).exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return -2 * grad * x * y
    ```

    ## Cannot see
    An intermediate that does not depend on the inputs smoothly, such as a mask: nothing is lost.
    """

    code = "PB566"
    name = "intermediate-saved"
    help = (
        "return it as an output too, recompute it in backward from what is saved, "
        "or mark backward @once_differentiable"
    )
    about = frozenset({"second"})
    explains = frozenset({"second", "tangent"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Where second derivatives are wrong, replace kept tensors by ones that have a gradient."""
        found = compare_second(call)
        if not found.lost:
            return
        own = [kept for kept in find_constants(found) if kept.what == "intermediate"]
        if own:
            names = " and ".join(f"`{kept.name}`" for kept in own)
            yield self.breach(
                f"{call.target.name}: second derivatives are wrong: {names}, saved for backward, "
                f"{'is' if len(own) == 1 else 'are'} neither input nor output but an intermediate "
                "result, a constant to autograd",
                where=own[0].place,
                **describe_wrong_seconds(found),
            )
