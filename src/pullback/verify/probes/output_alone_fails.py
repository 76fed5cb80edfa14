"""Backward raises if only some of the outputs are used."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.answer import answer, backward_place, steady
from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shortened
from pullback.verify.trace import trace


class OutputAloneFails(Probe):
    """Backward works for each output alone.

    ## Why
    Who uses one output sends a gradient for that one only. What arrives for the others is zeros,
    or None after `ctx.set_materialize_grads(False)`.

    ## Fails
    ```python
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, first, second):
            return 2 * first + 3 * second


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class BothOrOne(Both):
        @staticmethod
        def backward(ctx, first, second):
            first = 0 if first is None else 2 * first
            return first if second is None else first + 3 * second
    ```

    ## Cannot see
    What goes wrong for a pair of three outputs, and for no single one.
    """

    code = "PB534"
    name = "output-alone-fails"
    help = "test each gradient for None before it is used"
    about = frozenset({"backward"})
    explains = frozenset({"backward", "second", "transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send a gradient for one output at a time."""
        base = steady(call)
        used = [i for i, grad in enumerate(base.grads) if grad is not None]
        if len(used) < 2:
            raise NotApplicable("there is one differentiable output")
        told = [told.method for node in trace(call).nodes for told in node.told]
        for index in used:
            alone = [grad if i == index else None for i, grad in enumerate(base.grads)]
            try:
                answer(call, alone)
            except Exception as error:
                others = ", ".join(str(i) for i in used if i != index)
                none = "None" if "set_materialize_grads" in told else "no gradient"
                yield self.breach(
                    f"{call.target.name}: if only output {index} is used, backward gets {none} "
                    f"for output {others}, and fails",
                    where=place_of_error(error) or backward_place(call),
                    error=f"{type(error).__name__}: {shortened(str(error))}",
                )
                return
