"""A sum in a gradient loses its digits as it grows."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.precision import LOWER, Loss, is_lost, measure_losses, right_in_float64
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.tracing.accumulated import AddingInFloat32

# The rows over which to sum; a running sum of ones in bfloat16 stops growing at 256.
ROWS = 4096
LARGEST = 1 << 17


class RunningSum(Probe):
    """A gradient that sums over many rows keeps the digits of its dtype.

    ## Why
    A weight's gradient adds up one term a row. If they are added one by one in bfloat16, terms
    below 1/256 of the sum vanish: with thousands of rows most of the sum is lost. Random signs hide
    it, so the probe makes gradients and inputs positive and repeats rows, if forward takes more of
    them.

    ## Fails
    ```python
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            total = torch.zeros_like(w)
            for row in grad[:, None] * x:
                total += row
            return torch.outer(grad, w), total


    inputs = (torch.rand(8, 4, dtype=torch.bfloat16), torch.rand(4, dtype=torch.bfloat16))
    ```

    ## Passes
    ```python
    class LinearRight(Linear):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            total = (grad[:, None] * x).float().sum(0)
            return torch.outer(grad, w), total.to(w.dtype)
    ```

    ## Cannot see
    A loss of less than half of the digits; sums over sizes that forward does not let grow. A loss
    in PyTorch's own indexing operators is advice.
    """

    code = "PB556"
    name = "sum-loses-digits"
    milder = True
    help = "accumulate in float32 (or in float64), and round once at the end"
    about = frozenset({"numbers"})
    explains = frozenset({"numbers", "values"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare with float64 at many rows, for each dtype that forward takes."""
        double = right_in_float64(call)
        if call.target.kind in ("module", "callable"):
            raise NotApplicable("its operators are looked at one by one")
        for size in sorted({s for leaf in call.leaves for s in leaf.value.shape}, reverse=True):
            large = grow(double, size)
            if large is None or not any(is_sum(leaf, large) for leaf in large.wanted):
                continue
            for dtype in LOWER:
                if (loss := find_lost_sum(large, dtype)) is None:
                    continue
                with AddingInFloat32():
                    own = find_lost_sum(large, dtype)
                yield self.finding(call, loss, large, by_torch=own is None)
                return

    def finding(self, call: Call, loss: Loss, large: Call, *, by_torch: bool) -> Finding:
        """Return the finding on one input."""
        name, short = call.leaves[loss.leaf].name, str(loss.dtype).removeprefix("torch.")
        backward = call.target.parts.get("backward")
        shapes = ", ".join(f"{own.name}: {tuple(own.value.shape)}" for own in large.leaves)
        why = ": PyTorch's own operator adds one by one there" if by_torch else ""
        return self.breach(
            f"{call.target.name}: in {short} the gradient of `{name}` is off by "
            f"{100 * loss.relative:.2g} % when it sums {ROWS} rows{why}: accumulate in float32",
            level="advice" if by_torch else "fault",
            where=Text(backward).returns() if backward else None,
            sizes=shapes,
            allowed=f"{100 * loss.allowed:.2g} % by rounding of {short}",
        )


def find_lost_sum(large: Call, dtype: torch.dtype) -> Loss | None:
    """Return the first sum over the rows that loses its digits."""
    found = measure_losses(large, dtype, positive=True) or []
    return next((loss for loss in found if is_lost(loss) and is_sum(loss.leaf, large)), None)


def is_sum(leaf: int, large: Call) -> bool:
    """Tell whether an input did not grow with the others: its gradient is a sum over the rows."""
    return large.leaves[leaf].value.numel() * 64 <= max(leaf.value.numel() for leaf in large.leaves)


def grow(call: Call, size: int) -> Call | None:
    """Return a call with one size made large, wherever it occurs; None if forward refuses it."""
    if size == 0:
        return None
    times = math.ceil(ROWS / size)
    values = [repeat(leaf.value, size, times) for leaf in call.leaves]
    if max(v.numel() for v in values) > LARGEST:
        return None
    try:
        large = call.with_values(values)
        run = large.forward()
        run.backward(run.random_grads())
    except Exception:
        return None
    return large


def repeat(value: Tensor, size: int, times: int) -> Tensor:
    """Repeat a tensor along the first axis of that size."""
    if size not in value.shape:
        return value
    axis = list(value.shape).index(size)
    return value.repeat(*(times if i == axis else 1 for i in range(value.dim())))
