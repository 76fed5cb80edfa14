"""Right but tricky: what other sizes, options and values do to it is no fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from tests.verify.case import asked
from tests.verify.invariance.faults import drawn, keep_inputs, new

OWN = ["PB557", "PB558", "PB559", "PB560", "PB561"]


def mean_of_products() -> tuple[Any, ...]:
    """A `w` of one element would broadcast, and backward is not written for it."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad[..., None] * w, (grad[..., None] * x).sum(0)

    function = new(lambda x, w: (x * w).sum(-1), keep_inputs, backward)
    return function, drawn(3, 4), drawn(4)


def correlation() -> tuple[Any, ...]:
    """Nothing is left of an empty signal, and no row of it is computed alone."""

    def conv(x: Tensor, k: Tensor, padding: int = 0) -> Tensor:
        return functional.conv1d(x[None, None], k[None, None], padding=padding)[0, 0]

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, k = ctx.saved_tensors
        return conv(grad, k.flip(0), len(k) - 1), conv(x, grad)

    def forward(x: Tensor, k: Tensor) -> Tensor:
        return conv(x, k)

    return new(forward, keep_inputs, backward), drawn(9), drawn(3)


def grouped() -> tuple[Any, ...]:
    """What view(n, 2, -1) makes of no rows is ambiguous; PyTorch says so, and no harm is done."""

    def forward(x: Tensor) -> Tensor:
        return x.view(len(x), 2, -1).exp().view(x.shape)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0]

    return new(forward, setup, backward), drawn(3, 4)


def symmetric() -> tuple[Any, ...]:
    """The diagonal of Bᵀ A B for a symmetric A, which backward relies on."""

    def forward(a: Tensor, b: Tensor) -> Tensor:
        return (b * (a @ b)).sum(-2)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return b @ (grad[..., None] * b.mT), 2 * (a @ b) * grad

    a = drawn(4, 4)
    return new(forward, keep_inputs, backward), a + a.mT, drawn(4, 3)


def fixed_point() -> tuple[Any, ...]:
    """Implicit differentiation: right once the iteration has converged, not after one step."""

    def forward(x: Tensor, n_iter: int = 60) -> Tensor:
        y = torch.zeros_like(x)
        for _ in range(n_iter):
            y = 0.5 * torch.cos(y + x)
        return y

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, y = ctx.saved_tensors
        slope = -0.5 * torch.sin(y + x)
        return grad * slope / (1 - slope), None

    return new(forward, setup, backward), drawn(3, 4), 60


def bound() -> tuple[Any, ...]:
    """Powers from 1 on: the exponent 0 has a slope of 0 that backward is not written for."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (x,), (alpha,) = ctx.saved_tensors, ctx.options
        return grad * (alpha * x ** (alpha - 1) if alpha >= 0.5 else torch.nan), None

    return new(lambda x, alpha: x**alpha, keep_inputs, backward), drawn(3, 4).abs() + 0.1, 1.7


def truncated() -> tuple[Any, ...]:
    """Steps: for a tiny divisor they look like a slope."""

    def forward(x: Tensor, w: Tensor) -> Tensor:
        return torch.div(x, w, rounding_mode="trunc")

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return torch.zeros_like(x), torch.zeros_like(w)

    return new(forward, keep_inputs, backward), drawn(5, 4, 3), drawn(5, 4, 3).flip(0) + 0.1


def factor() -> tuple[Any, ...]:
    """A decomposition needs square matrices that are not singular."""

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        q, r = torch.linalg.qr(x)
        return q, r

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            outputs = torch.linalg.qr(x)
        return torch.autograd.grad(outputs, x, grads)[0]

    return new(forward, setup, backward), drawn(5, 5)


def placed() -> tuple[Any, ...]:
    """Values written to places: if two go to one place, which of them stays is not defined."""

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        index, _ = ctx.saved_tensors
        return grad.index_fill(0, index, 0), None, grad[index]

    def forward(x: Tensor, index: Tensor, own: Tensor) -> Tensor:
        return x.index_copy(0, index, own)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], inputs[2])

    index = torch.tensor([3, 0, 5])
    return new(forward, setup, backward), drawn(10, 4), index, drawn(3, 4)


def probability() -> tuple[Any, ...]:
    """Forward takes numbers from 0 to 1, and cuts the logarithm at the ends."""

    def forward(p: Tensor, t: Tensor) -> Tensor:
        return functional.binary_cross_entropy(p, t, reduction="sum")

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        p, t = ctx.saved_tensors
        return grad * (p - t) / (p * (1 - p)), grad * ((1 - p).log() - p.log())

    return new(forward, keep_inputs, backward), drawn(3, 4).sigmoid(), drawn(3, 4).flip(0).sigmoid()


def clamped() -> tuple[Any, ...]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.clone()

    return new(lambda x: x.clamp(-9, 9), keep_inputs, backward), drawn(3, 4)


RIGHT = [
    mean_of_products,
    correlation,
    fixed_point,
    grouped,
    symmetric,
    bound,
    truncated,
    factor,
    placed,
    probability,
]


@pytest.mark.ci(3)
@pytest.mark.parametrize("make", RIGHT, ids=lambda make: make.__name__)
def test_right_code_is_silent(make: Callable[[], tuple[Any, ...]]) -> None:
    target, *inputs = make()
    report = asked((target, tuple(inputs)), probes=OWN)
    assert report.ok, str(report)


def test_a_gradient_of_another_function_is_meant_at_all_values() -> None:
    target, x = clamped()
    assert asked((target, (x,)), probes=OWN, straight_through=True).ok
    assert not asked((target, (x,)), probes=OWN).ok


def test_a_process_that_dies_at_another_size_is_no_fault() -> None:
    def forward(x: Tensor) -> Tensor:
        if len(x) != 3:
            os.abort()
        return x.sin()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0].cos()

    report = pb.check(new(forward, keep_inputs, backward), drawn(3, 4), probes=OWN)
    assert report.ok, str(report)
