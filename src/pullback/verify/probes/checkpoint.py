"""A checkpoint changes the gradients."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import (
    changes_inputs,
    describe_difference,
    ordinary_result,
    result_of,
)
from pullback.verify.composition.recompute import run_recomputing
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class Checkpoint(Probe):
    """Forward may run twice: under `torch.utils.checkpoint` the gradients are the same.

    ## Why
    A checkpoint throws away what forward saved and runs it again for the backward. A forward that
    counts its calls, that saves other tensors the second time, or a backward that reads what the
    first forward left elsewhere, gives other gradients or raises.

    ## Fails
    ```python
    class Alternating(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Alternating.calls += 1
            ctx.save_for_backward(*([x] if Alternating.calls % 2 else [x, x]))
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad
    ```

    ## Cannot see
    The checkpoint with use_reentrant=True, which has rules of its own.
    """

    code = "PB577"
    name = "checkpoint"
    help = "let forward depend on its arguments alone, and read ctx.saved_tensors once in backward"
    about = frozenset({"checkpoint"})
    explains = frozenset({"checkpoint"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare with the call under a checkpoint."""
        wanted = ordinary_result(call)
        if changes_inputs(call):
            raise NotApplicable("forward writes into its inputs, which a checkpoint gives it twice")
        try:
            found = result_of(run_recomputing(call))
            call.forward()
            again = result_of(run_recomputing(call))  # after an odd number of calls as well
        except Exception as error:
            yield self.breach(
                f"{call.target.name}: fails under torch.utils.checkpoint(use_reentrant=False)",
                where=place_of_error(error),
                raised=f"{type(error).__name__}: {shorten(str(error))}",
            )
            return
        if difference := describe_difference(call, found, wanted) or describe_difference(
            call, again, wanted
        ):
            yield self.breach(
                f"{call.target.name}: torch.utils.checkpoint changes the results",
                difference=difference,
            )
