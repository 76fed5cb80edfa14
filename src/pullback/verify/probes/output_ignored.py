"""The gradient of one of several outputs is ignored."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.agreement import describe_differing, find_differing
from pullback.verify.call import Call
from pullback.verify.invariance.answer import (
    Answer,
    backward_place,
    compute_answer,
    grad_name,
    steady_answer,
)
from pullback.verify.numbers.gradient import compare_gradients
from pullback.verify.probe import NotApplicable, Probe


class OutputIgnored(Probe):
    """Backward uses the gradient of each output, even if it arrives for that output alone.

    ## Why
    A second output is often added later, such as a log-sum-exp beside the result; its gradient is
    easily forgotten. Tests that add all outputs up, or use only the first, do not show it.

    ## Fails
    ```python
    class SquareAndCube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2, x**3

        @staticmethod
        def backward(ctx, squared, cubed):
            (x,) = ctx.saved_tensors
            return 2 * x * squared


    inputs = (torch.randn(2, 4, dtype=torch.float64),)
    ```

    ## Passes
    ```python
    class SquareAndCubeBoth(SquareAndCube):
        @staticmethod
        def backward(ctx, squared, cubed):
            (x,) = ctx.saved_tensors
            return 2 * x * squared + 3 * x**2 * cubed
    ```

    ## Cannot see
    An output on which no differentiable input has an effect.
    """

    code = "PB535"
    name = "output-gradient-ignored"
    help = "add what this output contributes; if it has none, mark it non-differentiable"
    about = frozenset({"numbers"})
    intentions = frozenset({"surrogate", "tangent_space"})
    explains = frozenset({"numbers", "values", "second", "transform", "tangent"})

    def examine(self, call: Call) -> Iterator[Finding]:
        """Send a gradient for each output alone."""
        base = steady_answer(call)
        used = [i for i, grad in enumerate(base.grads) if grad is not None]
        if len(used) < 2:
            raise NotApplicable("there is one differentiable output")
        alone = {i: compute_answer(call, only_grad(base, i)) for i in used}
        found = self.ignored(call, base, alone) or self.parts(call, base, alone)
        if found is not None:
            yield found

    def ignored(self, call: Call, base: Answer, alone: dict[int, Answer]) -> Finding | None:
        """Look for an output that gives an input no gradient although it depends on that input."""
        silent = [
            (leaf, i)
            for i, own in alone.items()
            for leaf in call.wanted
            if is_zero(own.gradients[leaf])
            and any(not is_zero(other.gradients[leaf]) for other in alone.values())
        ]
        if not silent:
            return None
        wrong = {(m.leaf, m.output): m for m in compare_gradients(call).mismatches}
        hit = [pair for pair in silent if pair in wrong]
        if not hit:
            return None
        output = hit[0][1]
        names = [f"`{call.leaves[leaf].name}`" for leaf, i in hit if i == output]
        first = wrong[hit[0]]
        return self.breach(
            f"{call.target.name}: the gradient that arrives for output {output} "
            f"(`{grad_name(call, output)}`) is ignored: the gradient of {', '.join(names)} is 0 "
            f"if only output {output} is used, though that output depends on it",
            where=backward_place(call),
            numeric=f"{first.numeric:.4g} in a random direction, analytic 0",
        )

    def parts(self, call: Call, base: Answer, alone: dict[int, Answer]) -> Finding | None:
        """Compare the sum of the outputs' separate gradients with the gradient of all together."""
        for leaf in call.wanted:
            every = [own.gradients[leaf] for own in alone.values()]
            given = [gradient for gradient in every if gradient is not None]
            total = torch.stack(given).sum(0) if given else None
            whole = base.gradients[leaf]
            if not all(bool(t.isfinite().all()) for t in (total, whole) if t is not None):
                continue
            if (where := find_differing(whole, total)) is not None:
                return self.breach(
                    f"{call.target.name}: the gradient of `{call.leaves[leaf].name}` for all "
                    "outputs together is not the sum of its gradients for each output alone: "
                    "one of them is ignored, or used twice, when others arrive",
                    where=backward_place(call),
                    wrong=describe_differing(where, whole, total),
                )
        return None


def only_grad(base: Answer, output: int) -> list[Tensor | None]:
    """Return the gradient for one output, None for the others."""
    return [grad if i == output else None for i, grad in enumerate(base.grads)]


def is_zero(gradient: Tensor | None) -> bool:
    """Tell whether nothing arrived."""
    return gradient is None or not bool(gradient.any())
