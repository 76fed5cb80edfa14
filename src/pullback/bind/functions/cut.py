"""A backward that PyTorch cannot differentiate, because it goes through NumPy or `detach`.

PyTorch leaves the second derivative out without a word. Here its results get a node that raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.bind.functions.adopted import Adopted
from pullback.diagnostic import PullbackError, Rule

CutDerivative = Rule("PB378", "cut-derivative")

Backward = Callable[..., Sequence[Any]]


def cut_derivative(adopted: Adopted, rule: Rule = CutDerivative) -> PullbackError:
    """Return the error for a backward whose results do not depend on what it is given."""
    return rule.error(
        f"{adopted.line.qualname}: what backward of {adopted.function.__name__} returns is cut off "
        "from the gradient that it is given, so it cannot be differentiated",
        help="compute in PyTorch on the tensors themselves, without numpy(), detach() or "
        "once_differentiable; for forward mode, give the Function a jvp",
    )


class Raises(torch.autograd.Function):
    """Passes a gradient on, and raises when it is differentiated."""

    @staticmethod
    def forward(ctx: Any, error: Exception, value: Tensor, *_: Tensor) -> Tensor:  # noqa: ANN401
        """Return the value; the other tensors are what it may depend on."""
        ctx.error = error
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:  # noqa: ANN401
        """Raise."""
        raise ctx.error


class Cuts:
    """Guards the backward of one Function in `create_graph` mode."""

    def __init__(self, adopted: Adopted) -> None:
        self.adopted = adopted
        self.is_cut: bool | None = None  # not known yet

    def guarded(self, backward: Backward, ctx: Any, grads: Sequence[Any]) -> list[Any]:  # noqa: ANN401
        """Run backward; its results raise if they are differentiated and it cannot be."""
        results = as_list(backward(ctx, *grads))
        if not any(is_loose(result) for result in results):
            return results
        if self.is_cut is None:
            self.is_cut = self.stays_loose(backward, ctx, grads)
        if not self.is_cut:
            return results
        around = [t for t in (*grads, *ctx.saved_tensors) if t is not None and t.requires_grad]
        error = cut_derivative(self.adopted)
        return [Raises.apply(error, r, *around) if is_loose(r) else r for r in results]

    @staticmethod
    def stays_loose(backward: Backward, ctx: Any, grads: Sequence[Any]) -> bool:  # noqa: ANN401
        """Return whether results depend on no gradient, even if all gradients ask for it."""
        asking = [g if g is None else g.detach().requires_grad_() for g in grads]
        return any(is_loose(result) for result in as_list(backward(ctx, *asking)))


def as_list(results: Any) -> list[Any]:  # noqa: ANN401
    """Return what a backward returned, one value an input."""
    return list(results) if isinstance(results, tuple | list) else [results]


def is_loose(result: object) -> bool:
    """Return whether a gradient that is not zero has no history."""
    if not isinstance(result, Tensor) or not result.is_floating_point():
        return False
    ends = not result.requires_grad or is_error(result)
    return ends and bool(result.detach().any())


def is_error(result: Tensor) -> bool:
    """Return whether it is of a backward marked `once_differentiable`, which raises too late."""
    return result.grad_fn is not None and result.grad_fn.name() == "torch::autograd::Error"
