"""Backward leaves autograd and does not say so."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second, describe_wrong_seconds
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import trace
from pullback.verify.tracing.kept import find_leaving


class LeavesAutograd(Probe):
    """A backward that autograd cannot follow says so: `@once_differentiable`.

    ## Why
    A tensor that goes through NumPy, `.item()`, `.data`, `detach()`, `no_grad()` or the author's
    own kernel comes back without a history. With `create_graph=True`, for a gradient penalty for
    instance, the derivative is then zero or incomplete, and nothing warns of it.

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
            return torch.from_numpy(2 * grad.detach().numpy() * x.detach().numpy())


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
    A backward whose result is constant: its derivative really is zero.
    """

    code = "PB568"
    name = "backward-leaves-autograd"
    help = (
        "mark backward @once_differentiable, so that a second derivative raises instead of being "
        "wrong; or write it in operations of PyTorch"
    )
    about = frozenset({"second"})
    explains = frozenset({"second", "tangent"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for gradients without a graph, and for the line where it is lost."""
        found = compare_second(call)
        if not found.lost:
            return
        place = leaving_place(call)
        cut = [lost for lost in found.lost if lost.cut]
        if not cut and place is None:
            return
        names = ", ".join(f"`{call.leaves[lost.leaf].name}`" for lost in (cut or found.lost))
        effect = "has no graph, its derivative is None" if cut else "loses a part of its derivative"
        yield self.breach(
            f"{call.target.name}: backward leaves autograd without @once_differentiable: the "
            f"gradient of {names} {effect}, so second derivatives are silently wrong",
            where=place,
            **describe_wrong_seconds(found),
        )


def leaving_place(call: Call) -> SourcePlace | None:
    """Return the first line of the backwards that leaves autograd."""
    for node in trace(call).nodes:
        backward = node.parts.get("backward")
        if backward is not None and (place := find_leaving(Text(backward))):
            return place
    return None
