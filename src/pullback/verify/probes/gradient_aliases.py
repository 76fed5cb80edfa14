"""A gradient that is the memory of something else."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run, tensors_in
from pullback.verify.nodes import require_own
from pullback.verify.probe import Probe
from pullback.verify.source import Text
from pullback.verify.tracing.memory import count_changed, tensors_held


class GradientAliases(Probe):
    """A gradient is memory of its own.

    ## Why
    The engine stores what backward returns as the input's `.grad`, without a copy where it can. The
    next backward adds to it, and an optimiser clips it, in place: this changes what was saved.

    ## Fails
    ```python
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.product = torch.empty_like(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            torch.mul(grad, 2, out=ctx.product)
            return ctx.product.view_as(ctx.product)


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class ScaledAnew(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    ```

    ## Cannot see
    An alias of the gradient that arrives: PyTorch's own operators return that as well.
    """

    code = "PB521"
    name = "gradient-aliases"
    about = frozenset({"repeat"})
    explains = frozenset({"repeat"})
    help = "return memory of its own: .clone()"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run backward into `.grad`, write to that as an optimiser does, and compare the rest."""
        require_own(call)
        for ones in (False, True):
            found = next(self.aliased(call, ones=ones), None)
            if found is not None:
                yield found
                return

    def aliased(self, call: Call, *, ones: bool) -> Iterator[Finding]:
        """Yield a finding for what changes when the gradients are written to."""
        # Not watched: the engine copies a gradient that someone else holds.
        run = call.forward()
        grads = run.random_grads()
        if ones:  # what `loss.backward()` sends
            grads = tuple(None if grad is None else torch.ones_like(grad) for grad in grads)
        pairs = [(o, g) for o, g in zip(run.outputs, grads, strict=True) if g is not None]
        if not pairs:
            return
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs], retain_graph=True)
        others = [
            (what, tensor.detach().clone(), tensor) for what, tensor in tensors_needed(call, run)
        ]
        text = Text(call.target.parts["backward"]) if "backward" in call.target.parts else None
        for leaf, value in zip(call.leaves, run.leaves, strict=True):
            if value.grad is None or value.grad.layout != torch.strided:
                continue
            with torch.no_grad():
                value.grad.add_(1)
            for what, before, tensor in others:
                if count := count_changed(before, tensor):
                    yield self.breach(
                        f"{call.target.name}: the gradient of {leaf.name} is the memory of {what}: "
                        f"where {leaf.name}.grad is changed in place (by the next backward, by "
                        f"gradient clipping), that is changed as well",
                        where=text.returns() if text else None,
                        changed=f"{count} of {before.numel()} elements, by .grad.add_(1)",
                    )
                    return


def tensors_needed(call: Call, run: Run) -> Iterator[tuple[str, Tensor]]:
    """Yield what a gradient should not be part of: inputs, outputs, and what is kept."""
    for leaf, given in zip(call.leaves, run.given, strict=True):
        yield f"the input {leaf.name}", given
    for index, output in enumerate(run.outputs):
        yield f"output {index}", output
    for output in run.outputs:
        ctx: Any = output.grad_fn
        if not hasattr(type(ctx), "_forward_cls"):
            continue
        for name, value in ctx.__dict__.items():
            yield from tensors_held(value, f"ctx.{name}")
        if not getattr(type(ctx)._forward_cls, "clear_saved_tensors_on_access", False):
            yield from (
                (f"saved tensor {i}", t) for i, t in enumerate(tensors_in(ctx.saved_tensors))
            )
