"""What people read of a formula: text and LaTeX, simplified by SymPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from gathered import for_each

from pullback.define.math import derived, notation, sympy
from pullback.define.math.functions import TABLE, known_names
from pullback.define.math.node import Node
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
    ("clamp(x, min=0)", "where(x >= 0, grad, 0)"),
    ("clamp_max(x, 1)", "where(x <= 1, grad, 0)"),
    ("min(x, inf)", "grad"),
    ("x * nan", "nan"),
    ("abs(x) * -inf", "-inf*grad*sign(x)"),
    ("where(x < nan, x, 2*x)", "2*grad"),
    ("logit(x)", "where((x > 1) or (x < 0), nan, grad/(x*(1 - x)))"),
    ("x * log(0.0)", "grad*log(0)"),
    ("x * sqrt(-1.0)", "grad*sqrt(-1)"),
    ("fmax(x, z)", "where((isnan(z)) or (x >= z), grad, 0)"),
    ("where(isnan(z), 0, x)", "where(isnan(z), 0, grad)"),
    ("where((x > 0) == (z > 0), x, 0)", "where((z > 0) == (x > 0), grad, 0)"),
    ("where(logical_xor(x > 0, isinf(z)), x, 0)", "where(logical_xor(isinf(z), x > 0), grad, 0)"),
]


def gradients(text: str) -> tuple[Node, ...]:
    """The gradients of a formula of x and z."""
    found = derived.backward(notation.parse(parse(f"t::f(x[...], z[...]) -> y[...] = {text}")))
    return () if found is None else found.formula.nodes


@pytest.mark.parametrize(("text", "gradient"), READ)
def test_a_derivative_is_shown_simplified_in_the_language(text: str, gradient: str) -> None:
    assert sympy.to_text(gradients(text)[0]) == gradient


def calls() -> Iterator[str]:
    """Every function that has a derivative, of tensors and of numbers that SymPy has not."""
    for name, function in TABLE.items():
        if (
            name not in known_names()
            or function.kind not in ("real", "number")
            or name == "polygamma"
        ):
            continue
        for place, other in itertools.product(range(len(function.parameters)), ("z", "inf", "nan")):
            words = [other] * len(function.parameters)
            yield f"{name}({', '.join([*words[:place], 'x', *words[place + 1 :]])})"


@pytest.mark.thorough
@for_each("text", dict.fromkeys(calls()))
def test_the_gradients_of_every_function_are_shown(text: str) -> None:
    for node in gradients(text):
        assert sympy.to_text(node)
        assert sympy.to_latex(node)


def test_latex_names_words_upright_and_greek_letters_as_such() -> None:
    names = {"x": "x", "grad": r"\mathrm{grad}", "grad_x": r"\mathrm{grad}_{x}", "beta": r"\beta"}
    assert {name: sympy.latex_name(name) for name in names} == names


def test_latex_shows_the_formula() -> None:
    line = parse("t::f(x[...], beta: float) -> y[...] = exp(beta * x) / 2")
    node = notation.parse(line).nodes[0]
    assert sympy.to_latex(node) == r"\frac{e^{\beta \, x}}{2}"
