"""torch.func gives other gradients than autograd."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import changes_inputs, describe_tensors, ordinary_result
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.composition.transforms import gradients_of, supports_transforms
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import place_of_error
from pullback.verify.target import shorten


class FuncGrad(Probe):
    """`torch.func.vjp` gives the gradients that autograd gives.

    ## Why
    Under `torch.func` tensors are wrapped: each transform has a level. A tensor that `forward`
    keeps outside ctx, or reads by address, belongs to another level than those of backward.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.wrapped = torch._C._functorch.is_functorch_wrapped_tensor(inputs[0])

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x if ctx.wrapped else 2 * grad * x


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareAlways(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad * x
    ```

    ## Cannot see
    A Function without `setup_context`: torch.func says that it needs one.
    """

    code = "PB582"
    name = "torch-func-differs"
    milder = True
    imports = ("torch._dynamo",)
    help = "keep everything that backward needs on ctx, in setup_context"
    about = frozenset({"transform"})
    explains = frozenset({"transform"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare the gradients of torch.func with the ordinary ones."""
        if not supports_transforms(call):
            raise NotApplicable("it has no setup_context, which torch.func needs")
        if call.target.kind not in ("function", "operator"):
            raise NotApplicable("the Functions in it are checked")
        if changes_inputs(call) or not call.wanted:
            raise NotApplicable("it writes into its inputs, or has no gradient")
        wanted = ordinary_result(call)
        values = [leaf.value.detach().clone() for leaf in call.leaves]
        try:
            function = gradients_of(call)
            found = function(*values)
        except Exception as error:
            if is_refusal(error):
                raise NotApplicable("it says that it does not work under torch.func") from error
            yield self.breach(
                f"{call.target.name}: the gradient by torch.func raises; autograd's does not",
                where=place_of_error(error),
                level="advice",
                raised=f"{type(error).__name__}: {shorten(str(error))}",
            )
            return
        gradients = [wanted.gradients[i] for i in call.wanted]
        names = [f"the gradient of `{call.leaves[i].name}`" for i in call.wanted]
        if difference := describe_tensors(found, gradients, names):
            yield self.breach(
                f"{call.target.name}: torch.func.vjp gives another gradient than autograd",
                difference=difference,
            )
