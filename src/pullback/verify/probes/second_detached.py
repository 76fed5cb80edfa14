"""A detached input or output is saved for backward."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.second import compare_second, describe_wrong_seconds
from pullback.verify.probe import Probe
from pullback.verify.tracing.kept import find_constants


class DetachedSaved(Probe):
    """Inputs and outputs are saved as they are, not as `x.detach()` or `x.data`.

    ## Why
    A detached tensor has the values but not the history: second derivatives silently lose this
    path, and a later change in place is not noticed either.

    ## Fails
    ```python
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.detach())
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class CubeOfInput(Cube):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3
    ```

    ## Cannot see
    A detached copy in other memory: that is an intermediate result.
    """

    code = "PB567"
    name = "detached-saved"
    help = "save the tensor itself with ctx.save_for_backward: that makes no cycle and no copy"
    about = frozenset({"second"})
    explains = frozenset({"second", "tangent"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Look for detached inputs and outputs where second derivatives are wrong."""
        found = compare_second(call)
        if not found.lost:
            return
        for kept in find_constants(found):
            if kept.what.endswith("detached"):
                yield self.breach(
                    f"{call.target.name}: second derivatives are wrong: `{kept.name}` is saved, "
                    f"which is {kept.what}: this path is lost",
                    where=kept.place,
                    **describe_wrong_seconds(found),
                )
                return
