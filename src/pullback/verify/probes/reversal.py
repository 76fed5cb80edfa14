"""A gradient that is declared to be reversed is not."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.gradient import Mismatch, compare_gradients
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class Reversal(Probe):
    """A reversed gradient is a negative constant times the true one.

    ## Why
    Adversarial training reverses a gradient on purpose, `reversal=True`. Then the gradient has to
    be what was declared: it has the same negative factor in every direction.

    ## Fails
    ```python
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return -grad


    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    options = {"reversal": True}
    ```

    ## Passes
    ```python
    class ReverseRight(Reverse):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return -0.5 * grad * x.cos()
    ```

    ## Cannot see
    A factor that depends on the sizes.
    """

    code = "PB554"
    name = "reversal-not-exact"
    help = "return -c * (the true gradient), with one c"
    about = frozenset({"numbers"})
    explains = frozenset({"numbers", "values", "second", "tangent"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the factors of several directions."""
        if "reversal" not in call.intentions:
            raise NotApplicable("no reversal is declared")
        backward = call.target.parts.get("backward")
        several = [compare_gradients(call, seed=seed).mismatches for seed in (0, 1, 2)]
        for first in several[0]:
            place = (first.leaf, first.output)
            same = [m for found in several for m in found if (m.leaf, m.output) == place]
            factors = [m.analytic / m.numeric if m.numeric else 0.0 for m in same]
            if not is_one(factors, same):
                yield self.breach(
                    f"{call.target.name}: the gradient of `{call.leaves[first.leaf].name}` is "
                    "declared as reversed, but it is not a negative constant times the true one",
                    where=Text(backward).returns() if backward else None,
                    factors=", ".join(f"{factor:.4g}" for factor in factors),
                )


def is_one(factors: list[float], mismatches: list[Mismatch]) -> bool:
    """Tell whether all factors are the same negative one."""
    if len(factors) != 3 or max(factors) >= 0:
        return False
    off = max((m.allowed / abs(m.numeric) for m in mismatches if m.numeric), default=0.0)
    return max(factors) - min(factors) <= (10 * off + 1e-6) * max(map(abs, factors))
