"""A backward that PyTorch cannot differentiate, because it goes through NumPy or `detach`.

PyTorch silently leaves the second derivative out. A gradient is linear in the one that arrives, so
if it is not zero and has no path to that one, it is cut off: it gets a node that raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind.levels import (
    BELOW,
    copy_requiring_grad,
    direct,
    has_tangent,
    is_smooth,
    is_tracked,
    lower,
    unwrap,
)
from pullback.diagnostic import PullbackError, Rule

CutDerivative = Rule("PB378", "cut-derivative")

Run = Callable[[Sequence[Any]], Sequence[Any]]


def cut_derivative(of: str, rule: Rule = CutDerivative) -> PullbackError:
    """Return the error for a backward whose results do not depend on what it is given."""
    return rule.error(
        f"what {of} returns is cut off from the gradient that it is given, so it cannot be "
        "differentiated",
        help="compute in PyTorch on the tensors themselves, without numpy(), detach() or "
        "once_differentiable; for forward mode, give a jvp",
    )


LIBRARY = torch.library.Library("pullback", "FRAGMENT")
LIBRARY.define(
    "cut(Tensor value, Tensor[] around, str of) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)


def cut(value: Tensor, around: Sequence[Tensor], of: str) -> Tensor:
    """Return a gradient that raises when differentiated with respect to what is `around` it.

    This is an operator, so that it works at every level of functorch.
    """
    return torch.ops.pullback.cut(value, list(around), of)


def cut_kernel(value: Tensor, around: list[Tensor], of: str) -> Tensor:
    """Return the value."""
    del around, of
    return value.clone()


class CutNode(torch.autograd.Function):
    """Raises in backward."""

    @staticmethod
    def forward(ctx: Any, of: str, value: Tensor, *around: Tensor) -> Tensor:  # noqa: ANN401
        """Return the value, by the same operator one level below."""
        ctx.of = of
        with lower():
            return cut(value, around, of)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:  # noqa: ANN401
        """Raise."""
        raise cut_derivative(ctx.of)


def cut_autograd(value: Tensor, around: list[Tensor], of: str) -> Tensor:
    """Record the node that raises; raise for a tangent."""
    if has_tangent(around):
        raise cut_derivative(of)
    if is_tracked([value, *around]):
        return direct(CutNode)(of, value, *around)
    with BELOW():
        return cut(value, around, of)


def cut_batched(_info: object, dims: Any, value: Tensor, around: list[Tensor], of: str) -> Any:  # noqa: ANN401
    """Keep the batch dimension of the value; only autograd looks at the others."""
    return cut(value, around, of), dims[0]


LIBRARY.impl("cut", cut_kernel, "CompositeExplicitAutograd")
LIBRARY.impl("cut", cut_autograd, "Autograd")
torch.library.register_fake("pullback::cut", cut_kernel, lib=LIBRARY)
torch.library.register_vmap("pullback::cut", cut_batched, lib=LIBRARY)


class Cuts:
    """Which results of one backward are cut off, as far as is known.

    Attributes:
        of: what to call the backward in messages.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self.known: dict[int, bool] = {}

    def guarded(self, run: Run, grads: Sequence[Any], around: Sequence[Any]) -> list[Any]:
        """Run backward; its results raise if they are differentiated and cannot be.

        Args:
            run: backward, which takes gradients.
            grads: the gradients that arrive.
            around: what else the results may depend on.
        """
        results = as_list(run(grads))
        if any(i not in self.known for i, result in enumerate(results) if is_smooth(result)):
            with torch.enable_grad():
                asking = [copy_requiring_grad(g) if is_smooth(g) else g for g in grads]
                self.learn(as_list(run(asking)), asking)
        return self.marked(results, [*grads, *around])

    def marked(self, results: list[Any], around: Sequence[Any]) -> list[Any]:
        """Return the results; those that are cut off raise when they are differentiated."""
        if not any(self.known.values()):
            return results
        return self.cut(results, around, [i for i, known in self.known.items() if known])

    def cut(
        self, results: list[Any], around: Sequence[Any], which: Sequence[int] | None = None
    ) -> list[Any]:
        """Return the results; those in `which`, or all, raise when they are differentiated."""
        tensors = [t for t in around if isinstance(t, Tensor) and t.requires_grad]
        return [
            cut(result, tensors, self.of)
            if is_smooth(result) and (which is None or i in which)
            else result
            for i, result in enumerate(results)
        ]

    def learn(self, results: Sequence[Any], grads: Sequence[Any]) -> None:
        """Find out which results have a path to the gradients, if they are not zero."""
        inputs = [g for g in grads if is_smooth(g) and g.requires_grad]
        for index, result in enumerate(results):
            if index in self.known or not is_smooth(result) or not inputs:
                continue
            if has_path(result, inputs):
                self.known[index] = False
            elif not is_zero(result):
                self.known[index] = True

    def require_none(self, results: Sequence[Any], grads: Sequence[Any], rule: Rule) -> None:
        """Stop if a result is cut off from gradients that all require a gradient."""
        self.learn(results, grads)
        if any(self.known.get(index) for index in range(len(results))):
            raise cut_derivative(self.of, rule)


def as_list(results: Any) -> list[Any]:  # noqa: ANN401
    """Return a backward's results as a list, one value for each input."""
    return list(results) if isinstance(results, tuple | list) else [results]


def has_path(result: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Return whether a result depends on one of the inputs, as far as PyTorch knows."""
    if not result.requires_grad:
        return False
    ones = torch.ones_like(result)
    grads = torch.autograd.grad(result, inputs, ones, retain_graph=True, allow_unused=True)
    return any(g is not None for g in grads)  # pyright: ignore[reportUnnecessaryComparison]


def is_zero(result: Tensor) -> bool:
    """Return whether a gradient is zero, and so depends on nothing; False without values."""
    value = unwrap(result)
    if type(value) not in (Tensor, torch.nn.Parameter):
        return False
    # NumPy's results have values even while PyTorch traces, but a tracer refuses to read them.
    with torch._C._DisableTorchDispatch():
        return not bool(value.detach().any())
