"""Formulas that are wrong for some values, options, sizes, dtypes or outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.verify.case import Function, Made, d, f
from tests.verify.catalogue.row import row


@row("F07", "linear", "clip")
def not_linear(right: bool) -> Made:
    class Clip(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 3 * (grad if right else grad.clamp(-1, 1))

    return Clip, (d(4, 2),)


@row("F15", "20", "threshold")
def region(right: bool) -> Made:
    class Softplus(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.where(x > 20, x, x.clamp(max=20).exp().log1p())

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            high = torch.ones_like(x) if right else torch.zeros_like(x)
            return grad * torch.where(x > 20, high, x.sigmoid())

    return Softplus, (d(8),)


@row("F16", "NaN")
def nan_at_zero(right: bool) -> Made:
    class Norm(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            n = x.square().sum(-1, keepdim=True).sqrt()
            ctx.save_for_backward(x, n)
            return n

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            x, n = ctx.saved_tensors
            return grad * (torch.where(n == 0, 0, x / n.clamp_min(1e-300)) if right else x / n)

    return Norm, (d(3, 4),)


@row("F16", "NaN")
def nan_of_a_vector(right: bool) -> Made:
    class Norm(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            n = x.norm()
            ctx.save_for_backward(x, n)
            return n

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            x, n = ctx.saved_tensors
            return grad * x / (torch.where(n == 0, 1, n) if right else n)

    return Norm, (d(5),)


@row("F16", "NaN for `a` equal to `b`")
def nan_of_a_distance(right: bool) -> Made:
    class Distance(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            n = (a - b).norm(dim=-1, keepdim=True)
            ctx.save_for_backward(a, b, n)
            return n

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            a, b, n = ctx.saved_tensors
            way = grad * (a - b) / (torch.where(n == 0, 1, n) if right else n)
            return way, -way

    return Distance, (d(3, 4), d(3, 4))


@row("F17", "sum", "reduction")
def option(right: bool) -> Made:
    class Mse(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, t: Tensor, reduction: str = "mean") -> Tensor:
            ctx.save_for_backward(x, t)
            ctx.reduction = reduction
            loss = (x - t).square()
            return loss.mean() if reduction == "mean" else loss.sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            x, t = ctx.saved_tensors
            g = 2 * (x - t) * grad
            if ctx.reduction == "mean" or not right:
                g = g / x.numel()
            return g, -g, None

    return Mse, (d(3, 4), d(3, 4), "mean")


@row("F18", "64", "tail", "size")
def block_tail(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            out = torch.zeros_like(grad).view(-1)
            n = out.numel()
            end = n if right or n <= 64 else n // 64 * 64
            out[:end] = 2 * grad.reshape(-1)[:end]
            return out.view(grad.shape)

    return Double, (d(10),)


@row("F20", "bfloat16", "float32")
def running_sum(right: bool) -> Made:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            if right:
                return grad * w, (grad.float() * x.float()).sum(0).to(w.dtype)
            total = torch.zeros_like(w)
            for g, a in zip(grad, x, strict=True):
                total += g * a
            return grad * w, total

    x = torch.rand(64, 4, dtype=torch.bfloat16).requires_grad_()
    return Scale, (x, torch.rand(4, dtype=torch.bfloat16).requires_grad_())


@row("F21", "float32")
def dtype_path(right: bool) -> Made:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            if x.dtype == torch.float32 and not right:
                return grad * x
            return 2 * grad * x

    return Square, (d(4, 4),)


@row("F23", "weight")
def closure(right: bool) -> Made:
    weight = nn.Parameter(torch.randn(4, dtype=torch.float64))

    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * weight.detach()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * weight.detach()

    class ScaleByArgument(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad * w, (grad * x).sum(0)

    if right:
        return (lambda x: ScaleByArgument.apply(x, weight)), (d(3, 4),)
    return Scale, (d(3, 4),)


@row("F24", "xs")
def in_a_list(right: bool) -> Made:
    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, xs: list[Tensor]) -> Tensor:
            return xs[0] + 2 * xs[1]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            return None

    class SumOf(Function):
        @staticmethod
        def forward(ctx: Any, *xs: Tensor) -> Tensor:
            return xs[0] + 2 * xs[1]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            return grad, 2 * grad

    return (SumOf, (d(3), d(3))) if right else (Sum, ([d(3), d(3)],))


@row("F25", "sign")
def tiny(right: bool) -> Made:
    factor = 3e-7 if right else -3e-7

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return 1e-7 * x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return factor * grad * x * x

    return Cube, (d(3),)


@row("D01", "float32", "digits")
def low_precision(right: bool) -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return grad * y if right else grad.float() * y.float()

    return Exp, (d(4),)


@row("D02", "autocast")
def autocast(right: bool) -> Made:
    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            if right:
                return grad.to(w.dtype) @ w.t(), x.t() @ grad.to(x.dtype)
            return grad @ w.t(), x.t() @ grad

    return Linear, (f(3, 4), f(4, 5))


@row("D03", "conj")
def conjugate(right: bool) -> Made:
    class Mul(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            if right:
                return grad * y.conj(), grad * x.conj()
            return grad * y, grad * x

    z = torch.randn(2, 5, dtype=torch.complex128)
    return Mul, (z[0].clone().requires_grad_(), z[1].clone().requires_grad_())
