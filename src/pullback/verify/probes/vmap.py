"""vmap and a loop give different results."""

from collections.abc import Iterator

import torch

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import changes_inputs, describe_tensors
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.composition.transforms import (
    InDims,
    gradients_of,
    in_dims_of,
    make_batch,
    outputs_of,
    run_loop,
    supports_vmap,
)
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text, place_of_error
from pullback.verify.target import shorten


class Vmap(Probe):
    """`vmap` of a target equals a loop, whichever inputs are batched and in which dimension.

    ## Why
    `in_dims` tells a `vmap` staticmethod where each input has its batch, None for an input
    without one. A rule that assumes the first dimension is right only in the usual case.

    ## Fails
    ```python
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

        @staticmethod
        def vmap(info, in_dims, x, y):
            return x * y, 0


    inputs = (torch.randn(3, 3).double(), torch.randn(3, 3).double())
    ```

    ## Passes
    ```python
    class ProductMoved(Product):
        @staticmethod
        def vmap(info, in_dims, x, y):
            x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
            y = y if in_dims[1] is None else y.movedim(in_dims[1], 0)
            return x * y, 0
    ```

    ## Cannot see
    A Function without a rule for vmap: vmap says that there is none.
    """

    code = "PB580"
    name = "vmap-differs"
    help = (
        "move each input's batch to the front by its own in_dims entry (None: there is none), and "
        "return out_dims; or set generate_vmap_rule = True"
    )
    about = frozenset({"transform"})
    explains = frozenset({"transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare vmap with a loop, for the outputs and for the gradients."""
        if not supports_vmap(call):
            raise NotApplicable("it offers no vmap")
        if call.random or not call.repeatable or changes_inputs(call):
            raise NotApplicable("it is random, or writes into its inputs")
        if any(leaf.parameter for leaf in call.leaves) or not call.leaves:
            raise NotApplicable("it has no plain inputs to batch")
        for dims in in_dims_of(call):
            found = self.compared(call, dims)
            if found is not None:
                yield found
                return

    def compared(self, call: Call, dims: InDims) -> Finding | None:
        """Return the finding for one way to batch the inputs."""
        vmap = call.target.parts.get("vmap")
        where = None if vmap is None else Text(vmap).place
        given, singles = make_batch(call, dims)
        for word, function in (("", outputs_of(call)), (" of the gradient", gradients_of(call))):
            try:
                wanted = run_loop(function, singles)
            except NotApplicable:
                continue
            try:
                found = torch.func.vmap(function, in_dims=dims, randomness="same")(*given)
            except Exception as error:
                if is_refusal(error) or vmap is None or word:
                    continue
                return self.breach(
                    f"{call.target.name}: vmap(in_dims={dims}) raises, a loop does not",
                    where=place_of_error(error) or where,
                    raised=f"{type(error).__name__}: {shorten(str(error))}",
                )
            names = [f"result {i}" for i in range(len(wanted))]
            if difference := describe_tensors(found, wanted, names):
                return self.breach(
                    f"{call.target.name}: vmap{word}(in_dims={dims}) differs from a loop",
                    where=where,
                    difference=difference,
                )
        return None
