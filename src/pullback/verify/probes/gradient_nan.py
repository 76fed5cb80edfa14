"""The gradient is NaN where forward is finite and has a slope."""

import ast
from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.regions import regions_of
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text


class GradientNaN(Probe):
    """Where forward is finite and its slopes are, the gradient is finite.

    ## Why
    The norm of a row of zeros is 0, and its gradient 0/0: one masked row makes a whole network
    NaN in one step. The slope is finite from each side; PyTorch returns 0 there.

    ## Fails
    ```python
    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.norm(dim=1)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return x * (grad / y)[:, None]


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class NormOfZeros(Norm):
        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return x * (grad / torch.where(y > 0, y, 1))[:, None]
    ```

    ## Cannot see
    A NaN where the slope grows without bound, as that of the square root does at 0: an infinite
    gradient is right there.
    """

    code = "PB560"
    name = "gradient-nan"
    milder = True
    unnatural = True
    help = "treat that value apart: a gradient of 0 is right where the slopes from all sides cancel"
    about = frozenset({"values", "numbers"})
    unnatural = True

    def examine(self, call: Call) -> Iterator[Finding]:
        """Judge the call at other values; report gradients that are not finite."""
        for found in regions_of(call):
            if found.nan:
                yield self.breach(
                    f"{call.target.name}: {found.text}",
                    where=division(call),
                    seen=found.evidence,
                    level=None if found.certain else "advice",
                )


def division(call: Call) -> SourcePlace | None:
    """Return the line of backward that divides; otherwise where backward begins."""
    backward = call.target.parts.get("backward")
    if backward is None:
        return None

    def divides(node: ast.AST) -> bool:
        return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)

    text = Text(backward)
    return text.find(divides) or text.calls("rsqrt", "reciprocal", "log") or backward_place(call)
