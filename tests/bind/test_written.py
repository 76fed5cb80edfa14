"""Derivatives that authors write in index notation, for kernels of any kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb
from tests.telling import telling

pytestmark = pytest.mark.compiler

LINEAR = """template <class T>
void linear(T* y, const T* x, const T* w, const T* b, long n, long i, long o) {
  for (long r = 0; r < n; ++r) for (long c = 0; c < o; ++c) {
    T s = b[c];
    for (long k = 0; k < i; ++k) s += x[r * i + k] * w[c * i + k];
    y[r * o + c] = s; } }"""


def correlate(x: Tensor, k: Tensor, b: Tensor) -> Tensor:
    return x.unfold(-1, k.numel(), 1) @ k + b


# A line, what it is declared with, and its arguments: shapes, or scalars.
WRITTEN: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "a bias of a kernel in C++": (
        "(x[n, i], w[o, i], b[o]) -> y[n, o]",
        {
            "cpu": pb.source(LINEAR, call="linear(y, x, w, b, n, i, o)"),
            "backward": {
                "x": "aten::mm(grad, w)",
                "w": "aten::mm(aten::t(grad), x)",
                "b": "sum[n](grad[n, o])",
            },
        },
        ((3, 4), (5, 4), (5,)),
    ),
    "sums of names alone": (
        "(x[n, i], w[o, i], b[o]) -> y[n, o]",
        {
            "python": lambda x, w, b: x @ w.T + b,
            "backward": {"x": "sum[o](grad*w)", "w": "sum[n](grad*x)", "b": "sum[n](grad)"},
        },
        ((3, 4), (5, 4), (5,)),
    ),
    "lists in expressions": (
        "(x[n, i], b[i]) -> y[n, i]",
        {
            "python": lambda x, b: x.flip(0, 1) + b,
            "backward": {"x": "aten::flip(grad, [0, 1])", "b": "aten::sum.dim_IntList(grad, [0])"},
        },
        ((3, 4), (4,)),
    ),
    "a size with arithmetic": (
        "(x[h], k[p], b[]) -> y[h - p + 1]",
        {
            "python": correlate,
            "backward": {
                "x": "sum[p](pad(grad[h - p])*k[p])",
                "k": "sum[i](grad[i]*x[i + p])",
                "b": "sum[i](grad[i])",
            },
            "jvp": {
                "y": "tangent_y[i] = tangent_b"
                " + sum[p](tangent_x[i + p]*k[p] + x[i + p]*tangent_k[p])"
            },
        },
        ((7,), (3,), ()),
    ),
    "a size that is divided": (
        "(x[h]) -> y[(h - 1)//2 + 1]",
        {
            "python": lambda x: x[::2].exp(),
            "backward": {"x": "sum[i](where(h == 2*i, grad[i]*y[i], 0))"},
        },
        ((7,),),
    ),
    "a size of a scalar": (
        "(x[h], s: int) -> y[(h - 1)//s + 1]",
        {
            "python": lambda x, s: x[::s].clone(),
            "backward": {"x": "sum[i](where(h == i*s, grad[i], 0))"},
        },
        ((7,), 2),
    ),
    "a size that the input alone tells": (
        "(x[n]) -> y[]",
        {"python": lambda x: x.mean(), "backward": {"x": "grad/size(n)"}},
        ((7,),),
    ),
    "a size with arithmetic, element by element": (
        "(x[h], b[]) -> y[h - 1]",
        {
            "python": lambda x, b: b.exp().repeat(len(x) - 1),
            "backward": {"x": "0*x", "b": "sum[i](grad[i]*y[i])"},
            "jvp": {"y": "y*tangent_b"},
        },
        ((5,), ()),
    ),
    "outputs that are called as gradients are": (
        "(grad[n], a[n], b[n]) -> (grad_a[n], grad_b[n])",
        {
            "python": lambda grad, a, b: (grad * b, grad * a),
            "backward": {
                "grad": "grad_grad_a*b + grad_grad_b*a",
                "a": "grad_grad_b*grad",
                "b": "grad_grad_a*grad",
            },
        },
        ((4,), (4,), (4,)),
    ),
    "a batch that is summed": (
        "(x[..., n], b[n]) -> y[..., n]",
        {"python": lambda x, b: x * b, "backward": {"x": "grad*b", "b": "sum[...](grad*x)"}},
        ((2, 3, 4), (4,)),
    ),
}


# Beside expressions, in C++; with a jvp and sizes that are arithmetic or a scalar's.
TELLING = ("a bias of a kernel in C++", "a size with arithmetic", "a size of a scalar")


def written(name: str) -> pb.Operator:
    rest, declared, _ = WRITTEN[name]
    return pb.operator(f"pbwritten::f{list(WRITTEN).index(name)}{rest}", **declared)


def arguments(name: str, seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(given, generator=generator, dtype=torch.float64, requires_grad=True)
        if isinstance(given, tuple)
        else given
        for given in WRITTEN[name][2]
    ]


@pytest.mark.parametrize("name", telling({name: name for name in WRITTEN}, TELLING))
def test_derivatives_of_a_kernel_may_be_written_in_index_notation(name: str, seed: int) -> None:
    operator, given = written(name), arguments(name, seed)
    assert gradcheck(operator, given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(operator, given)


def test_what_such_a_derivative_reads_outside_is_refused_when_it_is_declared() -> None:
    rest, declared, _ = WRITTEN["a size with arithmetic"]
    backward = {**declared["backward"], "x": "sum[p](grad[h - p]*k[p])"}
    with pytest.raises(pb.PullbackError, match=r"PB141.*pbwritten::outside for 'x'") as caught:
        pb.operator(f"pbwritten::outside{rest}", python=correlate, backward=backward)
    assert "pad(grad[h - p]) is 0 there" in str(caught.value)
    # Neither is it under a condition that does not exclude it.
    backward["x"] = "sum[p](where(h > 0, grad[h - p]*k[p], 0))"
    with pytest.raises(pb.PullbackError, match="PB141"):
        pb.operator(f"pbwritten::outside{rest}", python=correlate, backward=backward)


def test_gradient_of_another_size_than_the_line_says_is_refused() -> None:
    rest, declared, _ = WRITTEN["a size with arithmetic"]
    operator = pb.operator(f"pbwritten::sized{rest}", **declared)
    backward = torch.ops.pbwritten._sized_grad
    x, k = torch.randn(7), torch.randn(3)
    operator(x, k, torch.zeros(()))
    with pytest.raises(RuntimeError, match="PB112"):
        backward(torch.randn(6), x, k, output_mask=[True] * 3)
