"""Backward gives other numbers for a gradient of other strides."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.strides import LayoutTrial, try_grads
from pullback.verify.probe import Probe

RAW = ("data_ptr", "as_strided", "numpy", "view", "untyped_storage", "storage", "set_")


class GradStridesIgnored(Probe):
    """Backward gives the same numbers for the same gradient, whatever its strides.

    ## Why
    A kernel that walks through memory from the first element on is right for a contiguous
    gradient only. After `y.t()`, `torch.cat` or a slice it reads other elements; after `y.sum()`,
    whose gradient is one number with strides of zero, it reads past the end.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            in_memory = grad.as_strided((grad.numel(),), (1,))
            return (2 * in_memory).view(grad.shape)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleContiguous(Double):
        @staticmethod
        def backward(ctx, grad):
            return Double.backward(ctx, grad.contiguous())
    ```

    ## Cannot see
    Strides that are not tried: overlapping windows, negative ones of other libraries.
    """

    code = "PB533"
    name = "grad-strides-ignored"
    help = "call grad = grad.contiguous() first, or give the kernel the strides"
    about = frozenset({"layout"})
    explains = frozenset({"layout", "second", "transform", "traced", "memory"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send gradients of other strides and equal values."""
        failed = [trial for trial in try_grads(call) if trial.error is None]
        if not failed:
            return
        first = failed[0]
        names = list(dict.fromkeys(trial.layout.name for trial in failed))
        yield self.breach(
            f"{call.target.name}: {first.of} is wrong if `{first.tensor}` is {' or '.join(names)}: "
            f"{reason(failed)}",
            help=first.layout.cure,
            where=backward_place(call, *RAW),
            seen=f"{first.layout.name}: {first.wrong}",
            sent_by=", ".join(dict.fromkeys(trial.layout.origin for trial in failed)),
        )


def reason(failed: list[LayoutTrial]) -> str:
    """Return what goes wrong."""
    expanded = any("stride 0" in trial.layout.name for trial in failed)
    past = "; y.sum().backward() sends a stride-0 gradient, and the kernel reads past its end"
    reads = "reads memory as if it were contiguous"
    if any(trial.in_order for trial in failed):
        return f"backward ignores its strides and {reads}{past if expanded else ''}"
    return f"the strides of the gradient are not taken into account{past if expanded else ''}"
