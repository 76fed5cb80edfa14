"""An input or output that backward reads without autograd's check of its version."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run, can_require_grad
from pullback.verify.nodes import forward_text, nodes_of_target, require_own
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.randomness import make_generator
from pullback.verify.source import SourcePlace
from pullback.verify.trace import NodeTrace, Trace, trace
from pullback.verify.tracing.difference import Difference, copy_values, find_difference
from pullback.verify.tracing.memory import shares, tensors_held


@dataclass(frozen=True)
class Keeper:
    """Where an input or an output is kept: "ctx.x", and the line that keeps it."""

    path: str
    place: SourcePlace | None


class InputKept(Probe):
    """Backward gets inputs and outputs through save_for_backward.

    ## Why
    A tensor that is saved knows its version: backward raises if it was changed in place since. As a
    plain attribute of `ctx` it changes with its owner, and the gradient is silently another one.
    Hooks on saved tensors (checkpoint, offloading to the CPU) do not see it either.

    ## Fails
    ```python
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.x * grad


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareSaved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad
    ```

    ## Cannot see
    A change that leaves the gradient as it is. Integers and masks kept in this way are advice.
    """

    code = "PB519"
    name = "input-kept"
    milder = True
    help = "ctx.save_for_backward(...), and read it from ctx.saved_tensors"
    # Two gradients are compared, so they have to be the same without the change.
    about = frozenset({"random"})
    explains = frozenset({"memory"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Change each input and output in place between forward and backward: that must raise."""
        require_own(call)
        run = call.forward()
        first = copy_values(run.backward(run.random_grads()))
        if find_difference(first, run.backward(run.random_grads())) is not None:
            raise NotApplicable("a second backward differs all the same")
        found = trace(call)
        nodes = nodes_of_target(call, found)
        outputs = found.run.outputs if found.run else ()
        names = [f"input {leaf.name}" for leaf in call.leaves]
        names += [f"output {index}" for index in range(len(run.outputs))]
        silent: list[str] = []
        for index, name in enumerate(names):
            changed = gradients_after(call, lambda own, i=index: [*own.given, *own.outputs][i])
            if changed is None or (apart := find_difference(first, changed)) is None:
                continue
            tensor = [*run.given, *run.outputs][index]
            if index >= len(run.given) and is_cycle(nodes, outputs[index - len(run.given)]):
                continue
            smooth = can_require_grad(tensor) and (
                index < len(run.given) or index - len(run.given) in run.differentiable
            )
            yield self.silent(
                call, found, nodes, index=index, name=name, apart=apart, smooth=smooth
            )
            silent.append(name)
            if smooth:
                return
        if not silent:
            yield from self.unseen(call, found, nodes)

    def silent(  # noqa: PLR0913  (what the finding is made of)
        self,
        call: Call,
        found: Trace,
        nodes: Sequence[NodeTrace],
        *,
        index: int,
        name: str,
        apart: Difference,
        smooth: bool,
    ) -> Finding:
        """Say that a change is not noticed."""
        assert found.run is not None
        tensor = [*found.run.given, *found.run.outputs][index]
        keeper = keeper_of(nodes, tensor)
        how = f"{keeper.path} is a plain attribute" if keeper else "it is kept past autograd"
        return self.breach(
            f"{call.target.name}: the {name} is kept for backward, but not by save_for_backward: "
            f"{how}, so a later in-place change of it silently changes the gradient (and "
            f"saved-tensor hooks do not see it)",
            level="fault" if smooth else "advice",
            where=keeper.place if keeper else None,
            help=f"ctx.save_for_backward({name.partition(' ')[2]})" if "input" in name else None,
            gradient=f"of {call.leaves[apart.index].name}, before and after {name} was changed: "
            f"{apart.evidence}",
        )

    def unseen(self, call: Call, found: Trace, nodes: Sequence[NodeTrace]) -> Iterator[Finding]:
        """Advise against an input on ctx that backward does not even read the values of."""
        assert found.run is not None
        for leaf, given in zip(call.leaves, found.run.given, strict=True):
            keeper = keeper_of(nodes, given)
            if keeper is None or not leaf.wanted:
                continue
            yield self.breach(
                f"{call.target.name}: {keeper.path} keeps the input {leaf.name} in memory and "
                f"bypasses saved-tensor hooks: checkpoint and offloading do not see it",
                level="advice",
                where=keeper.place,
                help="save it with ctx.save_for_backward, or keep what is needed of it alone",
            )


def is_cycle(nodes: Sequence[NodeTrace], output: Tensor) -> bool:
    """Tell whether ctx holds an output itself: that is a reference cycle, and reported as one."""
    return any(
        own is output
        for node in nodes
        for name, value in node.attributes.items()
        for _, own in tensors_held(value, name)
    )


def gradients_after(call: Call, choose: Callable[[Run], Tensor]) -> list[Tensor | None] | None:
    """Return the gradients after a change of a tensor in place; None if that raises."""
    run = call.forward()
    grads = run.random_grads()
    with torch.no_grad():
        try:
            change(choose(run))
        except RuntimeError:  # it cannot be changed: expanded memory, a view of a custom Function
            return None
    try:
        return copy_values(run.backward(grads))
    except Exception:
        return None


def change(tensor: Tensor) -> None:
    """Give a tensor other values of the same range, in place."""
    if tensor.layout != torch.strided:
        raise RuntimeError("not strided")
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    elif can_require_grad(tensor):
        generator = make_generator(5)
        factors = 0.5 + 0.4 * torch.rand(tensor.shape, dtype=torch.float64, generator=generator)
        tensor.mul_(factors.to(tensor.dtype))
    elif tensor.dim():
        tensor.copy_(tensor.flip(0).clone())


def keeper_of(nodes: Sequence[NodeTrace], tensor: Tensor) -> Keeper | None:
    """Return what on a node's ctx holds a tensor, or its memory."""
    for node in nodes:
        for attribute, value in node.attributes.items():
            for path, held in tensors_held(value, f"ctx.{attribute}"):
                if shares(held, tensor):
                    return Keeper(path, forward_text(node).assigns(attribute))
    return None
