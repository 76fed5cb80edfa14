"""Second derivatives are wrong."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second, describe_wrong_seconds
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.trace import trace


class SecondWrong(Probe):
    """Differentiating backward gives the derivative of what backward computes.

    ## Why
    A backward is itself a function of the inputs and of the gradient that arrives. Where it calls
    another Function with a wrong backward, or writes around autograd, its own derivative is wrong:
    penalties on gradients, Hessians and meta-learning then train on wrong numbers.

    ## Fails
    ```python
    class Times2(torch.autograd.Function):
        @staticmethod
        def forward(ctx, grad, x):
            ctx.save_for_backward(grad, x)
            return 2 * grad * x

        @staticmethod
        def backward(ctx, grad):
            g, x = ctx.saved_tensors
            return 2 * grad * x, grad * g  # 2 is forgotten


    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return Times2.apply(grad, ctx.saved_tensors[0])


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareRight(Square):
        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]
    ```

    ## Cannot see
    Third derivatives.
    """

    code = "PB569"
    name = "second-derivative-wrong"
    help = "check the Functions that backward calls on their own; or mark it @once_differentiable"
    about = frozenset({"second"})
    explains = frozenset({"second", "tangent"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the derivative of backward with differences of it."""
        found = compare_second(call)
        if found.error is not None:
            raise NotApplicable("backward raises where it is differentiated")
        if not found.lost:
            return
        names = ", ".join(f"`{call.leaves[lost.leaf].name}`" for lost in found.lost)
        nodes = [node for node in trace(call).nodes if "backward" in node.parts]
        where = Text(nodes[-1].parts["backward"]).place if nodes else None
        yield self.breach(
            f"{call.target.name}: second derivatives are wrong: differentiating the gradient of "
            f"{names} does not give what differences of it give",
            where=where,
            **describe_wrong_seconds(found),
        )
