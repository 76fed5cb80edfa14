"""`stop(x)`, a value without a gradient, in formulas of every kind: against `detach`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pullback as pb

pytestmark = pytest.mark.compiler


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    soft = torch.sigmoid(5 * (x - 1))
    return (soft + ((x > 1).to(x.dtype) - soft).detach()) * y + (x * y).detach() * y


def reduced(x: Tensor, y: Tensor) -> Tensor:
    shifted = (x - x.amax().detach()).exp()
    return (shifted / (shifted.sum() + 1)).detach() * x * y + shifted


def recurrent(x: Tensor, y: Tensor) -> Tensor:
    state, found = torch.zeros((), dtype=x.dtype), list[Tensor]()
    for each, factor in zip(x, y, strict=True):
        state = each * state.detach() + factor * state + each
        found.append(state)
    return torch.stack(found)


CASES: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "pointwise": (
        "(x[...], y[...]) -> z[...] = soft = sigmoid(5*(x - 1)); "
        "z = (soft + stop(float(x > 1) - soft))*y + stop(x*y)*y",
        pointwise,
    ),
    "reduced": (
        "(x[n], y[n]) -> z[n] = w = exp(x - stop(max[k](x[k]))); z = stop(w/(sum[k](w[k]) + 1))*x*y"
        " + w",
        reduced,
    ),
    "recurrent": (
        "(x[t], y[t]) -> z[t] = x*stop(pad(z[t - 1])) + y*pad(z[t - 1]) + x",
        recurrent,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_stop_is_detach_in_two_derivatives_and_forward_mode(name: str, seed: int) -> None:
    text, theirs = CASES[name]
    own = pb.operator(f"pbstop::{name}{text}")
    given = tuple(torch.randn(5, dtype=torch.float64) for _ in range(2))
    found: list[list[Tensor]] = []
    for way in (own, theirs):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        z = way(*leaves)
        first = torch.autograd.grad(z.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), leaves)
        tangent = torch.func.jvp(way, given, given[::-1])[1]
        found.append([z, *first, *second, tangent])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted)


def test_what_is_stopped_has_no_gradient_at_all() -> None:
    alone = pb.operator("pbstop::alone(x[...], y[...]) -> z[...] = stop(x)*y")
    x, y = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_()
    z = alone(x, y)
    assert torch.autograd.grad(z.sum(), x, allow_unused=True, retain_graph=True) == (None,)
    assert torch.equal(torch.autograd.grad(z.sum(), y)[0], x)
    assert not torch.func.jvp(alone, (x, y), (torch.ones(3), torch.zeros(3)))[1].any()


def test_a_value_that_is_stopped_is_a_tensor_of_its_own() -> None:
    """Not the input's memory, as that of `detach` is."""
    same = pb.operator("pbstop::same(x[...]) -> z[...] = stop(x)")
    summed = pb.operator("pbstop::summed(x[n, d]) -> z[n] = sum[d](stop(x)) + stop(x[n, 0])")
    x = torch.randn(3, 2)
    before = x.clone()
    assert same(x).data_ptr() != x.data_ptr()
    torch.testing.assert_close(summed(x), x.sum(1) + x[:, 0])
    assert torch.equal(x, before)
