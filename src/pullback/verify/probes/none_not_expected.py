"""Backward is called with None for an output that nobody uses."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import require_own
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.trace import trace


class NoneNotExpected(Probe):
    """Backward works where only some of the outputs are used.

    ## Why
    With `ctx.set_materialize_grads(False)`, the gradient of an output that nobody uses arrives as
    None, not as zeros.

    ## Fails
    ```python
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class BothOrOne(Both):
        @staticmethod
        def backward(ctx, a, b):
            total = 0
            if a is not None:
                total = total + a * 2
            if b is not None:
                total = total + b * 3
            return total
    ```

    ## Cannot see
    Combinations of more than one output.
    """

    code = "PB516"
    name = "none-not-expected"
    about = frozenset({"backward"})
    explains = frozenset({"backward"})
    help = "test each gradient for None, or leave out ctx.set_materialize_grads(False)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send a gradient to each output alone."""
        require_own(call)
        run = call.forward()
        outputs = run.differentiable
        if len(outputs) < 2:
            raise NotApplicable("one differentiable output")
        grads = run.random_grads()
        for used in outputs:
            alone = [grad if i == used else None for i, grad in enumerate(grads)]
            found = trace(call, grads=alone)
            error = found.backward_error
            arrived = [node.arrived[-1] for node in found.nodes if node.arrived]
            if error is None or not any(grad is None for own in arrived for grad in own):
                continue
            others = ", ".join(str(i) for i in outputs if i != used)
            text = " ".join(str(error).split())
            yield self.breach(
                f"{call.target.name}: if only output {used} is used, backward gets None for "
                f"output {others} and fails",
                where=place_of_error(error),
                raised=f"{type(error).__name__}: {text[:300]}",
            )
            return
