"""A gradient that is right for the real example, but lacks a conj() for complex numbers."""

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.nodes import require_own
from pullback.verify.numbers.causes import name_cause
from pullback.verify.numbers.gradient import compare_gradients
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.randomness import make_generator


class ComplexTwin(Probe):
    """Backward is right for complex numbers too, if forward takes them.

    ## Why
    The conjugate of a real number is the number itself, so a real example does not show that one is
    missing; and a function made of PyTorch's operations takes complex numbers without being asked.

    ## Fails
    ```python
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class ProductOfAll(Product):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w.conj(), grad * x.conj()
    ```

    ## Cannot see
    Whether complex numbers will ever be used: so it is advice. Causes other than a conj().
    """

    code = "PB562"
    name = "conj-missing-if-complex"
    level = "advice"
    about = frozenset({"numbers", "values"})
    unnatural = True
    help = "conjugate the factor: grad * w.conj(), which costs nothing for real numbers; or refuse"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Give every floating-point input an imaginary part, and look for a missing conjugate."""
        require_own(call)
        if call.target.kind != "function" or any(leaf.value.is_complex() for leaf in call.leaves):
            raise NotApplicable("it is not an autograd.Function, or the example is complex itself")
        twin = call.with_values(
            [to_complex(leaf.value, call.seed + i) for i, leaf in enumerate(call.leaves)]
        )
        try:
            outputs = twin.forward().outputs
        except Exception as error:
            raise NotApplicable("forward does not take complex numbers") from error
        if not all(output.is_complex() for output in outputs):
            raise NotApplicable("its outputs are not complex where its inputs are")
        for mismatch in compare_gradients(twin).mismatches:
            cause = None
            with suppress(Exception):
                cause = name_cause(twin, mismatch)
            if cause is not None and cause.name == "conj":
                yield self.breach(
                    f"{call.target.name}: right for real numbers; for complex ones, which forward "
                    f"takes as well: {cause.text}",
                    where=backward_place(call),
                    help=self.help,
                )
                return


def to_complex(value: Tensor, seed: int) -> Tensor:
    """Return a floating-point tensor with an imaginary part of its size; others as they are."""
    if not value.is_floating_point():
        return value
    wide = value.detach().to(torch.float64)
    drawn = torch.randn(value.shape, dtype=torch.float64, generator=make_generator(seed + 41))
    return torch.complex(wide, drawn.to(wide) * wide.square().mean().sqrt())
