"""Backward computes with fewer digits than its inputs have."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.gradient import Mismatch, compare_gradients
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.trace import trace

LOWER = (torch.float16, torch.bfloat16, torch.float32)
DIGITS = {torch.float16: 3, torch.bfloat16: 2, torch.float32: 7}


class GradientDigits(Probe):
    """Backward of float64 inputs computes in float64, if forward does.

    ## Why
    A backward that works in float32 returns seven digits; the engine silently casts the result to
    float64. Where forward has all digits, its derivative is expected to have them too.

    ## Fails
    ```python
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad.float() * y.float()


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class ExpRight(Exp):
        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y
    ```

    ## Cannot see
    A forward that has no more digits itself: its noise covers the backward's.
    """

    code = "PB551"
    name = "gradient-of-fewer-digits"
    help = "compute in the dtype of the inputs: look for .float(), numpy float32 and float literals"
    about = frozenset({"numbers"})
    explains = frozenset({"numbers", "values", "second", "tangent"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for small mismatches, and for what says that they are rounding."""
        double = call.double
        if double is None:
            raise NotApplicable("forward does not compute in float64")
        for mismatch in compare_gradients(call).mismatches:
            lower = lower_dtype(double, mismatch)
            if lower is None:
                continue
            name, short = call.leaves[mismatch.leaf].name, str(lower).removeprefix("torch.")
            backward = call.target.parts.get("backward")
            text = Text(backward) if backward else None
            casts = text and text.calls("float", "half", "bfloat16", "to", "astype", "type")
            yield self.breach(
                f"{call.target.name}: the gradient of `{name}` is right to {DIGITS[lower]} digits "
                f"only, though forward has 16: backward computes in {short}",
                where=casts or (text and text.returns()),
                off_by=f"{mismatch.relative:.1g} of its size, where forward's noise allows "
                f"{mismatch.allowed / max(mismatch.size, 1e-300):.1g}",
            )


def lower_dtype(call: Call, mismatch: Mismatch) -> torch.dtype | None:
    """Return the dtype whose rounding a mismatch is, if it is that."""
    found = trace(call)
    returned = [g for node in found.nodes for gave in node.gave for g in gave]
    dtypes = {g.dtype for g in returned if isinstance(g, Tensor)}
    gradient = None if found.gradients is None else found.gradients[mismatch.leaf]
    for dtype in LOWER:
        eps = torch.finfo(dtype).eps
        if not eps / 1000 < mismatch.relative < min(100 * eps, 0.03):
            continue
        exact = (
            gradient is not None
            and bool(gradient.any())
            and torch.equal(
                gradient.to(dtype.to_complex() if gradient.is_complex() else dtype).to(gradient),
                gradient,
            )
        )
        # An error no larger than the rounding of float32 has no other likely cause.
        if dtype in dtypes or exact or (dtype == torch.float32 and mismatch.relative < 8 * eps):
            return dtype
    return None
