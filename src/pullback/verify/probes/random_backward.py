"""Backward draws random numbers that its gradient depends on."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import EVERYTHING, require_own
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.tracing.difference import copy_values, find_difference

DRAWS = (
    *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm"),
    *("bernoulli", "bernoulli_", "dropout", "normal", "normal_", "uniform_", "exponential_"),
    *("multinomial", "random", "choice", "uniform", "standard_normal", "binomial", "permutation"),
)


class RandomBackward(Probe):
    """The gradient does not depend on the random state at backward.

    ## Why
    A mask that is drawn again is not the one that forward used. With a seed set before both, as in
    tests, it is the same.

    ## Fails
    ```python
    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * (torch.rand_like(x) > 0.5)

        @staticmethod
        def backward(ctx, grad):
            return grad * (torch.rand_like(grad) > 0.5)


    inputs = (torch.randn(20, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DropoutKept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = torch.rand_like(x) > 0.5
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, grad):
            (mask,) = ctx.saved_tensors
            return grad * mask
    ```

    ## Cannot see
    Generators other than the global ones of PyTorch, NumPy and Python. If a gradient is random on
    purpose (stochastic rounding), declare it: `pb.check(..., random_gradient=True)`.
    """

    code = "PB513"
    name = "random-backward"
    about = frozenset({"random"})
    explains = EVERYTHING - {"forward", "memory"}
    intentions = frozenset({"random_gradient"})
    help = "save the mask, or the generator's state, in forward and use it again in backward"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Run backward twice from one random state and then from others."""
        require_own(call)
        run = call.forward()
        grads = run.random_grads()
        first = copy_values(run.backward(grads, seed=11))
        if find_difference(first, run.backward(grads, seed=11)) is not None:
            raise NotApplicable("a second backward differs all the same")
        for seed in (12, 13):
            found = find_difference(first, run.backward(grads, seed=seed))
            if found is None:
                continue
            name = call.leaves[found.index].name
            yield self.breach(
                f"{call.target.name}: the gradient of {name} depends on the random state at "
                f"backward time: a mask or noise is drawn again (two seeds, two gradients)",
                where=place_of_draw(call),
                differs=found.evidence,
            )
            return


def place_of_draw(call: Call) -> SourcePlace | None:
    """Return the line of backward that draws."""
    own = call.target.parts.get("backward")
    return None if own is None else Text(own).calls(*DRAWS)
