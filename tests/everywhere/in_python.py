"""Rows of the matrix in Python: `python=` and `function=`, in PyTorch and in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

import pullback as pb
from pullback.define.operator import Autocast

# ruff: noqa: ANN001, ANN205 (the Functions are as people write them)
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false


# --- python=


def product_backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return grad * b, grad * a


def product(name: str, autocast: Autocast) -> pb.Operator:
    return pb.operator(
        f"everywhere::{name}(a[...], b[...]) -> c[...]",
        python=lambda a, b: a * b,
        backward=product_backward,
        autocast=autocast,
    )


def linear_backward(
    grad: Tensor, x: Tensor, weight: Tensor, needs_input_grad: list[bool]
) -> tuple[Tensor | None, ...]:
    return (
        grad @ weight if needs_input_grad[0] else None,
        grad.t() @ x if needs_input_grad[1] else None,
        grad.sum(0) if needs_input_grad[2] else None,
    )


def linear(name: str, autocast: Autocast) -> pb.Operator:
    return pb.operator(
        f"everywhere::{name}(x[n, i], weight[o, i], bias[o]?) -> y[n, o]",
        python=torch.nn.functional.linear,
        backward=linear_backward,
        autocast=autocast,
    )


def sin_cos_backward(
    grad_s: Tensor | None, grad_c: Tensor | None, s: Tensor, c: Tensor
) -> Tensor | None:
    parts = [None if grad_s is None else grad_s * c, None if grad_c is None else -grad_c * s]
    some = [part for part in parts if part is not None]
    return sum(some[1:], some[0]) if some else None


def sin_cos(name: str, autocast: Autocast) -> pb.Operator:
    return pb.operator(
        f"everywhere::{name}(x[...]) -> (s[...], c[...])",
        python=lambda x: (x.sin(), x.cos()),
        backward=sin_cos_backward,
        autocast=autocast,
    )


def numpy_sin(name: str, autocast: Autocast) -> pb.Operator:
    return pb.operator(
        f"everywhere::{name}(x[...]) -> y[...]",
        python=lambda x: np.sin(x.numpy()),
        backward={"x": "aten::mul.Tensor(grad, aten::cos(x))"},
        autocast=autocast,
    )


def correlated(grad: Any, x: Any, k: Any) -> tuple[Any, Any]:
    """Return the gradients of `np.convolve(x, k)`, in NumPy."""
    grad_x = np.correlate(grad, k, "valid") if len(x) else np.zeros_like(x)
    return grad_x.astype(x.dtype), np.correlate(grad, x, "valid").astype(k.dtype)


def numpy_convolve(name: str, autocast: Autocast) -> pb.Operator:
    """With a backward in NumPy, an operator that has no derivative itself."""
    pb.operator(
        f"everywhere::{name}_backward(grad[l], x[n], k[m]) -> (grad_x[n], grad_k[m])",
        python=lambda grad, x, k: correlated(grad.numpy(), x.numpy(), k.numpy()),
    )
    return pb.operator(
        f"everywhere::{name}(x[n], k[m]) -> y[n + m - 1]",
        python=lambda x, k: np.convolve(x.numpy(), k.numpy()),
        backward=f"everywhere::{name}_backward",
        autocast=autocast,
    )


# --- function=


class Product(Function):
    """With ctx, and a gradient summed over what was broadcast."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return (grad * b).sum_to_size(a.shape), (grad * a).sum_to_size(b.shape)


class Linear(Function):
    """With setup_context, an optional input and `needs_input_grad`."""

    @staticmethod
    def forward(x, weight, bias=None):
        y = x.mm(weight.t())
        return y if bias is None else y + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            grad.mm(weight) if needs[0] else None,
            grad.t().mm(x) if needs[1] else None,
            grad.sum(0) if needs[2] else None,
        )


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


class SinCos(Function):
    """Two outputs, whose gradients may be None."""

    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_s, grad_c):
        (x,) = ctx.saved_tensors
        total = torch.zeros_like(x)
        if grad_s is not None:
            total = total + grad_s * x.cos()
        if grad_c is not None:
            total = total - grad_c * x.sin()
        return total


class Convolve(Function):
    """NumPy in both directions."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x, k)
        return torch.from_numpy(np.convolve(x.detach().numpy(), k.detach().numpy()))

    @staticmethod
    def backward(ctx, grad):
        x, k = (t.detach().numpy() for t in ctx.saved_tensors)
        return tuple(map(torch.from_numpy, correlated(grad.detach().numpy(), x, k)))


class Sin(Function):
    """NumPy in forward alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.as_tensor(np.sin(x.detach().numpy()), dtype=x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class Swish(Function):
    """Saves an intermediate."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * (s + x * s * (1 - s))


class SwishKept(Function):
    """The intermediate is an attribute of ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.s = torch.sigmoid(x)
        ctx.save_for_backward(x)
        return x * ctx.s

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (ctx.s + x * ctx.s * (1 - ctx.s))


LINES: dict[type[Function], str] = {
    Product: "(a[...], b[...]) -> c[...]",
    Linear: "(x[n, i], weight[o, i], bias[o]?) -> y[n, o]",
    Exp: "(x[...]) -> y[...]",
    SinCos: "(x[...]) -> (s[...], c[...])",
    Convolve: "(x[n], k[m]) -> y[n + m - 1]",
    Sin: "(x[...]) -> y[...]",
    Swish: "(x[...]) -> y[...]",
    SwishKept: "(x[...]) -> y[...]",
}


def of(function: type[Function]) -> Callable[[str, Autocast], pb.Operator]:
    """Return what adopts a Function."""

    def define(name: str, autocast: Autocast) -> pb.Operator:
        line = f"everywhere::{name}{LINES[function]}"
        return pb.operator(line, function=function, autocast=autocast)

    return define
