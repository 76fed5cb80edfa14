"""Faults of operators of `torch.library` and of pullback, each with a twin that is right."""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

import pullback as pb
from tests.verify.case import Made, d
from tests.verify.composition.case import case, right

number = itertools.count()
kept: list[torch.library.Library] = []


def registered(
    schema: str,
    kernel: Callable[..., Any],
    *,
    fake: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    setup: Callable[..., Any] | None = None,
    key: str = "CPU",
) -> Any:
    """Register an operator by define and impl, as C++ does."""
    library = torch.library.Library("composition", "FRAGMENT")
    kept.append(library)
    name = f"op{next(number)}"
    library.define(f"{name}{schema}")
    library.impl(name, kernel, key)
    if fake is not None:
        torch.library.register_fake(f"composition::{name}", fake, lib=library)
    if backward is not None:
        torch.library.register_autograd(
            f"composition::{name}", backward, setup_context=setup, lib=library
        )
    return getattr(torch.ops.composition, name)


def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def cube_backward(ctx: Any, grad: Tensor) -> Tensor:
    return 3 * grad * ctx.saved_tensors[0] ** 2


def cube(x: Tensor) -> Tensor:
    return x**3


def cubed(fake: Callable[..., Any] | None, kernel: Callable[..., Any] = cube) -> Any:
    return registered("(Tensor x) -> Tensor", kernel, fake=fake, backward=cube_backward, setup=save)


@case("PB566", "intermediate", "neither")
def intermediate(repaired: bool) -> Made:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        (x,) = inputs
        ctx.save_for_backward(x if repaired else 3 * x.detach() ** 2)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (saved,) = ctx.saved_tensors
        return grad * (3 * saved**2 if repaired else saved)

    own = registered(
        "(Tensor x) -> Tensor", cube, fake=torch.empty_like, backward=backward, setup=setup
    )
    return own, (d(4),)


@case("PB585", "no fake kernel")
def no_fake(repaired: bool) -> Made:
    return cubed(torch.empty_like if repaired else None), (d(4),)


@case("PB585", "fake kernel raises")
def fake_of_one_rank(repaired: bool) -> Made:
    def fake(x: Tensor) -> Tensor:
        if not repaired and x.shape[0] != 5:
            raise ValueError("expected 5 rows")
        return torch.empty_like(x)

    return cubed(fake), (d(5, 2),)


@case("PB586", "dtype")
def fake_dtype(repaired: bool) -> Made:
    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape) if repaired else torch.empty(x.shape, device=x.device)

    return cubed(fake, lambda x: (x**3).contiguous()), (d(2, 3),)


@case("PB586", "strides")
def fake_strides_of_a_transposed_input(repaired: bool) -> Made:
    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape) if repaired else torch.empty_like(x)

    return cubed(fake, lambda x: (x**3).contiguous()), (d(2, 3),)


@case("PB586", "for every input")
def fake_of_the_example(repaired: bool) -> Made:
    def fake(x: Tensor) -> Tensor:
        return x.new_empty(x.shape[0] if repaired else 6)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.n = inputs[0].shape[1]

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad[:, None].expand(-1, ctx.n)

    own = registered(
        "(Tensor x) -> Tensor", lambda x: x.sum(1), fake=fake, backward=backward, setup=setup
    )
    return own, (d(6, 4),)


@case("PB586", "depends on the values", "size")
def nonzero(repaired: bool) -> Made:
    def fake(x: Tensor) -> Tensor:
        n = torch.library.get_ctx().new_dynamic_size() if repaired else x.shape[0]
        return x.new_empty(n, dtype=torch.int64)

    own = registered("(Tensor x) -> Tensor", lambda x: (x > 0).nonzero()[:, 0].clone(), fake=fake)
    return own, (torch.randn(9),)


@case("PB587", "not traceable")
def item_in_backward(repaired: bool) -> Made:
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        scale = 3.0 if repaired else 3.0 * float(bool(x.detach().abs().max().item() >= 0))
        return scale * grad * x**2

    own = registered(
        "(Tensor x) -> Tensor", cube, fake=torch.empty_like, backward=backward, setup=save
    )
    return own, (d(4),)


@case("PB579", "dispatch key", "below autograd")
def function_in_the_kernel(repaired: bool) -> Made:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 3 * grad * ctx.saved_tensors[0] ** 2

    if repaired:
        return cubed(torch.empty_like), (d(4),)
    own = registered("(Tensor x) -> Tensor", Cube.apply, fake=torch.empty_like)
    return own, (d(4),)


@case("PB591", "view", "share memory")
def a_view(repaired: bool) -> Made:
    def kernel(x: Tensor) -> Tensor:
        return x.t().clone() if repaired else x.t()

    own = registered("(Tensor x) -> Tensor", kernel, fake=lambda x: x.t().clone())
    return own, (torch.randn(3, 3),)


@case("PB574", "independent", "for itself")
def batch_mixed(repaired: bool) -> Made:
    own = pb.operator(
        f"composition::soft{next(number)}(x[..., n]) -> y[..., n]"
        if repaired
        else f"composition::soft{next(number)}(x[...]) -> y[...]",
        python=lambda x: (x - x.amax(-1, keepdim=True)).exp(),
    )
    return own, (torch.randn(4).double(),)


@case("PB595", "reference")
def other_reference(repaired: bool) -> Made:
    own = pb.operator(
        f"composition::third{next(number)}(x[...], k: float) -> y[...]",
        python=lambda x, k: k * x**3,
        backward=lambda grad, x, k: 3 * k * grad * x**2,
        reference=lambda x, k: k * x**3 if repaired else x**3,
    )
    return own, (d(4), 2.5)


@right
def two_outputs_and_a_list() -> Made:
    def backward(ctx: Any, grads: Any, other: Tensor) -> Any:
        return [grads, 2 * grads + other]

    own = torch.library.custom_op(
        f"composition::op{next(number)}",
        lambda xs: (xs[0] + 2 * xs[1], xs[1].clone()),
        mutates_args=(),
        schema="(Tensor[] xs) -> (Tensor, Tensor)",
    )
    own.register_fake(lambda xs: (torch.empty_like(xs[0]), torch.empty_like(xs[1])))
    own.register_autograd(backward)
    return own, ([d(3), d(3)],)


@right
def kernel_in_numpy() -> Made:
    own = torch.library.custom_op(
        f"composition::op{next(number)}",
        lambda x: torch.from_numpy(np.ascontiguousarray(x.numpy() ** 3)),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    own.register_fake(lambda x: x.new_empty(x.shape))
    own.register_autograd(cube_backward, setup_context=save)
    return own, (d(3, 2),)


@right
def formula() -> Made:
    return pb.operator(
        f"composition::f{next(number)}(x[...], y[...]) -> z[...] = sin(x) * y + x**3"
    ), (d(3), d(2, 3))
