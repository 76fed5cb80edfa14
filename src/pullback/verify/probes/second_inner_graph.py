"""The graph of an inner autograd is kept on ctx."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second, describe_wrong_seconds
from pullback.verify.probe import Probe
from pullback.verify.tracing.kept import find_constants


class InnerGraphKept(Probe):
    """Backward differentiates the function in backward, not through a graph that forward made.

    ## Why
    A graph that forward makes on detached inputs and keeps on ctx does not lead to the inputs. The
    gradient is right, but it counts as a constant when it is differentiated again, and the graph
    keeps all its memory until ctx is freed.

    ## Fails
    ```python
    class Wave(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x.sin() * ctx.x
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            return torch.autograd.grad(ctx.y, ctx.x, grad, retain_graph=True)[0]


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class Recomputed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin() * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.sin() * x
                (result,) = torch.autograd.grad(y, x, grad, create_graph=True)
            return result
    ```

    ## Cannot see
    An inner graph of a function whose second derivative is zero.
    """

    code = "PB565"
    name = "inner-graph-kept"
    help = (
        "save the inputs and recompute in backward, under torch.enable_grad() and with "
        "create_graph=True; or mark backward @once_differentiable"
    )
    about = frozenset({"second"})
    explains = frozenset({"second", "tangent", "repeat"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for tensors with a graph on ctx where second derivatives are wrong."""
        found = compare_second(call)
        if not found.lost:
            return
        inner = [kept for kept in find_constants(found) if kept.inner]
        if inner:
            names = " and ".join(f"`{kept.name}`" for kept in inner)
            yield self.breach(
                f"{call.target.name}: second derivatives are wrong: an inner graph is kept on ctx "
                f"({names}), and it does not lead to the inputs",
                where=inner[0].place,
                **describe_wrong_seconds(found),
            )
