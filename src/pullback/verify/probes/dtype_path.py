"""The gradient in one dtype is not that of float64."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.precision import LOWER, Loss, is_lost, measure_losses, right_in_float64
from pullback.verify.probe import Probe
from pullback.verify.source import Text


class DtypePath(Probe):
    """The gradients of all dtypes are the same but for rounding.

    ## Why
    Kernels have a branch or a template for each dtype, and float64 is the one that tests use.
    The gradient in float32, bfloat16 and float16 is compared with the float64 one at the same
    numbers; many times the measured effect of rounding inputs and saved tensors is allowed.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x if x.dtype == torch.float32 else 2 * grad * x


    inputs = (torch.randn(4, 4),)
    ```

    ## Passes
    ```python
    class SquareRight(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad * x
    ```

    ## Cannot see
    A loss of less than half of the dtype's digits; a dtype in which forward itself is another
    function.
    """

    code = "PB555"
    name = "dtype-path-differs"
    help = "look for the branch, template or constant of that dtype in backward"
    about = frozenset({"numbers"})
    explains = frozenset({"numbers", "values"})
    intentions = frozenset({"straight_through", "reversal", "surrogate", "tangent_space"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare each dtype that forward takes with float64."""
        double = right_in_float64(call)
        # A composite is checked as it is used; each Function in every dtype.
        own = {leaf.value.dtype for leaf in call.leaves}
        some = call.target.kind in ("module", "callable")
        for dtype in [dtype for dtype in LOWER if not some or dtype in own]:
            lost = [loss for loss in measure_losses(double, dtype) or [] if is_lost(loss)]
            # Again, with another gradient: a few numbers may be off by chance.
            again = measure_losses(double, dtype, seed=1) or [] if lost else []
            sure = {loss.leaf for loss in again if is_lost(loss)}
            for loss in lost:
                if loss.leaf in sure:
                    yield self.finding(call, loss)
                    return

    def finding(self, call: Call, loss: Loss) -> Finding:
        """Return the finding on one input."""
        name, short = call.leaves[loss.leaf].name, str(loss.dtype).removeprefix("torch.")
        what = (
            f"{loss.factor:.3g} x the float64 one"
            if loss.factor is not None
            else f"off by {100 * loss.relative:.3g} % from the float64 one"
        )
        backward = call.target.parts.get("backward")
        text = Text(backward) if backward else None
        return self.breach(
            f"{call.target.name}: the {short} gradient of `{name}` is {what}: "
            "the two dtype paths differ",
            where=text and (text.mentions("dtype") or text.returns()),
            allowed=f"{100 * loss.allowed:.2g} % by rounding of {short}",
        )
