"""Backwards that are more than a formula: they clip, compute gradients themselves, or overwrite."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_function import same
from torch import Tensor, func
from torch.autograd import Function

import pullback as pb
from tests.gathered import for_each

# ruff: noqa: ANN001, ANN201, ANN202, ANN205 (the Functions are as found)
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false


NUMBERS = itertools.count()


def operator_of(name: str, forward: Any, backward: Any) -> pb.Operator:
    """Return a new operator, of which nothing is known yet."""
    name = f"{name}_{next(NUMBERS)}"
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(name.title(), (Function,), members)
    return pb.operator(f"pbback::{name}(x[n]) -> y[n]", function=function)


def numbers() -> Tensor:
    return torch.randn(5, dtype=torch.float64)


# --- that are not linear in what arrives


def straight(ctx, x):
    return x.clone()


def scaled(ctx, x):
    ctx.save_for_backward(x)
    return x * x.abs()


def topped(grad: Tensor) -> Tensor:
    """Homogeneous, odd, and the sum of nothing."""
    return grad * (grad.abs() > grad.abs().mean())


def by_largest(ctx, grad):
    return grad / grad.abs().max() * 100 if grad.abs().max() > 100 else grad


def in_steps(ctx, grad):
    step = grad.abs().max() / 127
    return (grad / step).round() * step


NONLINEAR: dict[str, Callable[..., Any]] = {
    "clipped": lambda ctx, grad: grad.clamp(-1, 1),
    "clipped_far_away": lambda ctx, grad: 2 * grad.clamp(-1e6, 1e6),
    "sign": lambda ctx, grad: grad.sign(),
    "normalized": lambda ctx, grad: grad / (grad.norm() + 1e-8),
    "norm_clipped": lambda ctx, grad: grad * (1e4 / (grad.norm() + 1e-6)).clamp(max=1),
    "positive": lambda ctx, grad: grad.relu(),
    "dead_zone": lambda ctx, grad: grad * (grad.abs() > 0.01),
    "offset": lambda ctx, grad: grad + 0.1,
    "top": lambda ctx, grad: topped(grad),
    "by_largest": by_largest,
    "in_steps": in_steps,
    "numpy": lambda ctx, grad: torch.from_numpy(np.clip(grad.detach().numpy(), -1, 1)),
}
LINEAR: dict[str, Callable[..., Any]] = {
    "as_it_is": lambda ctx, grad: grad,
    "saved": lambda ctx, grad: 2 * grad * ctx.saved_tensors[0].abs(),
    "of_some": lambda ctx, grad: grad * (ctx.saved_tensors[0] > 0),
    "summed": lambda ctx, grad: grad.cumsum(0).flip(0),
    "tiny": lambda ctx, grad: 1e-12 * grad,
}
FORWARD_MODE: dict[str, Callable[[Any, Tensor], Any]] = {
    "jvp": lambda f, x: func.jvp(f, (x,), (torch.ones_like(x),)),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "hessian": lambda f, x: func.hessian(lambda x: (f(x) ** 2).sum())(x),
    "vmap": lambda f, x: func.vmap(lambda x: func.jvp(f, (x,), (x,)))(torch.stack([x, 2 * x])),
}


@for_each("name", NONLINEAR)
def test_a_backward_that_is_not_linear_has_no_forward_mode(name: str) -> None:
    operator = operator_of(name, straight, NONLINEAR[name])
    for way in FORWARD_MODE.values():
        with pytest.raises(pb.PullbackError, match="not linear") as caught:
            way(operator, numbers())
        assert caught.value.finding.code == "PB309"


@for_each("name", LINEAR)
def test_a_backward_that_is_linear_has_forward_mode(name: str) -> None:
    operator = operator_of(f"linear_{name}", scaled, LINEAR[name])
    x = numbers()
    same(func.jacfwd(operator)(x), func.jacrev(operator)(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_a_linear_backward_has_forward_mode_in_every_dtype(dtype: torch.dtype) -> None:
    operator = operator_of(f"dtype_{str(dtype)[6:]}", scaled, LINEAR["saved"])
    x = torch.randn(40, dtype=dtype)
    tangent = FORWARD_MODE["jvp"](operator, x)[1]
    torch.testing.assert_close(tangent, (2 * x.abs()).to(dtype))


def test_a_limit_that_an_argument_says_is_seen_where_it_is_given() -> None:
    class Limited(Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.limit = limit
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad if ctx.limit is None else grad.clamp(-ctx.limit, ctx.limit), None

    limited = pb.operator("pbback::limited(x[n], limit: float?) -> y[n]", function=Limited)
    x = numbers()
    same(func.jvp(lambda x: limited(x, None), (x,), (x,))[1], x)
    with pytest.raises(pb.PullbackError, match="not linear"):
        func.jvp(lambda x: limited(x, 1.0), (x,), (x,))


# --- that compute gradients themselves


def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def keep(ctx, x):
    ctx.save_for_backward(x)
    return swish(x)


def by_grad(ctx, grad):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(swish(x), x, grad)[0]


def by_backward(ctx, grad):
    x = ctx.saved_tensors[0].detach().requires_grad_()
    with torch.enable_grad():
        swish(x).backward(grad)
    return x.grad


def by_the_input(ctx, grad):
    """The saved input requires a gradient already."""
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        return torch.autograd.grad(swish(x), x, grad)[0]


def or_zero(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backward that goes on without what it could not compute."""

    def careful(ctx, grad):
        try:
            return backward(ctx, grad)
        except RuntimeError:
            return torch.zeros_like(grad)

    return careful


