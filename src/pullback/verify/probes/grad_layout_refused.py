"""Backward raises for a gradient that is not contiguous."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.strides import try_grads
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class GradLayoutRefused(Probe):
    """Backward takes a gradient of any strides.

    ## Why
    The strides of a gradient are chosen by the operators behind. `y.sum()` sends one with strides
    of zero, `y.t()` a transposed one, `torch.cat` a slice. `view` works on none of them.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return (2 * grad.view(-1)).view(grad.shape)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleReshaped(Double):
        @staticmethod
        def backward(ctx, grad):
            return (2 * grad.reshape(-1)).view(grad.shape)
    ```

    ## Cannot see
    Strides that are not tried: overlapping windows, negative ones of other libraries.
    """

    code = "PB532"
    name = "grad-layout-refused"
    help = "use grad.reshape(...) instead of view, or grad = grad.contiguous() first"
    about = frozenset({"layout"})
    explains = frozenset({"layout", "second", "transform", "traced"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send gradients of other strides and equal values."""
        failed = [trial for trial in try_grads(call) if trial.error is not None]
        if not failed:
            return
        first = failed[0]
        assert first.error is not None
        names = list(dict.fromkeys(trial.layout.name for trial in failed))
        yield self.breach(
            f"{call.target.name}: backward fails for a non-contiguous gradient: it raises if "
            f"`{first.tensor}` is {' or '.join(names)}, as it is after "
            f"{' or '.join(dict.fromkeys(trial.layout.origin for trial in failed))}",
            help=first.layout.cure,
            where=place_of_error(first.error) or backward_place(call, "view"),
            error=f"{type(first.error).__name__}: {shorten(str(first.error))}",
        )
