"""Backward raises for an input that forward took, because of its strides."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.strides import try_inputs
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class InputLayoutFails(Probe):
    """Backward works for every layout of the inputs that forward takes.

    ## Why
    A transposed matrix or a slice of a batch is an ordinary input. A forward may refuse it with an
    error; a backward that fails later leaves its user with a half-done training step.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return (2 * grad.reshape(-1) * x.view(-1)).reshape(x.shape)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareReshaped(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad * x
    ```

    ## Cannot see
    Strides that are not tried, such as those of overlapping windows.
    """

    code = "PB537"
    name = "input-layout-fails-in-backward"
    help = "use reshape instead of view, or save x.contiguous(); or refuse the layout in forward"
    about = frozenset({"input layout"})
    explains = frozenset({"input layout", "transform", "checkpoint"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Give inputs of other strides and equal values."""
        failed = [trial for trial in try_inputs(call) if trial.error is not None]
        if not failed:
            return
        first = failed[0]
        assert first.error is not None
        names = list(dict.fromkeys(trial.layout.name for trial in failed))
        yield self.breach(
            f"{call.target.name}: forward takes a non-contiguous `{first.tensor}`, but backward "
            f"fails if it is {' or '.join(names)}",
            help=first.layout.cure,
            where=place_of_error(first.error),
            error=f"{type(first.error).__name__}: {shorten(str(first.error))}",
        )