def keep_slope(ctx, x):
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        y = swish(inner)
        (slope,) = torch.autograd.grad(y.sum(), inner)
    ctx.save_for_backward(slope)
    return y.detach()


def by_slope(ctx, grad):
    return grad * ctx.saved_tensors[0]


RECOMPUTED: dict[str, tuple[Any, Any]] = {
    "by_grad": (keep, by_grad),
    "by_backward": (keep, by_backward),
    "by_the_input": (keep, by_the_input),
    "grad_or_zero": (keep, or_zero(by_grad)),
    "backward_or_zero": (keep, or_zero(by_backward)),
    "in_forward": (keep_slope, by_slope),
}


def loss(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: (f(x) ** 2).sum()


def eagerly(f: Any, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(loss(f)(x), x)[0]


def compiled(f: Any, x: Tensor) -> Tensor:
    torch._dynamo.reset()
    x = x.clone().requires_grad_()
    torch.compile(loss(f), fullgraph=True, backend="aot_eager")(x).backward()
    assert x.grad is not None
    return x.grad


def in_batches(f: Any, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    every = torch.eye(len(x), dtype=x.dtype)
    return torch.autograd.grad(f(x), x, every, is_grads_batched=True)[0]


def under_vmap(f: Any, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = f(x)
    every = torch.eye(len(x), dtype=x.dtype)
    return func.vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(every)


REVERSE_MODE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "eager": eagerly,
    "func.grad": lambda f, x: func.grad(loss(f))(x),
    "vmap(grad)": lambda f, x: func.vmap(func.grad(loss(f)))(torch.stack([x, 2 * x])),
    "jacrev": lambda f, x: func.jacrev(f)(x),
    "is_grads_batched": in_batches,
    "vmap over autograd.grad": under_vmap,
    "compiled": compiled,
}


@for_each("name", RECOMPUTED)
def test_a_gradient_that_is_computed_inside_is_right_wherever_it_is_asked_for(name: str) -> None:
    x = numbers()
    for way in REVERSE_MODE.values():
        operator = operator_of(f"inside_{name}", *RECOMPUTED[name])
        same(way(operator, x), way(swish, x))


TWICE: dict[str, Callable[[Any, Tensor], Any]] = {
    **FORWARD_MODE,
    "grad of grad": lambda f, x: func.grad(lambda x: func.grad(loss(f))(x).sum())(x),
    "double backward": lambda f, x: torch.autograd.functional.hessian(loss(f), x),
}


@for_each("name", RECOMPUTED)
def test_what_is_computed_inside_has_other_derivatives_or_says_that_it_has_none(name: str) -> None:
    x = numbers()
    for way in TWICE.values():
        operator = operator_of(f"twice_{name}", *RECOMPUTED[name])
        try:
            found = way(operator, x)
        except pb.PullbackError:
            continue
        same(found, way(swish, x))


# --- that write into what arrives


def squared(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def in_place(ctx, grad):
    grad *= 2
    return grad.mul_(ctx.saved_tensors[0])


def in_numpy(ctx, grad):
    values = grad.detach().numpy()
    values *= 2
    return grad * ctx.saved_tensors[0]


def if_contiguous(ctx, grad):
    grad = grad.contiguous()
    grad[:] = 2 * grad * ctx.saved_tensors[0]
    return grad


WRITING = {"in_place": in_place, "in_numpy": in_numpy, "if_contiguous": if_contiguous}
LOSSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a number for all elements": lambda f, x: f(x).sum(),
    "shared with another node": lambda f, x: (f(x) + x).exp().sum(),
    "shared with itself": lambda f, x: (f(x) + f(2 * x)).exp().sum(),
}


@for_each("name", WRITING)
def test_a_backward_that_overwrites_what_arrives_harms_nobody(name: str) -> None:
    x = numbers() / 4
    for number, reduced in enumerate(LOSSES.values()):
        for way in ("eager", "func.grad", "vmap(grad)", "compiled")[: 3 if number else 4]:
            operator = operator_of(f"writes_{name}", squared, WRITING[name])
            found, expected = (
                REVERSE_MODE[way](functools.partial(reduced, f), x)
                for f in (operator, torch.square)
            )
            same(found, expected)


def test_the_gradient_that_a_caller_gives_stays_as_it_is() -> None:
    operator = operator_of("given", squared, in_numpy)
    for _ in range(2):
        x, grad = numbers().requires_grad_(), torch.ones(5, dtype=torch.float64)
        same(torch.autograd.grad(operator(x), x, grad)[0], 2 * x)
        same(grad, torch.ones_like(grad))


def test_one_that_overwrites_has_a_second_derivative_and_forward_mode() -> None:
    operator = operator_of("twice", squared, in_place)
    x = numbers()
    same(
        func.hessian(lambda x: operator(x).exp().sum())(x),
        func.hessian(lambda x: x.square().exp().sum())(x),
    )


def test_a_backward_that_overwrites_only_later_stops() -> None:
    calls: list[int] = []

    def later(ctx, grad):
        calls.append(1)
        return (
            grad.mul_(2 * ctx.saved_tensors[0])
            if len(calls) > 1
            else 2 * grad * ctx.saved_tensors[0]
        )

    operator = operator_of("later", squared, later)
    x = numbers().requires_grad_()
    grad = torch.ones(5, dtype=torch.float64)
    operator(x).backward(grad.clone())
    with pytest.raises(pb.PullbackError, match="wrote into the gradient") as caught:
        operator(x).backward(grad.clone())
    assert caught.value.finding.code == "PB380"
    same(torch.autograd.grad(operator(x), x, grad)[0], 2 * x)
    same(grad, torch.ones_like(grad))


# --- what comes back from ctx


def product(x: Tensor, w: Tensor) -> Tensor:
    return x * w.tanh() * w


def product_by(
    name: str, save: Callable[[Tensor], Tensor], backward: Callable[..., Any]
) -> pb.Operator:
    """Return an operator that saves something of its second input."""

    class Product(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, save(w))
            return product(x, w)

    Product.backward = staticmethod(backward)
    return pb.operator(f"pbback::{name}_{next(NUMBERS)}(x[n], w[n]) -> y[n]", function=Product)


def plainly(ctx, grad):
    x, w = ctx.saved_tensors
    return grad * w * w.tanh(), grad * x * (w.tanh() + w * (1 - w.tanh() ** 2))


def with_a_leaf(ctx, grad):
    """What is saved detached is a leaf in backward, which gets a `.grad`."""
    x, w = ctx.saved_tensors
    assert not w.requires_grad
    w.requires_grad_()
    with torch.enable_grad():
        product(x.detach(), w).backward(grad)
    return grad * w.detach() * w.detach().tanh(), w.grad


SAVED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[..., Any]]] = {
    "detached": (lambda w: w.detach(), plainly),
    "a view": (lambda w: w.view(-1), plainly),
    "a copy": (lambda w: w.clone(), plainly),
    "a leaf": (lambda w: w.detach(), with_a_leaf),
    "a copy as leaf": (lambda w: w.detach().clone(), with_a_leaf),
}


@for_each("name", SAVED)
def test_what_is_saved_comes_back_as_it_does_from_pytorch(name: str) -> None:
    x, w = numbers().requires_grad_(), numbers().requires_grad_()
    expected = torch.autograd.grad(product(x, w).sum(), (x, w))
    operator = product_by("saved", *SAVED[name])
    for create_graph in (False, True):
        same(torch.autograd.grad(operator(x, w).sum(), (x, w), create_graph=create_graph), expected)
    assert x.grad is None
    assert w.grad is None
    same(func.grad(lambda w: operator(x.detach(), w).sum())(w.detach()), expected[1])


@for_each("name", SAVED)
def test_second_derivatives_through_what_is_saved_are_right_or_refused(name: str) -> None:
    """Also of two inputs in the same memory, where a view of one looks like one of the other."""
    x, w = numbers(), numbers()
    for first in (x, w):
        for way in TWICE.values():
            operator = product_by("second", *SAVED[name])
            try:
                found = way(lambda w: operator(first, w), w)  # noqa: B023
            except pb.PullbackError:
                assert name != "a view" or first is w
                continue
            same(found, way(lambda w: product(first, w), w))  # noqa: B023


def test_forward_mode_of_a_forward_that_saves_only_for_a_gradient() -> None:
    class Thrifty(Function):
        @staticmethod
        def forward(ctx, x, w):
            if x.requires_grad:
                ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0], None

    thrifty = pb.operator("pbback::thrifty(x[n], w[n]) -> y[n]", function=Thrifty)
    x, w = numbers(), numbers()
    same(func.jvp(lambda x: thrifty(x, w), (x,), (x,))[1], x * w)
    same(func.jacfwd(lambda x: thrifty(x, w))(x), torch.diag(w))


