"""Faults of second derivatives, forward mode and transforms, each with a twin that is right."""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from tests.verify.case import Made, d, f
from tests.verify.composition.case import case

# As scripts have it at their top.
DEVICE = torch.device("cpu")


@case("PB566", "ctx.parts", "intermediate")
def attribute_in_a_dictionary(repaired: bool) -> Made:
    class Softplus(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            e = x.exp()
            ctx.save_for_backward(x)
            ctx.parts = {"e": e, "shape": x.shape}
            return e.log1p()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            e = x.exp() if repaired else ctx.parts["e"]
            return grad * e / (1 + e)

    return Softplus, (d(3, 2),)


@case("PB566", "`norm`", "neither input nor output")
def new_style_intermediate(repaired: bool) -> Made:
    class Normalised(Function):
        @staticmethod
        def forward(x: Tensor, scale: Tensor) -> Tensor:
            return scale * x / x.square().sum(-1, keepdim=True).sqrt()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            x, scale = inputs
            norm = x.detach().square().sum(-1, keepdim=True).sqrt()
            ctx.save_for_backward(x, scale, norm)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, scale, norm = ctx.saved_tensors
            if repaired:
                norm = x.square().sum(-1, keepdim=True).sqrt()
            y = x / norm
            u = grad * scale
            return (u - y * (u * y).sum(-1, keepdim=True)) / norm, (grad * y).sum(0)

    return (lambda x, s: 1 * Normalised.apply(x, s)), (d(3, 4), d(4))


@case("PB567", "x.data")
def data_saved(repaired: bool) -> Made:
    class Product(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            x, y = inputs
            if repaired:
                ctx.save_for_backward(x, y)
            else:
                ctx.save_for_backward(x.data, y)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    return Product, (d(4), d(4))


@case("PB568", "once_differentiable", "no_grad")
def no_grad_in_backward(repaired: bool) -> Made:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            if repaired:
                return grad * y
            with torch.no_grad():
                return grad * y

    return Exp, (d(5),)


@case("PB568", "once_differentiable", "leaves autograd")
def one_factor_detached(repaired: bool) -> Made:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * (y if repaired else y.data), grad * x

    return Product, (d(4), d(4))


@case("PB568", "item", "leaves autograd")
def number_taken_out(repaired: bool) -> Made:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: Tensor) -> Tensor:
            ctx.save_for_backward(x, k)
            return x * k

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, k = ctx.saved_tensors
            return grad * (k if repaired else k.item()), (grad * x).sum()

    return Scaled, (d(4), d())


@case("PB565", "inner graph")
def inner_graph_in_a_module(repaired: bool) -> Made:
    class Run(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            if repaired:
                return (x @ w).tanh()
            with torch.enable_grad():
                ctx.inner = [t.detach().requires_grad_() for t in (x, w)]
                ctx.outer = (ctx.inner[0] @ ctx.inner[1]).tanh()
            return ctx.outer.detach()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            if not repaired:
                return torch.autograd.grad(ctx.outer, ctx.inner, grad, retain_graph=True)
            x, w = ctx.saved_tensors
            g = grad * (1 - (x @ w).tanh() ** 2)
            return g @ w.t(), x.t() @ g

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 2, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return Run.apply(x, self.w)

    return Layer(), (d(3, 4),)


@case("PB571", "jvp is wrong")
def jvp_misses_a_term(repaired: bool) -> Made:
    class Product(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

        @staticmethod
        def jvp(ctx: Any, tx: Tensor | None, ty: Tensor | None) -> Tensor:
            x, y = ctx.saved_tensors
            first = torch.zeros_like(x) if tx is None else tx * y
            return first + x * ty if repaired and ty is not None else first

    return Product, (d(4), d(4))


@case("PB580", "in_dims")
def vmap_forgets_the_second(repaired: bool) -> Made:
    class Affine(Function):
        @staticmethod
        def forward(x: Tensor, b: Tensor) -> Tensor:
            return 3 * x + b

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            return 3 * grad, grad

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, b: Tensor) -> tuple[Tensor, int]:
            dim = in_dims[0] or 0
            x = x.movedim(dim, 0) if in_dims[0] is not None else x
            if repaired:
                b = b.movedim(in_dims[1], 0) if in_dims[1] is not None else b
            return Affine.apply(x, b), 0

    return Affine, (d(3, 3), d(3, 3))


@case("PB575", "autocast")
def autocast_addmm(repaired: bool) -> Made:
    class Dense(Function):
        @staticmethod
        def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            return torch.addmm(b, x, w)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(inputs[0], inputs[1])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x, w = ctx.saved_tensors
            if repaired:
                grad = grad.to(x.dtype)
            return torch.mm(grad, w.t()), torch.mm(x.t(), grad), grad.sum(0)

    return Dense, (f(3, 4), f(4, 5), f(5))


@case("PB590", "device")
def buffer_on_a_constant_device(repaired: bool) -> Made:
    class Padded(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x[1:] * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if repaired:
                return torch.cat([grad.new_zeros(1), grad])
            return torch.cat([torch.zeros(1, dtype=grad.dtype, device=DEVICE), grad])

    return Padded, (d(4),)


@case("PB575", "autocast", level="advice")
def autocast_of_float64(repaired: bool) -> Made:
    class Dense(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            if repaired:
                grad = grad.to(w.dtype)
            return grad @ w.t(), x.t() @ grad

    return Dense, (d(3, 4), d(4, 5))


@case("PB590", "default device", level="advice")
def buffer_without_a_device(repaired: bool) -> Made:
    class Padded(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x[1:] * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            zero = grad.new_zeros(1) if repaired else torch.zeros(1, dtype=grad.dtype)
            return torch.cat([zero, grad])

    return Padded, (d(4),)


@case("PB577", "checkpoint")
def saves_less_the_second_time(repaired: bool) -> Made:
    class Counting(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            Counting.calls += 1
            both = Counting.calls % 2 == 0 and not repaired
            ctx.save_for_backward(*([x, x] if both else [x]))
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            saved = ctx.saved_tensors
            return grad * saved[0].cos()

    return Counting, (d(4),)


@case("PB529", "inference_mode", "no_grad")
def other_path_in_evaluation(repaired: bool) -> Made:
    class Fast(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * (1 - ctx.saved_tensors[0].tanh() ** 2)

    def layer(x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or repaired:
            return Fast.apply(x)
        return x.clamp(-1, 1)

    return layer, (d(4),)
