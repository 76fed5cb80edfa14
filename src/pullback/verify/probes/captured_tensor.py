"""A trainable tensor that forward takes from outside its arguments."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import require_own
from pullback.verify.probe import Probe
from pullback.verify.tracing.captured import Read, find_captured


class CapturedTensor(Probe):
    """Every tensor that forward reads and that should be trained is an argument.

    ## Why
    Autograd knows only the arguments of `apply`. A weight from a closure, from `self` or from
    the surrounding module never gets a gradient, and nothing says so.

    ## Fails
    ```python
    weight = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))


    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * weight

        @staticmethod
        def backward(ctx, grad):
            return grad * weight


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class ScaleBy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, (grad * x).sum(0)


    inputs = (*inputs, weight)
    ```

    ## Cannot see
    A tensor that only a C++ extension reads and that no closure, global or object holds.
    """

    code = "PB509"
    name = "captured-tensor"
    needs = "forward"
    # It stays on its device when the inputs move to another one.
    explains = frozenset({"traced", "transform", "second"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Find the tensors that are read, matter, require a gradient, and get none."""
        require_own(call)
        for read in find_captured(call):
            name = read.name or named_in(read) or "a tensor"
            yield self.breach(
                f"{call.target.name}: {name} is read inside forward and requires a gradient, but "
                f"is not an argument: it will never get a gradient",
                where=read.place,
                help=f"pass {name} as an argument of its own and return its gradient",
                tensor=f"{read.tensor.dtype} {tuple(read.tensor.shape)}",
                shown_by="forward gives other values where it is changed, and no gradient arrives",
            )


def named_in(read: Read) -> str | None:
    """Return the text of the line that reads a tensor whose name is not known."""
    return f"a tensor in `{read.place.text}`" if read.place and read.place.text else None
