"""Outputs of a floating dtype that have no derivative: `steps[n]!`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import pullback as pb

pytestmark = pytest.mark.compiler

KERNEL = """#include <cmath>
template <class T> void f(T* y, T* s, const T* x, long n) {
  *s = 0;
  for (long i = 0; i < n; ++i) { *s += x[i] * x[i]; y[i] = std::exp(x[i]); } }"""


def in_python(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp(), (x * x).sum()


KINDS: dict[str, dict[str, Any]] = {
    "C++": {"cpu": pb.source(KERNEL, call="f(y, s, x, n)"), "backward": {"x": "grad*y"}},
    "Python": {"python": in_python, "backward": lambda grad, y: grad * y},  # pyright: ignore
    "jvp": {"python": in_python, "backward": {"x": "grad_y*y"}, "jvp": {"y": "tangent_x*y"}},
    "formula": {},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@functools.cache
def operator(kind: str) -> pb.Operator:
    formula = " = y = exp(x); s = sum[k](x[k]**2)" if kind == "formula" else ""
    name = f"detached::f{list(KINDS).index(kind)}"
    return pb.operator(f"{name}(x[n]) -> (y[n], s[]!){formula}", **KINDS[kind])


def vector() -> Tensor:
    return torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)


@each_kind
def test_the_output_has_no_gradient_and_the_others_have_theirs(kind: str) -> None:
    f, x = operator(kind), vector()
    y, s = f(x)
    assert y.requires_grad
    assert not s.requires_grad
    torch.testing.assert_close((y, s), in_python(x))
    assert gradcheck(lambda x: f(x)[0], x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(lambda x: f(x)[0], x)


@each_kind
def test_neither_has_it_under_a_transform(kind: str) -> None:
    f, x = operator(kind), vector().detach()
    for jacobian in (func.jacrev, func.jacfwd):
        assert not jacobian(lambda x: f(x)[1])(x).any()
    with forward_ad.dual_level():
        _, s = f(forward_ad.make_dual(x, torch.ones_like(x)))
        assert forward_ad.unpack_dual(s).tangent is None
    twice = func.hessian(lambda x: f(x)[0].sum())(x)
    torch.testing.assert_close(twice, x.exp().diag())
    y, s = torch.compile(f, fullgraph=True, backend="aot_eager")(x.requires_grad_())
    assert (y.requires_grad, s.requires_grad) == (True, False)


def test_the_checker_does_not_ask_for_it() -> None:
    assert pb.check(operator("Python"), vector())


def test_an_operator_all_of_whose_outputs_are_marked_needs_no_backward() -> None:
    ranks = pb.operator("detached::ranks(x[n]) -> r[n]!", python=lambda x: x.argsort().to(x))
    assert not ranks(vector()).requires_grad


READERS: dict[str, Any] = {
    "formula": {"x": "grad*s"},
    "index notation": {"x": "sum[k](grad[k])*s"},
    "expression": {"x": "aten::mul.Tensor(grad, s)"},
    "function": lambda grad, s: grad * s,  # pyright: ignore
    "operator with a derivative": "detached::reader",
}


@pytest.mark.parametrize("form", READERS)
def test_a_derivative_that_reads_it_is_refused(form: str) -> None:
    if form == "operator with a derivative":
        pb.operator("detached::reader(grad[n], s[]) -> grad_x[n] = grad*s")
    with pytest.raises(pb.PullbackError, match=r"PB328.*reads 's'"):
        pb.operator(
            "detached::read(x[n]) -> (y[n], s[]!)", python=in_python, backward=READERS[form]
        )


def test_an_operator_without_a_derivative_may_read_it() -> None:
    """A second derivative then raises."""
    line = "detached::last(grad[n], x[n], s[]) -> grad_x[n]"
    pb.operator(line, python=lambda grad, x, s: grad * s + 2 * x * (grad * x).sum())
    scaled: Callable[..., Any] = pb.operator(
        "detached::scaled(x[n]) -> (y[n], s[]!)",
        python=lambda x: (x * (x * x).sum(), (x * x).sum()),
        backward="detached::last",
    )
    x = vector()
    assert gradcheck(lambda x: scaled(x)[0], x)
    (grad,) = torch.autograd.grad(scaled(x)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="PB308"):
        grad.sum().backward()
    with pytest.raises(RuntimeError, match=r"PB30[89]"):
        func.hessian(lambda x: scaled(x)[0].sum())(x.detach())


def test_the_mark_stands_where_it_means_something() -> None:
    for line, backward, words in (
        ("(x[n]!) -> y[n]", None, r"PB101.*an input"),
        ("(x[n]) -> y[n]!", {"x": "grad"}, "PB355.*no output can have a gradient"),
        ("(x[n]) -> (y[n], s[]!)", {"x": "grad_s*x"}, "PB133.*'grad_s'"),
    ):
        with pytest.raises(pb.PullbackError, match=words):
            pb.operator(f"detached::wrong{line}", python=torch.exp, backward=backward)

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

    with pytest.raises(pb.PullbackError, match=r"PB355(.|\n)*mark_non_differentiable"):
        pb.operator("detached::wrong(x[n]) -> y[n]!", function=Double)
