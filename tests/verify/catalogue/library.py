"""Operators that are registered with torch.library."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

from tests.verify.case import Made, d
from tests.verify.catalogue.layout import as_if_contiguous
from tests.verify.catalogue.row import row

number = itertools.count()


def operator(
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None,
    setup: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
    mutates: tuple[str, ...] = (),
) -> Any:
    """Register an operator under a name of its own."""
    own = custom_op(f"catalogue::op{next(number)}", forward, mutates_args=mutates)
    if fake is not None:
        own.register_fake(fake)
    if backward is not None:
        own.register_autograd(backward, setup_context=setup)
    return own


def square(x: Tensor) -> Tensor:
    return x * x


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def like_x(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def square_backward(ctx: Any, grad: Tensor) -> Tensor:
    return 2 * grad * ctx.saved_tensors[0]


@row("O01", "sign")
def sign(right: bool) -> Made:
    factor = 2 if right else -2

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return factor * grad * ctx.saved_tensors[0]

    return operator(square, backward, save_inputs, like_x), (d(4),)


@row("O15", "grad")
def grad_in_place(right: bool) -> Made:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if right:
            return 2 * grad * ctx.saved_tensors[0]
        return grad.mul_(2 * ctx.saved_tensors[0])

    return operator(square, backward, save_inputs, like_x), (d(4),)


@row("O16", "contiguous", "strides")
def strides(right: bool) -> Made:
    kernel = custom_op(
        f"catalogue::op{next(number)}",
        lambda grad, x: 2 * x * (grad if right else as_if_contiguous(grad)),
        mutates_args=(),
        schema="(Tensor grad, Tensor x) -> Tensor",
    )
    kernel.register_fake(lambda grad, x: torch.empty_like(x))

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return kernel(grad, ctx.saved_tensors[0])

    return operator(square, backward, save_inputs, like_x), (d(3, 4),)


@row("O17", "contiguous")
def view(right: bool) -> Made:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        flat = grad.reshape(-1) if right else grad.view(-1)
        return 2 * flat.view(x.shape) * x

    return operator(square, backward, save_inputs, like_x), (d(3, 4),)


@row("O18", "ctx.x")
def input_on_ctx(right: bool) -> Made:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if right:
            ctx.save_for_backward(*inputs)
        else:
            ctx.x = inputs[0]

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad * (ctx.saved_tensors[0] if right else ctx.x)

    return operator(square, backward, setup, like_x), (d(4),)


@row("O20", "random", "mask")
def mask_again(right: bool) -> Made:
    def forward(x: Tensor) -> list[Tensor]:
        mask = (torch.rand(x.shape) > 0.5).to(x.dtype)
        return [x * mask, mask]

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output[1])
        ctx.set_materialize_grads(True)

    def backward(ctx: Any, grads: list[Tensor]) -> Tensor:
        (mask,) = ctx.saved_tensors
        if not right:
            mask = (torch.rand(mask.shape) > 0.5).to(mask.dtype)
        return grads[0] * mask

    def fake(x: Tensor) -> list[Tensor]:
        return [torch.empty_like(x), torch.empty_like(x)]

    own = operator(forward, backward, setup, fake)
    return (lambda x: own(x)[0]), (d(4, 8),)


@row("O23", "weight")
def captured(right: bool) -> Made:
    weight = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))

    def forward(x: Tensor) -> Tensor:
        return x * weight.detach()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * weight.detach()

    def product(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    def product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad * w, grad * x

    if not right:
        return operator(forward, backward, None, like_x), (d(4),)
    own = operator(product, product_backward, save_inputs, lambda x, w: torch.empty_like(x))
    return own, (d(4), weight)


@row("O25", "saved", "changes", "overwrit")
def saved_output_changed(right: bool) -> Made:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return y * grad if right else y.data.mul_(grad)

    def forward(x: Tensor) -> Tensor:
        return x.exp()

    return operator(forward, backward, setup, like_x), (d(4),)


@row("O07", "mutat", "in place", "changes")
def undeclared(right: bool) -> Made:
    def forward(x: Tensor, buf: Tensor) -> Tensor:
        if not right:
            buf.add_(1)
        return x * 2

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * 2, None

    own = operator(forward, backward, None, lambda x, buf: torch.empty_like(x))
    return own, (d(4), torch.zeros(4, dtype=torch.float64))


@row("O02", "fake")
def no_fake(right: bool) -> Made:
    return operator(square, square_backward, save_inputs, like_x if right else None), (d(4),)


def fake_of(id: str, wrong: Callable[[Tensor], Tensor], *says: str) -> None:
    """Add a row of a fake kernel that is wrong for a square, or for its transposed."""

    @row(id, *says)
    def made(right: bool) -> Made:
        own = operator(square, square_backward, save_inputs, like_x if right else wrong)
        return own, (d(3, 4),)


fake_of("O03", lambda x: x.new_empty((*x.shape, 1)), "shape")
fake_of("O04", lambda x: torch.empty_like(x, dtype=torch.float32), "dtype")
fake_of("O05", lambda x: torch.empty_like(x.t().contiguous()).t(), "strides")
fake_of("O06", lambda x: x.new_empty((3, 4)), "every", "size")
fake_of("O06b", lambda x: torch.empty_like(x, device="meta"), "device")


@row("O10", "view")
def returns_view(right: bool) -> Made:
    def forward(x: Tensor) -> Tensor:
        return x[:2].clone() if right else x[:2]

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.rest = inputs[0][2:].shape

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.cat([grad, grad.new_zeros(ctx.rest)])

    return operator(forward, backward, setup, lambda x: torch.empty_like(x[:2])), (d(4, 3),)


@row("O11", "input itself", "returns", "alias")
def returns_input(right: bool) -> Made:
    def forward(x: Tensor) -> Tensor:
        return x.clone() if right else x

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.clone()

    return operator(forward, backward, None, like_x), (d(4),)


@row("O12", "autograd")
def no_autograd(right: bool) -> Made:
    return operator(square, square_backward if right else None, save_inputs, like_x), (d(4),)


@row("O14", "numpy", "trace")
def numpy_backward(right: bool) -> Made:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if right:
            return grad * 2 * x
        return torch.from_numpy(np.multiply(grad.detach().numpy(), 2 * x.detach().numpy()))

    return operator(square, backward, save_inputs, like_x), (d(4),)


@row("O19", "intermediate", "neither")
def intermediate(right: bool) -> Made:
    def forward(x: Tensor) -> Tensor:
        return x.exp() * x

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)
        ctx.e = x.detach().exp()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        e = x.exp() if right else ctx.e
        return grad * e * (1 + x)

    return operator(forward, backward, setup, like_x), (d(4),)


@row("O21", "list", "xs")
def tuple_for_a_list(right: bool) -> Made:
    def forward(xs: list[Tensor]) -> Tensor:
        return xs[0] + 2 * xs[1]

    def backward(ctx: Any, grad: Tensor) -> Any:
        return [grad, 2 * grad] if right else (grad, 2 * grad)

    return operator(forward, backward, None, lambda xs: torch.empty_like(xs[0])), ([d(4), d(4)],)


@row("O22", "too few", "w")
def too_few(right: bool) -> Made:
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (grad * w, grad * x) if right else grad * w

    own = operator(forward, backward, save_inputs, lambda x, w: torch.empty_like(x))
    return own, (d(4), d(4))


@row("O24", "size", "shape")
def static_size(right: bool) -> Made:
    def forward(x: Tensor) -> Tensor:
        return x[x > 0].clone()

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.zeros_like(x).masked_scatter(x > 0, grad)

    def fake(x: Tensor) -> Tensor:
        if not right:
            return torch.empty_like(x)
        return x.new_empty((torch.library.get_ctx().new_dynamic_size(),))

    return operator(forward, backward, setup, fake), (d(9),)


@row("O09", "never written", "never", level="advice")
def never_written(right: bool) -> Made:
    def forward(x: Tensor, buf: Tensor) -> Tensor:
        if right:
            buf.add_(1)
        return x * 2

    own = operator(forward, None, None, lambda x, buf: torch.empty_like(x), mutates=("buf",))
    return own, (torch.randn(4), torch.zeros(4))
