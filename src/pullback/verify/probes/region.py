"""Backward is right for the example's values, but wrong for others."""

import ast
from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.invariance.answer import backward_place
from pullback.verify.invariance.options import constants_in
from pullback.verify.invariance.regions import Region, regions_of
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text


class WrongRegion(Probe):
    """Backward is right for all values that forward takes.

    ## Why
    Code that is safe from overflow has a branch for large values. Tests draw small ones.

    ## Fails
    ```python
    class Softplus(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return torch.where(x > 20, 0.0, grad * torch.sigmoid(x))


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SoftplusOfAll(Softplus):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * torch.sigmoid(x)
    ```

    ## Cannot see
    A region that contains none of the values tried.
    """

    code = "PB561"
    name = "wrong-in-a-region"
    milder = True
    unnatural = True
    help = "follow in backward the branch that forward takes for these values"
    about = frozenset({"values", "numbers"})
    explains = frozenset({"values", "second", "transform"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})
    unnatural = True

    def examine(self, call: Call) -> Iterator[Finding]:
        """Judge the call at other values; report finite gradients that are wrong."""
        for found in regions_of(call):
            if not found.nan:
                yield self.breach(
                    f"{call.target.name}: {found.text}",
                    where=branch(call, found),
                    seen=found.evidence,
                    level=None if found.certain else "advice",
                )


def branch(call: Call, found: Region) -> SourcePlace | None:
    """Return the line that names a number near the edge of the region; otherwise backward."""
    if found.wrong is not None and found.wrong.place is not None:
        return found.wrong.place
    for part in ("backward", "forward"):
        function = call.target.parts.get(part)
        if function is None or found.near is None:
            continue
        near = found.near

        def names(node: ast.AST, near: float = near) -> bool:
            return isinstance(node, ast.expr) and any(
                isinstance(own, int | float) and abs(abs(own) - near) <= 0.25 * near
                for own in constants_in(node)
            )

        place = Text(function).find(names)
        if place is not None:
            return place
    return backward_place(call)
