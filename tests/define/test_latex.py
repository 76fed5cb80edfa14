"""The text of a formula as LaTeX: what binds how tightly, and what the language has of its own."""

from __future__ import annotations

import ast
import re

import pytest

from pullback.define.math import derived, latex, notation
from pullback.define.parse import parse
from tests.define.indexed import FORMULAS
from tests.gathered import for_each


def written(text: str) -> str:
    return latex.to_latex(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b*c", r"a + b \, c"),
        ("(a + b)*c", r"\left(a + b\right) \, c"),
        ("a - (b - c)", r"a - \left(b - c\right)"),
        ("a - b - c", "a - b - c"),
        ("-a*b", r"-a \, b"),
        ("c*-a", r"c \, \left(-a\right)"),
        ("(-a)**2", r"\left(-a\right)^{2}"),
        ("-a**2", "-a^{2}"),
        ("a**b**c", "a^{b^{c}}"),
        ("(a**b)**c", r"\left(a^{b}\right)^{c}"),
        ("exp(a)**2", r"\left(e^{a}\right)^{2}"),
        ("(a + b)/c", r"\frac{a + b}{c}"),
        ("a/b*c", r"\frac{a}{b} \, c"),
        ("a // 2", r"\left\lfloor \frac{a}{2} \right\rfloor"),
        ("1e-5*a", r"1 \cdot 10^{-5} \, a"),
        ("sqrt(abs(a))", r"\sqrt{\left|a\right|}"),
        ("atan2(a, b)", r"\operatorname{atan2}\left(a, b\right)"),
        ("x[..., 2*i + k]", r"x_{\ldots, 2 \, i + k}"),
        ("grad_x[n]", r"{\mathrm{grad}_{x}}_{n}"),
        ("table[index[n], d]", r"\mathrm{table}_{\mathrm{index}_{n}, d}"),
        ("sum[n](x[n])*a", r"\left(\sum_{n} x_{n}\right) \, a"),
        ("a*sum[n](x[n])", r"a \, \sum_{n} x_{n}"),
        ("sum[n](x[n] + a)", r"\sum_{n} \left(x_{n} + a\right)"),
        ("sum[n](x[n]) + a", r"\sum_{n} x_{n} + a"),
        ("sum[k < 2*m + 1](x[k])", r"\sum_{k < 2 \, m + 1} x_{k}"),
        ("max[n](x[n])", r"\max_{n} \left(x_{n}\right)"),
        ("argmax[n](x[n])", r"\operatorname*{argmax}_{n} \left(x_{n}\right)"),
        ("0 <= i < n and not a == b", r"0 \le i < n \land a \ne b"),
        (
            "where(a > 0, a, 0)",
            r"\begin{cases} a & \text{if } a > 0 \\ 0 & \text{otherwise} \end{cases}",
        ),
    ],
)
def test_an_expression_is_written_as_people_write_it(text: str, expected: str) -> None:
    assert written(text) == expected


@for_each("line", FORMULAS)
def test_every_gradient_of_an_example_is_latex_with_all_its_brackets(line: str) -> None:
    found = derived.backward(notation.parse(parse(f"t::{line}")))
    assert found
    text, output = notation.format_formula(found.formula), found.formula.line.outputs[0]
    rows = latex.rows_of(text, output.name, output.labels)
    assert len(rows) == text.count("; ") + 1
    for row in rows:
        assert row.count(" &= ") == 1
        depth = 0
        for brace in re.findall(r"(?<!\\)[{}]", row):
            depth += 1 if brace == "{" else -1
            assert depth >= 0
        assert depth == 0
        sides = [len(re.findall(rf"\\{side}(?![a-z])", row)) for side in ("left", "right")]
        assert sides[0] == sides[1]


def test_statements_may_be_on_lines_of_their_own() -> None:
    rows = latex.rows_of("\n  t = x + 1;\n  y = t**2\n", "y")
    assert rows == ["t &= x + 1", "y &= t^{2}"]
