"""Tensors in a list, a dict or an object."""

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.call import Call, InputLeaf, can_require_grad
from pullback.verify.nodes import SPOILT, leaves_in_containers
from pullback.verify.numbers.dependence import dependences
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text
from pullback.verify.trace import trace


class HiddenInContainer(Probe):
    """Each tensor that a Function differentiates is an argument of its own.

    ## Why
    `apply` looks at its arguments, not into them: tensors in a list or a dict are constants to
    autograd, and no gradient flows to them.

    ## Fails
    ```python
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, xs):
            return xs[0] + 2 * xs[1]

        @staticmethod
        def backward(ctx, grad):
            return None


    inputs = ([torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)],)
    ```

    ## Passes
    ```python
    class SumOf(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            return xs[0] + 2 * xs[1]

        @staticmethod
        def backward(ctx, grad):
            return grad, 2 * grad


    inputs = tuple(inputs[0])
    ```

    ## Cannot see
    Tensors that are in a list on purpose. Tensors that require no gradient although another input
    does may be constants: that is advice. If no input requires one, all count as inputs.
    """

    code = "PB510"
    name = "hidden-in-container"
    milder = True
    needs = "forward"
    explains = SPOILT

    def examine(self, call: Call) -> Iterator[Finding]:
        """Find the inputs in containers that the outputs depend on and that get no gradient."""
        if call.target.kind != "function":
            raise NotApplicable("PyTorch's own operators take lists")
        inside = leaves_in_containers(call)
        if not inside:
            return
        run = call.forward()
        gradients = trace(call).gradients or (None,) * len(call.leaves)
        hidden: dict[str, tuple[InputLeaf, str, str]] = {}
        for index, (name, container) in inside.items():
            leaf = call.leaves[index]
            if not can_require_grad(leaf.value) or gradients[index] is not None:
                continue
            found = dependences(call, index, range(len(run.outputs)))
            if found:
                shown = (
                    f"{leaf.name} changes output {found[0].output} by {found[0].value:.3g} a unit"
                )
                if name not in hidden or (leaf.wanted and not hidden[name][0].wanted):
                    hidden[name] = (leaf, type(container).__name__, shown)
        for name, (leaf, kind, shown) in hidden.items():
            constant = "" if leaf.wanted else "; here they require none, and may be constants"
            yield self.breach(
                f"{call.target.name}: tensors inside the {kind} argument {name} are invisible to "
                f"autograd: no gradient flows to them{constant}",
                level=None if leaf.wanted else "advice",
                where=Text(call.target.parts["forward"]).place,
                help=f"pass them as arguments of their own: *{name}",
                shown_by=shown,
            )
