"""Zeros for an input on which no output that is used depends."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call, is_same
from pullback.verify.nodes import backward_text, nodes_of_target
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.trace import trace


class ZerosForNone(Probe):
    """An input gets None where no output that is used depends on it.

    ## Why
    For an output that is not used, backward is given zeros, and computes a gradient of zeros from
    them. To an optimiser that is a gradient: with momentum or weight decay it moves a parameter
    that has no part in the loss; a parameter whose gradient is None stays as it is.

    ## Fails
    ```python
    class TwoSines(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.sin(), w.sin()

        @staticmethod
        def backward(ctx, of_x, of_w):
            x, w = ctx.saved_tensors
            return of_x * x.cos(), of_w * w.cos()


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class TwoSinesApart(TwoSines):
        @staticmethod
        def forward(ctx, x, w):
            ctx.set_materialize_grads(False)
            return TwoSines.forward(ctx, x, w)

        @staticmethod
        def backward(ctx, of_x, of_w):
            x, w = ctx.saved_tensors
            return (
                None if of_x is None else of_x * x.cos(),
                None if of_w is None else of_w * w.cos(),
            )
    ```

    ## Cannot see
    Whether a parameter is ever used for one output alone.
    """

    code = "PB656"
    name = "zeros-for-none"
    level = "advice"
    help = (
        "call ctx.set_materialize_grads(False) in forward, and return None where the gradient of "
        "each output that depends on the input is None"
    )
    about = frozenset({"numbers", "backward"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send a gradient for each output alone; look at inputs on which it does not depend."""
        if call.target.kind in ("module", "callable"):
            raise NotApplicable("the parts of a function of tensors are looked at one by one")
        run = call.forward()
        used = run.differentiable
        if len(used) < 2 or len(call.wanted) < 2:
            raise NotApplicable("there is one differentiable output, or one input")
        grads = run.random_grads()
        for index in used:
            alone = [grad if i == index else None for i, grad in enumerate(grads)]
            found = trace(call, grads=alone)
            gradients = found.gradients or (None,) * len(call.leaves)
            for leaf in call.wanted:
                own = gradients[leaf]
                if own is None or not own.numel() or bool(own.any()):
                    continue
                if not has_no_effect(call, leaf, index):
                    continue
                name = call.leaves[leaf].name
                nodes = nodes_of_target(call, found)
                yield self.breach(
                    f"{call.target.name}: where output {index} alone is used, which does not "
                    f"depend on {name}, the gradient of {name} is zeros rather than None: an "
                    f"optimiser with a momentum or a weight decay moves it",
                    where=backward_text(nodes[0]).returns() if nodes else None,
                )
                return


def has_no_effect(call: Call, leaf: int, output: int) -> bool:
    """Tell whether other values of a leaf leave an output as it is, and change another one."""
    values = [own.value for own in call.leaves]
    before = call.values(values)
    values[leaf] = values[leaf] * 0.875
    after = call.values(values)
    return before[output].equal(after[output]) and not all(map(is_same, before, after))
