"""Formulas that are wrong for every input."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.verify.case import Function, Made, d
from tests.verify.catalogue.row import row


@row("F01", "wrong sign")
def sign(right: bool) -> Made:
    factor = 1 if right else -1

    class Sin(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return factor * grad * x.cos()

    return Sin, (d(3, 4),)


@row("F02", "0.5", "factor")
def constant(right: bool) -> Made:
    factor = 2 if right else 1

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return factor * grad * ctx.saved_tensors[0]

    return Square, (d(5),)


@row("F02", "factor", "scale")
def attention_scale(right: bool) -> Made:
    class Attention(Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scale = q.shape[-1] ** -0.5
            p = (q @ k.mT * scale).softmax(-1)
            ctx.save_for_backward(q, k, v)
            ctx.scale = scale
            return p @ v

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            q, k, v = ctx.saved_tensors
            p = (q @ k.mT * ctx.scale).softmax(-1)
            gp = grad @ v.mT
            gs = p * (gp - (gp * p).sum(-1, keepdim=True))
            dk = gs.mT @ q
            return gs @ k * ctx.scale, dk * ctx.scale if right else dk, p.mT @ grad

    return Attention, (d(2, 5, 4), d(2, 6, 4), d(2, 6, 3))


@row("F03", "transpose")
def transpose(right: bool) -> Made:
    class Matmul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad @ (w.t() if right else w), x.t() @ grad

    return Matmul, (d(3, 4), d(4, 4))


@row("F04", "sum", "term", "diagonal")
def missing_term(right: bool) -> Made:
    class Softmax(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            if not right:
                return grad * y
            return y * (grad - (grad * y).sum(-1, keepdim=True))

    return Softmax, (d(3, 5),)


@row("F05", "never used", "ignored", "ignores")
def grad_ignored(right: bool) -> Made:
    class Loss(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x * x).sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 2 * x * grad if right else 2 * x

    return Loss, (d(6),)


@row("F09", "axis")
def wrong_axis(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x, b)
            return x * b[:, None]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, b = ctx.saved_tensors
            full = grad * x
            return grad * b[:, None], full.sum(1) if right else full

    return Scale, (d(4, 4), d(4))


@row("F09b", "shape", "sum over")
def not_reduced(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x, b)
            return x * b[:, None]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, b = ctx.saved_tensors
            full = grad * x
            return grad * b[:, None], full.sum(1) if right else full

    return Scale, (d(4, 5), d(4))


@row("F10", "leading", "extra")
def extra_axis(right: bool) -> Made:
    class Mean(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.shape = x.shape
            return x.mean()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            shape = ctx.shape if right else (2, *ctx.shape)
            return (grad / ctx.shape.numel()).expand(shape)

    return Mean, (d(3, 4),)


@row("F12", "output", "saved")
def wrong_saved(right: bool) -> Made:
    class Tanh(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.tanh()
            ctx.save_for_backward(y if right else x)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return grad * (1 - y**2)

    return Tanh, (d(3, 3),)


@row("F13", "None")
def none_returned(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x, b)
            return x * b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
            x, b = ctx.saved_tensors
            return grad * b, grad * x if right else None

    return Mul, (d(4), d(4))


@row("F14b", "order", "exchanged")
def exchanged(right: bool) -> Made:
    class Matmul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            dx, dw = grad @ w.t(), x.t() @ grad
            return (dx, dw) if right else (dw, dx)

    return Matmul, (d(2, 3), d(3, 5))


@row("F14", "order", "exchanged")
def exchanged_same_shape(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            a, b = ctx.saved_tensors
            return (grad * b, grad * a) if right else (grad * a, grad * b)

    return Mul, (d(5), d(5))


@row("F22", "output 1", "second output")
def second_output(right: bool) -> Made:
    class SinCos(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx: Any, gs: Tensor, gc: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gs * x.cos() - gc * x.sin() if right else gs * x.cos()

    return SinCos, (d(4),)
