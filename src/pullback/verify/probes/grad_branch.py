"""A branch on the values of the gradient that arrives."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.nodes import require_own
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten

# PyTorch's errors where a batched tensor is asked for a Python value.
BRANCHES = ("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense", "aten::equal")


class GradBranch(Probe):
    """Backward computes the same, whatever the values of the gradient that arrives.

    ## Why
    Several gradients can be sent at once: `torch.autograd.grad(..., is_grads_batched=True)`, and
    with it `torch.autograd.functional.jacobian(vectorize=True)`. An `if` has one answer for all of
    them, so PyTorch raises.

    ## Fails
    ```python
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if not grad.any():
                return torch.zeros_like(x)
            return grad * x.cos()


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SineOfAll(Sine):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x.cos()
    ```

    ## Cannot see
    A backward that batched gradients do not run for another reason: a kernel that takes no batch.
    """

    code = "PB667"
    name = "branch-on-gradient"
    level = "advice"
    help = "leave the branch out, or choose element by element: torch.where"
    about = frozenset({"backward", "transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send two gradients at once."""
        require_own(call)
        run = call.forward()
        used = run.differentiable
        several = zip(run.random_grads(0), run.random_grads(1), strict=True)
        try:
            torch.autograd.grad(
                [run.outputs[i] for i in used],
                [leaf for leaf in run.leaves if leaf.requires_grad],
                [torch.stack([g, h]) for g, h in several if g is not None and h is not None],
                is_grads_batched=True,
                allow_unused=True,
            )
        except RuntimeError as error:
            text = str(error)
            if not any(word in text for word in BRANCHES):
                return
            yield self.breach(
                f"{call.target.name}: backward branches on the values of the gradient that "
                f"arrives: several gradients at once (is_grads_batched=True) raise",
                where=place_of_error(error) or backward_place(call),
                raised=shorten(" ".join(text.split())),
            )
