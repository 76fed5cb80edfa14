"""A gradient that is computed and thrown away."""

from collections.abc import Iterator

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import (
    argument_names,
    backward_text,
    leaves_in_containers,
    name_of,
    nodes_of_target,
)
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.trace import NodeTrace, trace
from pullback.verify.tracing.memory import shares


class WorkNotNeeded(Probe):
    """Backward computes the gradients that are needed, and no others.

    ## Why
    Frozen weights and first layers need the gradient of only one input; the engine throws the
    others away, after they were computed.

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
            return grad * w, grad * x


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class MulAsNeeded(Mul):
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return (
                grad * w if ctx.needs_input_grad[0] else None,
                grad * x if ctx.needs_input_grad[1] else None,
            )
    ```

    ## Cannot see
    Work that is done and not returned.
    """

    code = "PB651"
    name = "work-not-needed"
    level = "advice"
    about = frozenset({"backward"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Require the gradient of each input alone, and look at what backward returned."""
        if call.target.kind in ("module", "callable") or leaves_in_containers(call):
            raise NotApplicable("the parts of a function of tensors are looked at one by one")
        if len(call.wanted) < 2:
            raise NotApplicable("there is one gradient")
        found: dict[str, int] = {}
        shown, where, who = "", None, call.target.name
        for alone in call.wanted:
            only = call.wanting([index == alone for index in range(len(call.leaves))])
            for node in nodes_of_target(only, trace(only)):
                for index, name in find_wasted(node):
                    found.setdefault(name, index)
                    shown = shown or f"only {call.leaves[alone].name} requires a gradient"
                    where, who = backward_text(node).returns(), name_of(call, node)
        if found:
            tests = ", ".join(f"ctx.needs_input_grad[{index}]" for index in found.values())
            yield self.breach(
                f"{who}: the gradient of {' and of '.join(found)} is computed even if it is not "
                f"needed (frozen weights)",
                where=where,
                help=f"test {tests}, and return None where it is False",
                seen=shown,
            )


def find_wasted(node: NodeTrace) -> Iterator[tuple[int, str]]:
    """Yield the arguments for which a gradient was computed though none is needed."""
    if not node.gave or node.errors[-1] is not None:
        return
    free = [*node.inputs, *(saved.tensor for saved in node.saved)]
    free += [grad for grad in node.arrived[-1] if grad is not None]
    names = argument_names(node)
    for index, (gave, own) in enumerate(zip(node.gave[-1], node.arguments, strict=False)):
        if not isinstance(gave, Tensor) or not isinstance(own, Tensor) or own.requires_grad:
            continue
        # Passing on the gradient that arrived was no work.
        if gave.numel() and not any(shares(gave, other) for other in free):
            yield index, names[index]
