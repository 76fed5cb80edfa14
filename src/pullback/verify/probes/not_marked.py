"""An index or a mask that is not marked non-differentiable."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import forward_text, nodes_of_target
from pullback.verify.numbers.numeric import draw_direction
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.trace import trace

STEPS = (1e-6, 1e-4, 1e-3)


class NotMarked(Probe):
    """An output that does not change with the inputs is marked non-differentiable.

    ## Why
    A gradient of zeros is made and sent for it, and a loss that uses it seems to train something.

    ## Fails
    ```python
    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            value, index = x.max(-1)
            ctx.save_for_backward(index)
            ctx.shape = x.shape
            return value, index.double()

        @staticmethod
        def backward(ctx, grad, _):
            (index,) = ctx.saved_tensors
            return grad.new_zeros(ctx.shape).scatter(-1, index[:, None], grad[:, None])


    inputs = (torch.randn(3, 5, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class LargestMarked(Largest):
        @staticmethod
        def forward(ctx, x):
            value, index = x.max(-1)
            ctx.save_for_backward(index)
            ctx.shape = x.shape
            index = index.double()
            ctx.mark_non_differentiable(index)
            return value, index
    ```

    ## Cannot see
    An output that is constant here and not elsewhere.
    """

    code = "PB653"
    name = "not-marked"
    level = "advice"
    about = frozenset({"numbers"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Move the inputs a little, and send a gradient to each output alone."""
        if call.target.kind != "function":
            raise NotApplicable("only a Function marks its outputs")
        run = call.forward()
        if len(run.differentiable) < 2:
            raise NotApplicable("one differentiable output")
        for index in run.differentiable:
            grads = [g if i == index else None for i, g in enumerate(run.random_grads())]
            gradients = run.backward(grads)
            if any(g is not None and bool((g != 0).any()) for g in gradients):
                continue
            if not run.outputs[index].numel() or not is_constant(call, index):
                continue
            nodes = nodes_of_target(call, trace(call))
            yield self.breach(
                f"{call.target.name}: output {index} is constant around the inputs and its "
                f"gradient is never used, but it is not marked: ctx.mark_non_differentiable",
                where=forward_text(nodes[0]).returns() if nodes else None,
                help="ctx.mark_non_differentiable(...) of that output",
            )


def is_constant(call: Call, index: int) -> bool:
    """Tell whether an output stays the same to the bit where the inputs move a little."""
    values = [leaf.value for leaf in call.leaves]
    before = call.values(values)[index]
    for step in STEPS:
        moved = [
            value + (step * draw_direction(value, i)).to(value) if i in call.wanted else value
            for i, value in enumerate(values)
        ]
        if not torch.equal(before, call.values(moved)[index]):
            return False
    return True
