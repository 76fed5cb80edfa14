"""The gradient of a channels_last input is contiguous."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place, compute_answer
from pullback.verify.probe import NotApplicable, Probe


class LostChannelsLast(Probe):
    """Outputs and gradients of a channels_last image are channels_last as well.

    ## Why
    Convolutions are fastest in that layout. An operator that returns another layout silently costs
    a copy in each step, here or in the next layer.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad.contiguous()


    inputs = (torch.randn(2, 3, 4, 5, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleKept(Double):
        @staticmethod
        def backward(ctx, grad):
            return 2 * grad
    ```

    ## Cannot see
    Whether the next layer wants this layout.
    """

    code = "PB660"
    name = "channels-last-lost"
    level = "advice"
    help = "return torch.empty_like(x), which keeps the layout, in the place of a contiguous tensor"
    about = frozenset({"layout", "input layout"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Give an image in channels_last, and a gradient if the output has its axes."""
        last = torch.channels_last
        image = [
            i
            for i in call.wanted
            if call.leaves[i].value.ndim == 4 and not call.leaves[i].parameter
        ]
        if not image:
            raise NotApplicable("no input is an image: of four axes")
        if not call.target.parts:
            raise NotApplicable("no derivative of the author's is known")
        first = image[0]
        shape = call.leaves[first].value.shape
        if min(shape[1:]) < 2:
            raise NotApplicable("an image of one channel or pixel has no layout")
        values = [leaf.value for leaf in call.leaves]
        values[first] = values[first].contiguous(memory_format=last)
        given = call.with_values(values)
        found = compute_answer(
            given,
            lambda outputs: [
                torch.randn_like(o, memory_format=torch.preserve_format)
                if o.requires_grad
                else None
                for o in (own.detach().requires_grad_(own.requires_grad) for own in outputs)
            ],
            prepare=lambda own: own.clone(memory_format=torch.preserve_format),
        )
        name = call.leaves[first].name
        kept = [o for o in found.outputs if o.shape == shape]
        gradient = found.gradients[first]
        if kept and not all(o.is_contiguous(memory_format=last) for o in kept):
            yield self.breach(
                f"{call.target.name}: the output loses channels_last, which `{name}` has: an extra "
                "copy per step"
            )
        elif kept and gradient is not None and not gradient.is_contiguous(memory_format=last):
            yield self.breach(
                f"{call.target.name}: the gradient of `{name}` loses channels_last: an extra copy "
                "per step",
                where=backward_place(call, "contiguous", "empty", "zeros", "new_empty"),
            )
