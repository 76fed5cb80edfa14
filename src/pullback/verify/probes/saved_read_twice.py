"""ctx.saved_tensors is read more than once."""

from collections.abc import Iterator

import torch
from torch.utils.checkpoint import checkpoint

from pullback.diagnostic import Finding
from pullback.verify.call import Call, tensors_in
from pullback.verify.nodes import name_of, nodes_of_target, require_own
from pullback.verify.probe import Probe
from pullback.verify.trace import trace


class SavedReadTwice(Probe):
    """Backward reads ctx.saved_tensors once.

    ## Why
    Each read unpacks all of them. `checkpoint(use_reentrant=False)` computes a saved tensor again
    for the first read and raises at the second; offloading copies it from the CPU twice.

    ## Fails
    ```python
    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0]
            w = ctx.saved_tensors[1]
            return grad * w, grad * x


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class MulOnce(Mul):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x
    ```

    ## Cannot see
    Reads in branches that this call does not take.
    """

    code = "PB517"
    name = "saved-read-twice"
    explains = frozenset({"checkpoint"})
    help = "read it once: x, w = ctx.saved_tensors"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Count the reads, and test whether a checkpoint raises."""
        require_own(call)
        for node in nodes_of_target(call, trace(call)):
            if len(node.unpacks) < 2:
                continue
            error = error_under_checkpoint(call)
            if error is None:
                continue
            lines = ", ".join(str(place.line) for place in node.unpacks if place)
            times = "twice" if len(node.unpacks) == 2 else f"{len(node.unpacks)} times"
            yield self.breach(
                f"{name_of(call, node)}: ctx.saved_tensors is read {times} (lines {lines}): it "
                f"raises under checkpoint(use_reentrant=False)",
                where=node.unpacks[1],
                raised=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            )


def error_under_checkpoint(call: Call) -> Exception | None:
    """Return what the call raises under a checkpoint because of a second read."""
    leaves = [leaf.value.detach().clone().requires_grad_(leaf.wanted) for leaf in call.leaves]
    grads = call.forward().random_grads()
    try:
        with torch.enable_grad():
            given = [leaf.clone() for leaf in leaves]
            returned = checkpoint(lambda *own: call.on(own), *given, use_reentrant=False)
        pairs = [
            (output, grad)
            for output, grad in zip(tensors_in(returned), grads, strict=True)
            if grad is not None and output.requires_grad
        ]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
    except Exception as error:
        return error if "unpack" in str(error).lower() else None
    return None
