"""Backward writes into what it saved."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.probe import Probe
from pullback.verify.source import Text
from pullback.verify.trace import trace


class SavedOverwritten(Probe):
    """Backward leaves the tensors it saved as it found them.

    ## Why
    A kernel's writes do not move a tensor's version counter, so autograd cannot notice.
    The first backward is right; a second one through the same graph is silently wrong.

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
            return x.data.mul_(2 * grad)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareKept(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return x * (2 * grad)
    ```

    ## Cannot see
    A write that leaves every value as it was.
    """

    code = "PB504"
    name = "saved-tensor-overwritten"
    help = "write the gradient to a new tensor, or save a clone"
    explains = frozenset({"repeat", "second", "numbers"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare every saved tensor after forward with the same one after backward."""
        for node in trace(call).nodes:
            for saved in node.saved:
                if count := saved.changed:
                    yield self.breach(
                        f"{node.function.__name__}: backward changes a tensor that it saved, "
                        f"{saved.what}",
                        where=Text(node.function.backward).mentions("data"),
                        tensor=f"{saved.before.dtype} {tuple(saved.before.shape)}",
                        changed=f"{count} of {saved.before.numel()} elements",
                    )
