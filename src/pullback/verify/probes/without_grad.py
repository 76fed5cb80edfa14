"""Forward gives another result where no gradient is recorded."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call, copy_leaf, tensors_in
from pullback.verify.composition.composed import describe_tensors, ordinary_result
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.probe import Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class WithoutGrad(Probe):
    """Under `no_grad` and `inference_mode` forward works, and gives the same outputs.

    ## Why
    Evaluation runs without gradients. A forward that reads something that autograd makes only in
    training, or that takes another path there, is trained as one function and used as another.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x if ctx.needs_input_grad[0] else x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareAlways(Square):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
    ```

    ## Cannot see
    Differences between training and evaluation that are meant, if `training` selects them.
    """

    code = "PB529"
    name = "without-grad"
    help = "compute the outputs in the same way whether or not a gradient is wanted"
    # Backwards run first: if they spoil something, forward differs for that reason.
    about = frozenset({"repeat"})
    # Finite differences run without a gradient: if that is another function, they contradict.
    explains = frozenset({"numbers", "values", "tangent"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the outputs in grad mode with those in the other two."""
        wanted = ordinary_result(call).outputs
        names = [f"output {i}" for i in range(len(wanted))]
        for mode in (torch.no_grad, torch.inference_mode):
            word = f"torch.{mode.__name__}"
            try:
                with mode():
                    found = tensors_in(call.on([copy_leaf(leaf.value) for leaf in call.leaves]))
            except Exception as error:
                if is_refusal(error):
                    continue
                yield self.breach(
                    f"{call.target.name}: forward fails under {word}()",
                    where=place_of_error(error),
                    raised=f"{type(error).__name__}: {shorten(str(error))}",
                )
                return
            if difference := describe_tensors(found, wanted, names):
                yield self.breach(
                    f"{call.target.name}: forward gives other outputs under {word}()",
                    difference=difference,
                )
                return
