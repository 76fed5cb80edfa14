"""What `op.derivative()` shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.math.shown import Derivative

pytestmark = pytest.mark.compiler
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to.md"


def test_a_derivative_is_shown_as_the_how_to_says() -> None:
    @pb.formula("demo::glu")
    def glu(a: Tensor, b: Tensor, beta: float = 1.0) -> Tensor:
        return a * torch.sigmoid(beta * b)

    session = HOW_TO.read_text().partition(">>> print(glu.derivative())\n")[2]
    assert str(glu.derivative()) == session.partition("\n```")[0]


def test_what_is_computed_in_a_form_of_its_own_is_shown_as_people_write_it() -> None:
    silu = pb.operator("shown::silu(x[...]) -> y[...] = silu(x)").derivative()
    assert isinstance(silu, Derivative)
    assert "sigmoid(-x)" in silu.computed
    assert "grad*(x*(1 - sigmoid(x)) + 1)*sigmoid(x)" in str(silu)
    assert r"\mathrm{grad}_{x} &= \mathrm{grad}" in silu.latex
    assert silu.saved == ("x",)
    assert (silu._repr_latex_() or "").startswith("$$")


def test_zero_gradients_and_sums_are_shown_too() -> None:
    shown = pb.operator("shown::some(x[..., n], b[n], c[...]) -> y[..., n] = x * b")
    assert str(shown.derivative()).splitlines()[1:] == [
        "    grad_x = b*grad",
        "    grad_b = sum[...](grad*x)",
        "    grad_c = 0",
        "    saves x, b",
    ]


def test_index_notation_is_shown_as_it_is_computed() -> None:
    linear = pb.operator("shown::linear(x[n, i], w[o, i]) -> y[n, o] = sum[i](x*w)").derivative()
    assert str(linear).splitlines()[1:] == [
        "    grad_x[n, i] = sum[o](grad[n, o]*w[o, i])",
        "    grad_w[o, i] = sum[n](grad[n, o]*x[n, i])",
        "    saves x, w",
    ]
    assert (
        r"{\mathrm{grad}_{x}}_{n, i} &= \sum_{o} \mathrm{grad}_{n, o} \, w_{o, i}" in linear.latex
    )
    assert (linear._repr_latex_() or "").startswith("$$\n\\begin{aligned}")


def test_a_notebook_shows_an_operator_by_its_line_and_its_formula() -> None:
    gauss = pb.operator("shown::near(x[n], y[m]) -> u[n] = sum[m](exp(-(x - y)**2))")
    assert r"u_{n} &= \sum_{m} e^{-\left(x - y\right)^{2}}" in (gauss._repr_latex_() or "")
    shown = gauss._repr_html_()
    assert "<code>shown::near(x[n], y[m]) -&gt; u[n] = sum[m]" in shown
    assert "torch.ops.shown.near" in shown
    plain = pb.operator("shown::plain(x[n]) -> y[n]", python=lambda x: x.exp())
    assert plain._repr_latex_() is None
    assert "$$" not in plain._repr_html_()


def test_a_notebook_shows_a_plan_as_bars() -> None:
    pairs = pb.operator("shown::pairs(x[n], y[m]) -> u[n] = sum[m](exp(-(x - y)**2))")
    plan = pairs.plan(torch.ones(30), torch.ones(20))
    shown = plan._repr_html_()
    assert shown.count('<span class="bar') == 2 * len(plan.steps)
    assert shown.count("width: 100.0%") >= 2
    assert all(step.operator in shown for step in plan.steps)


def test_a_notebook_shows_sharding_as_a_table() -> None:
    doubled = pb.operator("shown::doubled(x[n]) -> y[n] = 2*x")
    shown = doubled.sharding()
    assert str(shown).replace(">", "&gt;") in shown._repr_html_()
