"""Forward mode through backward gives wrong numbers."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pullback.diagnostic import Finding
from pullback.verify.call import Call, Run, tensors_in
from pullback.verify.composition.refusal import is_refusal
from pullback.verify.composition.transforms import gradients_of
from pullback.verify.numbers.judged import draw_weights, find_disagreement
from pullback.verify.numbers.second import compare_second, draw_directions, slopes_along
from pullback.verify.numbers.tangent import forward_mode
from pullback.verify.probe import NotApplicable, Probe
from pullback.verify.source import Text


class TangentOfBackward(Probe):
    """Forward mode through backward, the usual way to a Hessian, gives the derivative of backward.

    ## Why
    `torch.func.hessian` pushes tangents through the gradient. A tensor that backward reads has to
    carry its tangent: one that forward saved detached, or computed in a kernel, carries none.

    ## Fails
    ```python
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            x = torch.autograd.forward_ad.unpack_dual(x).primal
            return 3 * x * x * grad

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 3 * x * x * tangent


    inputs = (torch.randn(4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class CubeRight(Cube):
        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad
    ```

    ## Cannot see
    A Function without `jvp`: forward mode says that there is none.
    """

    code = "PB572"
    name = "tangent-of-backward-wrong"
    help = "compute backward from the saved inputs and outputs with operations of PyTorch"
    about = frozenset({"tangent", "second"})
    explains = frozenset({"tangent"})
    intentions = frozenset(
        {"once_differentiable", "straight_through", "surrogate", "tangent_space"}
    )

    def examine(self, call: Call) -> Iterator[Finding]:
        """Push a tangent of the inputs through forward and backward."""
        if forward_mode(call).error is not None:
            raise NotApplicable("forward mode raises")
        known = compare_second(call)
        work = known.call
        grads = [None if g is None else g.detach() for g in work.forward().random_grads()]
        way = [*draw_directions(work, grads)[: len(work.leaves)], *(None for _ in grads)]
        try:
            found = through_backward(work, grads, way[: len(work.leaves)])
        except Exception as error:
            why = "there is none" if is_refusal(error) else "it raises"
            raise NotApplicable(f"forward mode through backward: {why}") from error
        slopes = slopes_along(work, grads, way)
        for leaf, part in slopes.items():
            weights = draw_weights(part, leaf)
            if weights is None:
                continue
            if numbers := find_disagreement(work, found[leaf], part, weights):
                backward = call.target.parts.get("backward")
                yield self.breach(
                    f"{call.target.name}: forward mode through backward is wrong for the gradient "
                    f"of `{call.leaves[leaf].name}`",
                    where=None if backward is None else Text(backward).place,
                    tangent=f"{numbers[0]:.6g}, {numbers[1]:.6g} by differences",
                )
                return


def through_backward(
    call: Call, grads: list[Tensor | None], way: list[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the tangents of the gradients."""
    if call.target.kind == "operator":
        return by_func(call, way)
    with forward_ad.dual_level():
        leaves = [leaf.value.detach().clone() for leaf in call.leaves]
        given = [
            value
            if d is None
            else forward_ad.make_dual(value.requires_grad_(), d.to(value.dtype).clone())
            for value, d in zip(leaves, way, strict=True)
        ]
        with torch.enable_grad():
            returned = call.on(given)
        run = Run(
            leaves=tuple(leaves),
            given=tuple(given),
            returned=returned,
            outputs=tensors_in(returned),
            seed=call.seed,
        )
        gradients = run.backward(grads, create_graph=True)
        return tuple(
            None if g is None else unpack(forward_ad.unpack_dual(g).tangent) for g in gradients
        )


def by_func(call: Call, way: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return the same from torch.func, whose levels an operator of pullback follows."""
    values = [leaf.value.detach() for leaf in call.leaves]
    wanted = call.wanted
    gradients = gradients_of(call)

    def function(*own: Tensor) -> tuple[Tensor, ...]:
        given = list(values)
        for index, value in zip(wanted, own, strict=True):
            given[index] = value
        return gradients(*given)

    primals = tuple(values[i] for i in wanted)
    tangents = tuple(d.to(values[i].dtype) for i in wanted if (d := way[i]) is not None)
    pushed: Any = torch.func.jvp(function, primals, tangents)[1]
    found: list[Tensor | None] = [None] * len(values)
    for index, tangent in zip(wanted, pushed, strict=True):
        found[index] = tangent
    return tuple(found)


def unpack(tangent: Tensor | None) -> Tensor | None:
    """Return a tangent that outlives its level."""
    return None if tangent is None else tangent.detach().clone()
