"""None for an input that the outputs depend on."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import SPOILT, backward_text, leaves_in_containers, nodes_of_target
from pullback.verify.numbers.dependence import Dependence, dependences
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import Trace, trace


class GradientMissing(Probe):
    """An input that the outputs depend on gets a gradient.

    ## Why
    To the engine None is a gradient of zero: nothing that is trained through this input changes.

    ## Fails
    ```python
    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, None


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class MulBoth(Mul):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x
    ```

    ## Cannot see
    A gradient of zeros: the numeric probes find that. If an input is not to be trained, give it
    without `requires_grad`, and the others with it.
    """

    code = "PB512"
    name = "gradient-missing"
    about = frozenset({"numbers"})
    explains = SPOILT

    def examine(self, call: Call) -> Iterator[Finding]:
        """Differentiate forward by the inputs that get no gradient."""
        if call.target.kind in ("module", "callable"):
            raise NotApplicable("a function of tensors may detach its arguments")
        found = trace(call)
        if found.run is None or found.gradients is None:
            return
        outputs = found.run.differentiable
        hidden = leaves_in_containers(call) if call.target.kind == "function" else {}
        missing: dict[str, Dependence] = {}
        for leaf in call.wanted:
            if found.gradients[leaf] is not None or leaf in hidden or not outputs:
                continue
            for one in dependences(call, leaf, outputs)[:1]:
                missing[call.leaves[leaf].name] = one
        for name, one in missing.items():
            yield self.breach(
                f"{call.target.name}: backward returns None for {name}, but the output depends on "
                f"{name}",
                where=line_of(call, found),
                help=f"return the gradient of {name} in its place",
                shown_by=f"an element of output {one.output} changes by {one.value:.3g} (± "
                f"{one.error:.1g}) per unit of {name}",
            )


def line_of(call: Call, found: Trace) -> SourcePlace | None:
    """Return the line that returns the gradients."""
    for node in nodes_of_target(call, found):
        return backward_text(node).returns()
    own = call.target.parts.get("backward")
    return Text(own).returns() if own else None
