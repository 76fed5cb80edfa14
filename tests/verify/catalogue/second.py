"""Second derivatives and forward mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.verify.case import Function, Made, d
from tests.verify.catalogue.row import row


@row("C03", "intermediate", "neither")
def intermediate_saved(right: bool) -> Made:
    class Gauss(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            e = (-x * x).exp()
            ctx.save_for_backward(x, e)
            return e * 3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            x, e = ctx.saved_tensors
            if right:
                e = (-x * x).exp()
            return grad * 3 * e * -2 * x

    return Gauss, (d(4),)


@row("C04", "detach")
def saved_detached(right: bool) -> Made:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x if right else x.detach())
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad

    return Cube, (d(4),)


@row("C06", "once_differentiable", "leaves autograd")
def numpy_in_backward(right: bool) -> Made:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(grad.detach().numpy() * 2 * x.detach().numpy())

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

    own: Any = torch.autograd.function.once_differentiable(backward) if right else backward
    Square.backward = staticmethod(own)
    return Square, (d(4),)


@row("C23", "inner graph", "kept on ctx")
def inner_graph(right: bool) -> Made:
    class Sin(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            if not right:
                with torch.enable_grad():
                    ctx.x = x.detach().requires_grad_()
                    ctx.y = ctx.x.sin() * ctx.x
                return ctx.y.detach()
            return x.sin() * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if not right:
                return torch.autograd.grad(ctx.y, ctx.x, grad, retain_graph=True)[0]
            (x,) = ctx.saved_tensors
            return grad * (x.cos() * x + x.sin())

    return Sin, (d(4),)


@row("C24", "jvp")
def jvp_wrong(right: bool) -> Made:
    sign = 1 if right else -1

    class Sin(Function):
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx: Any, tangent: Tensor) -> Tensor:
            return sign * tangent * ctx.saved_tensors[0].cos()

    return Sin, (d(4),)


@row("C25", "save_for_forward")
def jvp_crashes(right: bool) -> Made:
    class Sin(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            if right:
                ctx.save_for_forward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx: Any, tangent: Tensor) -> Tensor:
            return tangent * ctx.saved_tensors[0].cos()

    return Sin, (d(4),)
