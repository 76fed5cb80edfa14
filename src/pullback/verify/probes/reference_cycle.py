"""A call that only Python's garbage collector frees."""

import gc
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.nodes import forward_text, name_of, nodes_of_target, require_own
from pullback.verify.probe import Probe
from pullback.verify.trace import NodeTrace, trace
from pullback.verify.tracing.memory import tensors_held


class ReferenceCycle(Probe):
    """A call is freed when the last reference to its outputs is dropped.

    ## Why
    An output knows the node that made it. If the node's `ctx` holds the output, neither is freed
    before Python's garbage collector runs, which does not know when a GPU is full.

    ## Fails
    ```python
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.exp()
            return ctx.y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.y


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class ExpSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y
    ```

    ## Cannot see
    Memory that is kept for ever: in a global list, or by an extension.
    """

    code = "PB515"
    name = "reference-cycle"
    needs = "forward"
    explains = frozenset({"memory"})
    help = "ctx.save_for_backward(y), which knows of this; read it from ctx.saved_tensors"

    def examine(self, call: Call) -> Iterator[Finding]:
        """Drop a call while the garbage collector is off, then let it run."""
        require_own(call)
        with collect_by_hand():
            run = call.forward()
            watched = [weakref.ref(output) for output in run.outputs if output.requires_grad]
            watched += [weakref.ref(n) for n in nodes_of(run.outputs)]
            del run
            alive = sum(one() is not None for one in watched)
            gc.collect()
            freed = alive - sum(one() is not None for one in watched)
        if not freed:
            return
        holder, line, name = None, None, call.target.name
        for node in nodes_of_target(call, trace(call)):
            holder = find_held_output(node)
            if holder is not None:
                line = forward_text(node).assigns(holder.partition(".")[2].partition("[")[0])
                name = name_of(call, node)
                break
        what = f"an output is kept on ctx ({holder})" if holder else "ctx is held by what it holds"
        yield self.breach(
            f"{name}: {what}: a reference cycle; the memory of the call is freed only when "
            f"Python's garbage collector runs",
            where=line,
            freed_late=f"{freed} of {len(watched)} outputs and nodes that were watched",
        )


def nodes_of(outputs: tuple[Tensor, ...]) -> list[Any]:
    """Return the author's nodes that made the outputs: others cannot be watched."""
    found = [output.grad_fn for output in outputs]
    return [node for node in found if node is not None and hasattr(node, "_forward_cls")]


def find_held_output(node: NodeTrace) -> str | None:
    """Return which attribute of ctx holds an output."""
    for name, value in node.attributes.items():
        for path, tensor in tensors_held(value, f"ctx.{name}"):
            if any(tensor is output for output in node.outputs):
                return path
    return None


@contextmanager
def collect_by_hand() -> Generator[None]:
    """Switch the garbage collector off within the block, and let it see only what is made there."""
    on = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if on:
            gc.enable()
