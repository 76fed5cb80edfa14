"""Second derivatives raise, and not clearly."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class SecondRaises(Probe):
    """A backward that cannot be differentiated says so.

    ## Why
    With `create_graph=True` autograd records backward: `numpy()` then raises, or a write into a
    tensor does. PyTorch's advice, to detach, would make second derivatives silently wrong.
    `@once_differentiable` raises a clear message, and only if a second derivative is needed.

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
            return torch.from_numpy(2 * grad.numpy() * x.numpy())


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareOnce(Square):
        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return torch.from_numpy(2 * grad.numpy() * x.detach().numpy())
    ```

    ## Cannot see
    Whether anybody needs second derivatives.
    """

    code = "PB666"
    name = "second-derivative-raises"
    level = "advice"
    help = "mark backward @once_differentiable: it then runs without a graph, and says what it is"
    about = frozenset({"second"})
    intentions = frozenset({"once_differentiable"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look at what differentiating backward raised."""
        error = compare_second(call).error
        if error is not None:
            yield self.breach(
                f"{call.target.name}: backward raises where it is to be differentiated again "
                "(create_graph=True)",
                where=place_of_error(error),
                raised=f"{type(error).__name__}: {shorten(str(error))}",
            )