# --- that PyTorch's own rule for a batch cannot run


class Masked(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        y = x.clone()
        y[x < 0] = 0
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad = grad.clone()
        grad[x < 0] = 0
        return grad


class MaskedBackward(Masked):
    @staticmethod
    def forward(x):
        return x.relu()


class MaskedNowhere(Masked):
    @staticmethod
    def forward(x):
        return x.relu()

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.saved_tensors[0] > 0)


@for_each("function", [Masked, MaskedBackward, MaskedNowhere])
def test_what_does_not_run_on_a_batch_runs_on_its_elements(function: type[Function]) -> None:
    operator = pb.operator(f"pbback::{function.__name__.lower()}(x[n]) -> y[n]", function=function)
    rows = torch.randn(3, 5, dtype=torch.float64)
    same(func.vmap(operator)(rows), rows.relu())
    expected = func.grad(lambda rows: (rows.relu() ** 2).sum())(rows)
    same(func.grad(lambda rows: (func.vmap(operator)(rows) ** 2).sum())(rows), expected)
    same(func.vmap(func.grad(lambda x: (operator(x) ** 2).sum()))(rows), expected)


# --- sparse tensors inside


class BySparse(Function):
    """Keeps a sparse matrix, and has a sparse gradient."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.matrix = torch.eye(len(x), dtype=x.dtype)[rows].to_sparse()
        return ctx.matrix @ x

    @staticmethod
    def backward(ctx, grad):
        return (ctx.matrix.t() @ grad).to_sparse(), None


def test_sparse_tensors_inside_are_no_matter() -> None:
    pick = pb.operator("pbback::pick(x[n, m], rows[k]: int64) -> y[k, m]", function=BySparse)
    x, rows = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 2])
    for way in ("eager", "func.grad", "compiled"):
        found = REVERSE_MODE[way](lambda x: pick(x, rows), x)
        same(found.to_dense(), REVERSE_MODE["eager"](lambda x: x[rows], x))
