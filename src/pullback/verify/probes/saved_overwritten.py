"""Backward writes into what it needs again, or into what is not its own."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run
from pullback.verify.nodes import (
    SPOILT,
    backward_text,
    describe_saved,
    name_of,
    nodes_of_target,
    require_own,
)
from pullback.verify.probe import Probe
from pullback.verify.source import SourcePlace, Text
from pullback.verify.trace import NodeTrace, Trace, watch_calls
from pullback.verify.tracing.difference import copy_values, find_difference
from pullback.verify.tracing.memory import count_changed, tensors_held


class SavedOverwritten(Probe):
    """Backward leaves the tensors it saved as it found them.

    ## Why
    A kernel's writes do not increment a tensor's version counter, so autograd cannot notice.
    The first backward is right; a second one through the same graph is silently wrong.

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
            return x.data.mul_(2 * grad)


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareKept(Square):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return x * (2 * grad)
    ```

    ## Cannot see
    A write that leaves every value as it was. If backward overwrites a buffer of forward's, and a
    second backward still gives the same, that is not a fault.
    """

    code = "PB504"
    name = "saved-tensor-overwritten"
    help = "write the gradient to a new tensor, or save a clone"
    explains = SPOILT

    def examine(self, call: Call) -> Iterator[Finding]:
        """Compare what forward was given, kept and returned, before backward and after it."""
        require_own(call)
        nodes: list[NodeTrace] = []
        with watch_calls(nodes):
            run = call.forward()
            before = [*copy_values(run.given), *copy_values(run.outputs)]
            owned = [copy_held(node) for node in nodes]
            first = run.backward(run.random_grads())
        found = False
        for node, held in zip(nodes, owned, strict=True):
            if node not in nodes_of_target(call, Trace(nodes=nodes)):
                continue
            for what, old, tensor in held:
                count = count_changed(old, tensor)
                public = what.startswith(("its input", "its output"))
                if count and not found and (public or not repeats(run, first)):
                    found = True
                    yield self.written(call, node, what, tensor, count)
        names = [f"its input {leaf.name}" for leaf in call.leaves]
        names += [f"its output {index}" for index in range(len(run.outputs))]
        for name, old, tensor in zip(names, before, [*run.given, *run.outputs], strict=True):
            if not found and old is not None and (count := count_changed(old, tensor)):
                found = True
                yield self.written(call, None, name, tensor, count)

    def written(
        self, call: Call, node: NodeTrace | None, what: str, tensor: Tensor, count: int
    ) -> Finding:
        """Say which tensor backward changed."""
        where: SourcePlace | None = None
        text = backward_text(node) if node else None
        if text is None and "backward" in call.target.parts:
            text = Text(call.target.parts["backward"])
        if text is not None:
            where = text.writes() or text.mentions("data")
        saved = "a tensor that it saved, " if node else ""
        return self.breach(
            f"{name_of(call, node) if node else call.target.name}: backward changes {saved}{what}: "
            f"it is overwritten, and a second backward through the same graph is wrong or raises",
            where=where,
            tensor=f"{tensor.dtype} {tuple(tensor.shape)}",
            changed=f"{count} of {tensor.numel()} elements",
        )


def copy_held(node: NodeTrace) -> list[tuple[str, Tensor, Tensor]]:
    """Return what a node keeps for backward: what it is, its values now, and the tensor."""
    found = [(describe_saved(node, saved.what), saved.before, saved.tensor) for saved in node.saved]
    for name, value in node.attributes.items():
        for path, tensor in tensors_held(value, f"ctx.{name}"):
            found.append((path, tensor.detach().clone(), tensor))
    return found


def repeats(run: Run, first: Sequence[Tensor | None]) -> bool:
    """Tell whether a second backward gives the same as the first."""
    try:
        return find_difference(first, run.backward(run.random_grads())) is None
    except Exception:
        return False
