"""Layouts, shapes, random state, memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.verify.case import Function, Made, d, f
from tests.verify.catalogue.row import row


def as_if_contiguous(tensor: Tensor) -> Tensor:
    """Return the first elements of a tensor's memory, as a kernel reads it that ignores strides."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    flat = tensor.detach().as_strided((size,), (1,))
    count = tensor.numel()
    missing = max(0, count - size)
    return torch.cat([flat, flat.new_full((missing,), 1e3)])[:count].view(tensor.shape)


@row("S01", "contiguous")
def view_of_grad(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.shape = x.shape
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            flat = grad.reshape(-1) if right else grad.view(-1)
            return (flat * 2).view(ctx.shape)

    return Double, (d(3, 4),)


@row("S02", "contiguous", "strides")
def strides_of_grad(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * (grad if right else as_if_contiguous(grad))

    return Double, (d(3, 4),)


@row("S04", "transposed", "contiguous", "strides")
def strides_of_input(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * (x if right else as_if_contiguous(x))

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return Double, (d(3, 4),)


@row("S06", "channels_last", level="advice")
def channels_last_lost(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2 if right else (grad * 2).contiguous()

    return Double, (f(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_(),)


@row("S07", "empty")
def empty(right: bool) -> Made:
    class Shift(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x + 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if right or grad.numel():
                return grad.clone()
            return grad / grad.abs().max()

    return Shift, (d(3, 4),)


@row("S09", "transposed", "shape")
def transposed(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2 if right else (grad * 2).t()

    return Double, (d(3, 4),)


@row("S09b", "transposed")
def transposed_square(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2 if right else (grad * 2).t()

    return Double, (d(4, 4),)


@row("N01", "random", "mask", "seed")
def mask_drawn_again(right: bool) -> Made:
    class Dropout(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            mask = (torch.rand(x.shape) > 0.5).to(x.dtype)
            ctx.mask = mask
            return x * mask * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            mask = ctx.mask if right else (torch.rand(grad.shape) > 0.5).to(grad.dtype)
            return grad * mask * 2

    return Dropout, (d(4, 8),)


@row("N03", "never writes")
def never_written(right: bool) -> Made:
    class Head(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.shape = x.shape
            return x[:5] * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            out = grad.new_zeros(ctx.shape) if right else grad.new_empty(ctx.shape)
            out[:5] = grad * 2
            return out

    return Head, (d(9),)


@row("N04", "generator", "random", level="advice")
def draws_in_backward(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            if not right:
                torch.rand(3)
            return grad * 2

    return Double, (d(4),)


@row("G01", "device")
def fixed_device(right: bool) -> Made:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            device = grad.device if right else torch.device("cpu")
            if right:
                two = torch.full(grad.shape, 2.0, dtype=grad.dtype, device=device)
            else:
                two = torch.full(grad.shape, 2.0, dtype=grad.dtype, device="cpu")
            return grad * two

    return Double, (d(4),)


@row("P01", "in_dims", "vmap")
def in_dims_ignored(right: bool) -> Made:
    class Add(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
            if right:
                x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x
                y = y.movedim(in_dims[1], 0) if in_dims[1] is not None else y
            return Add.apply(x, y), 0

    return Add, (d(3, 3), d(3, 3))


@row("P02", "setup_context", level="advice")
def no_setup_context(right: bool) -> Made:
    class Old(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    class New(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return (New if right else Old), (d(4),)
