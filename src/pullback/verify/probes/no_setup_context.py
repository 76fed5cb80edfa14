"""A Function that torch.func refuses."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class NoSetupContext(Probe):
    """A Function whose forward has no ctx, and a `setup_context`, works under `torch.func`.

    ## Why
    `torch.func.grad`, `vmap`, `jacrev` and everything built on them refuse a Function whose forward
    takes ctx. Splitting forward in two costs nothing.

    ## Fails
    ```python
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class DoubleSplit(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    ```

    ## Cannot see
    Whether anybody needs it.
    """

    code = "PB665"
    name = "no-setup-context"
    level = "advice"
    help = (
        "split it: forward(x) without ctx, and setup_context(ctx, inputs, output) that saves; for "
        "vmap add generate_vmap_rule = True or a vmap staticmethod"
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for setup_context."""
        if call.target.kind != "function":
            raise NotApplicable("it is not an autograd.Function")
        if "setup" not in call.target.parts:
            yield self.breach(
                f"{call.target.name}: not usable under torch.func or vmap: forward takes ctx, and "
                "there is no setup_context",
                where=Text(call.target.parts["forward"]).place,
            )
