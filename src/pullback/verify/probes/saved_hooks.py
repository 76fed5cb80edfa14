"""Gradients change if saved tensors are packed and unpacked."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.composition.composed import describe_difference, ordinary_result, result_of
from pullback.verify.probe import Probe
from pullback.verify.source import Text, place_of_error
from pullback.verify.target import shorten
from pullback.verify.trace import trace


class SavedHooks(Probe):
    """A saved tensor may be packed and come back as another tensor with the same values.

    ## Why
    `save_on_cpu`, offloading and checkpointing replace saved tensors by copies. A backward that
    needs the same tensor object, memory or strides works only without them.

    ## Fails
    ```python
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.address = x.data_ptr()
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad if x.data_ptr() == ctx.address else grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class ScaleAlways(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad
    ```

    ## Cannot see
    Tensors that are kept as attributes of ctx: hooks do not see them.
    """

    code = "PB576"
    name = "saved-tensor-hooks"
    help = "use the values, sizes and strides of what ctx.saved_tensors returns, nothing older"
    about = frozenset({"checkpoint"})
    explains = frozenset({"checkpoint"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Give backward contiguous copies of what was saved."""
        wanted = ordinary_result(call)
        nodes = [node for node in trace(call).nodes if "backward" in node.parts]
        where = Text(nodes[-1].parts["backward"]).place if nodes else None
        try:
            with saved_tensors_hooks(pack, lambda tensor: tensor):
                run = call.forward()
            found = result_of(run)
        except Exception as error:
            yield self.breach(
                f"{call.target.name}: backward fails if saved tensors were packed and unpacked, as "
                "save_on_cpu does",
                where=place_of_error(error) or where,
                raised=f"{type(error).__name__}: {shorten(str(error))}",
            )
            return
        if difference := describe_difference(call, found, wanted):
            yield self.breach(
                f"{call.target.name}: gradients change if saved tensors are packed and unpacked, "
                "as save_on_cpu does",
                where=where,
                difference=difference,
            )


def pack(tensor: Tensor) -> Tensor:
    """Return a contiguous copy, as `save_on_cpu` does."""
    if tensor.layout != torch.strided:
        return tensor
    return tensor.detach().clone(memory_format=torch.contiguous_format)
