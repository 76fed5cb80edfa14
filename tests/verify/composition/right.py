"""Right code that looks like a fault: it has to stay silent."""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.verify.case import Made, d, f
from tests.verify.composition.case import right


@right
def mask_saved() -> Made:
    class Relu(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            mask = x > 0
            ctx.save_for_backward(mask)
            ctx.scale = torch.tensor(2.0, dtype=x.dtype)
            return 2 * x * mask

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (mask,) = ctx.saved_tensors
            return ctx.scale * grad * mask

    return Relu, (d(3, 4),)


@right
def float_mask_and_dropout() -> Made:
    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
            keep = (torch.rand_like(x) > p).to(x.dtype) / (1 - p)
            ctx.save_for_backward(keep)
            return x * keep

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.saved_tensors[0], None

    return Dropout, (d(5, 4), 0.25)


@right
def host_kernel_once() -> Made:
    class Numpy(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.from_numpy(np.sin(x.detach().cpu().numpy())).to(x.device)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * torch.from_numpy(np.cos(x.detach().cpu().numpy())).to(x.device)

    return Numpy, (d(4),)


@right
def second_derivative_by_another_function() -> Made:
    class SquareBackward(Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(grad, x)
            return torch.from_numpy(2 * grad.detach().numpy() * x.detach().numpy())

        @staticmethod
        def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, Tensor]:
            grad, x = ctx.saved_tensors
            return 2 * outer * x, 2 * outer * grad

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return SquareBackward.apply(grad, ctx.saved_tensors[0])

    return Square, (d(4),)


@right
def intermediate_as_an_output() -> Made:
    class Sinc(Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            return x.sin() * x, x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
            ctx.save_for_backward(inputs[0], output[1])

        @staticmethod
        def backward(ctx: Any, grad: Tensor, other: Tensor) -> Tensor:
            x, s = ctx.saved_tensors
            return grad * (s + x * x.cos()) + other * x.cos()

    return Sinc, (d(4),)


@right
def complex_product() -> Made:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y.conj(), grad * x.conj()

    z = torch.randn(2, 4, dtype=torch.complex128)
    return Product, (z[0].clone().requires_grad_(), z[1].clone().requires_grad_())


@right
def kink_and_single_precision() -> Made:
    class Huber(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.where(x.abs() < 1, x * x / 2, x.abs() - 0.5)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].clamp(-1, 1)

    return Huber, (f(40),)


@right
def in_place_and_dirty() -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad

    return Double, (d(4),)


@right
def stop_gradient_on_purpose() -> Made:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad

    return (lambda x: Twice.apply(x) + x.detach().round().sign()), (d(4),)


@right
def eigenvectors_of_a_symmetric_matrix() -> Made:
    class Eigen(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
            values, vectors = torch.linalg.eigh(a)
            ctx.save_for_backward(values, vectors)
            return values, vectors

        @staticmethod
        def backward(ctx: Any, to_values: Tensor, to_vectors: Tensor) -> Tensor:
            values, vectors = ctx.saved_tensors
            gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
            gaps = torch.where(gaps == 0, torch.inf, gaps)
            inner = vectors.mT @ to_vectors / gaps + torch.diag_embed(to_values)
            gradient = vectors @ inner @ vectors.mT
            return (gradient + gradient.mT) / 2

    a = torch.randn(4, 4, dtype=torch.float64)
    return Eigen, ((a + a.mT).requires_grad_(),)
