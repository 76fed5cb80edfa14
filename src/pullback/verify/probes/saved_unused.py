"""A tensor that is saved, but not used in backward."""

from collections.abc import Iterator

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import describe_saved, forward_text, name_of, nodes_of_target
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.trace import NodeTrace, trace
from pullback.verify.tracing.difference import find_difference
from pullback.verify.tracing.poison import ZEROS, backward_with, is_needed


class SavedUnused(Probe):
    """Backward uses every tensor that is saved for it.

    ## Why
    A saved tensor stays in memory until backward has run: in training that is most of the memory.

    ## Fails
    ```python
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x + 2 * w

        @staticmethod
        def backward(ctx, grad):
            return grad, 2 * grad


    inputs = (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    ```

    ## Passes
    ```python
    class SumAlone(Sum):
        @staticmethod
        def forward(ctx, x, w):
            return x + 2 * w
    ```

    ## Cannot see
    A tensor that is needed only for other values of the inputs or of an option, or in a backward
    of backward.
    """

    code = "PB650"
    name = "saved-unused"
    unnatural = True
    level = "advice"
    about = frozenset({"numbers", "repeat", "random", "memory"})
    help = "save only what backward uses; of a shape, ctx.shape = x.shape is enough"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Replace each saved tensor by NaN and by other values, and compare the gradients."""
        nodes = [node for node in nodes_of_target(call, trace(call)) if node.saved]
        if len(nodes) != 1 or call.target.kind in ("module", "callable"):
            raise NotApplicable("nothing is saved, or it is not clear by whom")
        node = nodes[0]
        ordinary, count = backward_with(call, None, 0)
        again, _ = backward_with(call, None, 0)
        if count != len(node.saved) or find_difference(ordinary, again) is not None:
            raise NotApplicable(
                "more is saved than by this Function, or backward differs each time"
            )
        unused = [i for i in range(count) if not is_needed(call, i, ordinary)]
        for index in unused:
            yield self.waste(call, node, index, unused)
        if not unused:
            yield from self.redundant(call, node, ordinary)

    def redundant(
        self, call: Call, node: NodeTrace, ordinary: list[Tensor | None]
    ) -> Iterator[Finding]:
        """Say that an input and an output are saved although one of them is enough.

        Each can be full of NaN, or of zeros, and backward takes what it needs from the other one.
        """
        spare = [
            i
            for i in range(len(node.saved))
            if not is_needed(call, i, ordinary, (0,)) or not is_needed(call, i, ordinary, (ZEROS,))
        ]
        kinds = {node.saved[i].what.partition(" ")[0]: i for i in spare}
        if not {"input", "output"} <= set(kinds):
            return
        first, second = (
            describe_saved(node, node.saved[kinds[k]].what) for k in ("input", "output")
        )
        yield self.breach(
            f"{name_of(call, node)}: {first} and {second} are both saved, but only one of them is "
            f"needed",
            where=forward_text(node).calls("save_for_backward"),
            shown_by="each of them can be exchanged alone, and no gradient changes",
        )

    def waste(self, call: Call, node: NodeTrace, index: int, unused: list[int]) -> Finding:
        """Say which one is not used; of an input and an output, that one of them is enough."""
        tensor: Tensor = node.saved[index].tensor
        what = describe_saved(node, node.saved[index].what)
        size = size_of(tensor)
        kinds = {node.saved[i].what.partition(" ")[0] for i in range(len(node.saved))}
        others = [
            describe_saved(node, own.what) for i, own in enumerate(node.saved) if i not in unused
        ]
        enough = ""
        if {"input", "output"} <= kinds and others:
            enough = f"; only one of {what} and {others[0]} is needed"
        return self.breach(
            f"{name_of(call, node)}: {what} is saved ({size}) but never used in backward{enough}",
            where=forward_text(node).calls("save_for_backward"),
            shown_by="no gradient changes where other values, NaN among them, take its place",
        )


def size_of(tensor: Tensor) -> str:
    """Print how much memory a tensor takes."""
    count = float(tensor.numel() * tensor.element_size())
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
