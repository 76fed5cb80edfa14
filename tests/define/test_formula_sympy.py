"""What people read of a formula: text and LaTeX, simplified by SymPy."""

from __future__ import annotations

import pytest

from pullback.define.formula import derived, formula, sympy
from pullback.define.parse import parse

READ = [
    ("(5*x**3 - 3*x) / 2", "3*grad*(5*x**2 - 1)/2"),
    ("x * exp(x)", "grad*(x + 1)*exp(x)"),
    ("where(x > 0, tanh(x), x**2 / 2)", "where(x > 0, grad/cosh(x)**2, grad*x)"),
    ("where(x > 0 and x < 1, x, 0)", "where((x > 0) and (x < 1), grad, 0)"),
    ("x * abs(z)", "grad*abs(z)"),
    ("x * maximum(z, 0.0)", "grad*maximum(0, z)"),
    ("lgamma(x)", "grad*digamma(x)"),
    ("x * softplus(z)", "grad*softplus(z)"),
]


@pytest.mark.parametrize(("text", "gradient"), READ)
def test_a_derivative_is_shown_simplified_in_the_language(text: str, gradient: str) -> None:
    line = parse(f"t::f(x[...], z[...]) -> y[...] = {text}")
    found = derived.backward(formula.parse(line))
    assert found is not None
    assert sympy.text(found.formula.nodes[0]) == gradient


def test_latex_names_words_upright_and_greek_letters_as_such() -> None:
    names = {"x": "x", "grad": r"\mathrm{grad}", "grad_x": r"\mathrm{grad}_{x}", "beta": r"\beta"}
    assert {name: sympy.latex_name(name) for name in names} == names


def test_latex_shows_the_formula() -> None:
    line = parse("t::f(x[...], beta: float) -> y[...] = exp(beta * x) / 2")
    node = formula.parse(line).nodes[0]
    assert sympy.latex(node) == r"\frac{e^{\beta \, x}}{2}"
