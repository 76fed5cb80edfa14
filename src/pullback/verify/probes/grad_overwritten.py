"""Backward writes into the gradient that arrives."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import SPOILT, backward_text, name_of, nodes_of_target, require_own
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import trace
from pullback.verify.tracing.difference import copy_values
from pullback.verify.tracing.memory import count_changed


class GradOverwritten(Probe):
    """Backward leaves the gradients that arrive as they are.

    ## Why
    The engine passes the same tensor to every consumer: after `y = a + b` both branches get it.
    What one backward writes into it becomes the gradient of the other.

    ## Fails
    ```python
    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            return grad.mul_(3)


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class TripleKept(Triple):
        @staticmethod
        def backward(ctx, grad):
            return grad * 3
    ```

    ## Cannot see
    A write that leaves every value as it was.
    """

    code = "PB508"
    name = "grad-overwritten"
    explains = SPOILT
    help = "write to a new tensor: grad * 2, not grad.mul_(2)"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare each gradient that arrives before backward with the same one after it.

        In the call's own precision and in others: `grad.float()` is a copy of a float64 gradient,
        but for a float32 gradient it is the same tensor.
        """
        require_own(call)
        for own in (call, call.to(torch.float32), call.to(torch.float64)):
            try:
                found = next(self.written(own), None)
            except Exception:
                if own is call:
                    raise
                continue  # it does not take this precision
            if found is not None:
                yield found
                return

    def written(self, call: Call) -> Iterator[Finding]:
        """Yield a finding for the first gradient that is changed."""
        found = trace(call)
        for node in nodes_of_target(call, found):
            if node.arrived:
                yield from self.compared(
                    name_of(call, node), backward_text(node), node.copies[-1], node.arrived[-1]
                )
        if call.target.kind in ("module", "callable"):
            return
        run = call.forward()
        grads = list(run.random_grads())
        before = copy_values(grads)
        run.backward(grads)
        own = call.target.parts.get("backward")
        yield from self.compared(call.target.name, Text(own) if own else None, before, grads)

    def compared(
        self,
        name: str,
        text: Text | None,
        before: Sequence[Tensor | None],
        after: Sequence[Tensor | None],
    ) -> Iterator[Finding]:
        """Compare gradients with their copies."""
        for index, (old, now) in enumerate(zip(before, after, strict=True)):
            if old is None or now is None or not (count := count_changed(old, now)):
                continue
            where: SourcePlace | None = (text.writes() or text.mentions("data")) if text else None
            yield self.breach(
                f"{name}: backward writes into grad_output {index}, the gradient that arrives: "
                f"other branches that use the same gradient get wrong values",
                where=where,
                gradient=f"{old.dtype} {tuple(old.shape)}",
                changed=f"{count} of {old.numel()} elements",
            )
