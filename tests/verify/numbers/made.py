"""What the table of wrong gradients is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Backward = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A forward, its right backward, and wrong ones: (backward, words of which one is said)."""

    name: str
    forward: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    right: Backward
    wrong: tuple[tuple[Backward, tuple[str, ...]], ...]


def function(forward: Callable[..., Any], backward: Backward) -> type[Function]:
    """Return an autograd.Function: backward gets the gradients, then (inputs, outputs)."""

    class Own(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            returned = forward(*args)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            ctx.rest = [None if isinstance(a, Tensor) else a for a in args]
            ctx.save_for_backward(*[a for a in args if isinstance(a, Tensor)], *outputs)
            ctx.count = len(outputs)
            return returned

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = list(ctx.saved_tensors)
            outputs, tensors = saved[-ctx.count :], iter(saved[: -ctx.count])
            args = [next(tensors) if own is None else own for own in ctx.rest]
            found = backward(*grads, *args, *outputs)
            found = found if isinstance(found, tuple) else (found,)
            return (*found, *[None] * (len(args) - len(found)))

    return Own


def positive(*shape: int) -> Tensor:
    """Return random numbers between 0.5 and 2."""
    return (torch.rand(*shape, dtype=torch.float64) * 1.5 + 0.5).requires_grad_()


def c(*shape: int) -> Tensor:
    """Return random complex numbers."""
    return torch.randn(*shape, dtype=torch.complex128, requires_grad=True)


def softmax_mean(g: Tensor, y: Tensor) -> Tensor:
    """Return the term of a softmax's gradient that sums over a row."""
    return y * (g * y).sum(-1, keepdim=True)


def normalised(x: Tensor) -> Tensor:
    """Return a layer norm without parameters."""
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()


def layer_norm(g: Tensor, x: Tensor, y: Tensor, *, mean: bool = True, var: bool = True) -> Tensor:
    """Return the gradient of a layer norm, with or without its terms."""
    std = (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    rest = g
    if mean:
        rest = rest - g.mean(-1, keepdim=True)
    if var:
        rest = rest - y * (g * y).mean(-1, keepdim=True)
    return rest / std


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """Return the correlation of two sequences."""
    return torch.nn.functional.conv1d(x[None, None], w[None, None])[0, 0]


def convolve_back(g: Tensor, w: Tensor) -> Tensor:
    """Return the gradient for the input of `convolve`."""
    return torch.nn.functional.conv_transpose1d(g[None, None], w[None, None])[0, 0]


def first(index: int, part: Tensor) -> Tensor:
    """Return a part with zeros from an index on."""
    return torch.cat([part[:index], torch.zeros_like(part[index:])])
