"""Kernels in Python that compute gradients themselves run as they do outside of an operator."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from test_function import same
from torch import Tensor, func
from torch.autograd import grad as gradient
from torch.func import grad as gradient_of

import pullback as pb
from pullback.bind.gradients_inside import computes_gradients
from tests.gathered import for_each

NUMBERS = itertools.count()


def energy(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def slope(x: Tensor) -> Tensor:
    """The derivative of `energy`, by hand."""
    return x.cos() * x + x.sin()


def directly(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(energy(x), x)[0]


def by_backward(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    with torch.set_grad_enabled(True):
        energy(x).backward()
    assert x.grad is not None
    return x.grad


@torch.enable_grad()
def decorated(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return gradient(energy(x), x)[0]


def by_func(x: Tensor) -> Tensor:
    return gradient_of(energy)(x)


def by_jacobian(x: Tensor) -> Any:
    return torch.autograd.functional.jacobian(energy, x)


def or_zero(x: Tensor) -> Tensor:
    """Goes on without what it could not compute."""
    try:
        return directly(x)
    except RuntimeError:
        return torch.zeros_like(x)


def if_it_can(x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    with torch.enable_grad():
        y = energy(x)
    return gradient(y, x)[0] if y.requires_grad else torch.zeros_like(x)


def connected(x: Tensor) -> Tensor:
    """Returns a result that is still connected to what it was computed from."""
    x = x.clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(energy(x), x, create_graph=True)[0]


class Solver:
    """Has what computes a gradient in a method."""

    def __init__(self, of: Callable[[Tensor], Tensor]) -> None:
        self.of = of

    def solve(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(self.of(x), x)[0]


SOLVER = Solver(energy)
TABLE = {"slope": directly}


def closed_over() -> Callable[[Tensor], Tensor]:
    inner = functools.partial(or_zero)
    return lambda x: inner(x) + 0


class Callable_:  # noqa: N801
    """Is called itself."""

    def __call__(self, x: Tensor) -> Tensor:
        return or_zero(x)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "directly": directly,
    "by backward()": by_backward,
    "decorated": decorated,
    "by torch.func": by_func,
    "by a jacobian": by_jacobian,
    "or zero": or_zero,
    "if it can": if_it_can,
    "connected": connected,
    "in what it calls": lambda x: or_zero(x) + 0,
    "in a method": lambda x: SOLVER.solve(x) + 0,
    "in a new object": lambda x: Solver(energy).solve(x),
    "a bound method": SOLVER.solve,
    "in a table": lambda x: TABLE["slope"](x) + 0,
    "closed over": closed_over(),
    "partial": functools.partial(or_zero),
    "cached": functools.lru_cache(or_zero),
    "an object": Callable_(),
}
WAYS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "called": lambda f, x: f(x),
    "func.grad": lambda f, x: func.grad(lambda x: f(x).sin().sum())(x),
    "vmap": lambda f, x: func.vmap(f)(torch.stack([x, 2 * x])),
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "vmap(grad)": lambda f, x: func.vmap(func.grad(lambda x: f(x).sin().sum()))(x.view(1, -1)),
}


def slope_of_slope(grad: Tensor, x: Tensor) -> Tensor:
    return grad * (2 * x.cos() - x * x.sin())


@for_each("name", KERNELS)
def test_a_kernel_that_computes_a_gradient_is_right_wherever_it_is_called(name: str) -> None:
    operator = pb.operator(
        f"pbinside::f{next(NUMBERS)}(x[...]) -> y[...]",
        python=KERNELS[name],
        backward=slope_of_slope,
    )
    x = torch.randn(5, dtype=torch.float64)
    for way in WAYS.values():
        same(way(operator, x), way(slope, x))
    with torch.no_grad(), torch.autocast("cpu"):
        same(operator(x), slope(x))
    tracked = x.clone().requires_grad_()
    y = operator(tracked)
    same(torch.autograd.grad(y.sum(), tracked)[0], slope_of_slope(torch.ones_like(x), x))
    assert not operator(x).requires_grad


def test_one_is_right_as_a_backward_too_and_compiled() -> None:
    name = f"pbinside::g{next(NUMBERS)}"

    def pull(grad: Tensor, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(energy(x), x)[0] * grad

    pb.operator(f"{name}(grad[...], x[...]) -> grad_x[...]", python=pull)
    operator = pb.operator(
        f"pbinside::f{next(NUMBERS)}(x[...]) -> y[...]",
        python=lambda x: x.sin() * x,
        backward={"x": f"{name}(grad, x)"},
    )
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()
    for run in (operator, torch.compile(operator, backend="aot_eager")):
        same(torch.autograd.grad(run(x).sum(), x)[0], slope(x.detach()))


PLAIN: list[Callable[..., object]] = [
    lambda x: x.exp(),
    lambda x: torch.nn.functional.softmax(x, -1),
    lambda x: torch.from_numpy(x.numpy() ** 2),
    functools.partial(torch.sum, dim=0),
    torch.exp,
    slope,
]


@for_each("function", PLAIN)
def test_others_are_not_slowed_down_for_it(function: Callable[..., object]) -> None:
    assert not computes_gradients(function)
