"""A derivative reads the outputs back where that is cheaper, and only there."""

from __future__ import annotations

import re

import pytest

from pullback.define.math import derived, notation
from tests.define.as_lines import made, operator

# By line: what the gradient keeps, and what of the computation is not done again.
KEEPS = {
    "f(x[n]) -> y[n] = exp(x[n] - max[m](x[m]))/sum[m](exp(x[m] - max[k](x[k])))": ["y"],
    "f(x[n, m]) -> y[m, n] = exp(x[n, m])/sum[k](exp(x[n, k]))": ["y"],
    "f(x[n, d], y[m, d]) -> z[n, m] = sqrt(sum[d]((x[n, d] - y[m, d])**2))": ["x", "y", "z"],
    "f(x[n, m]) -> (s[n], y[n]) = (sum[m](x[n, m]**2), exp(sum[m](x[n, m]**2)))": ["x", "y"],
    # Reading y would not spare reading x, nor the sum.
    "f(x[n]) -> y[n] = x[n]/sqrt(sum[m](x[m]**2))": ["x"],
    "f(x[n], w[n]) -> y[] = sum[n](x[n]*w[n])": ["x", "w"],
    "f(x[n, m]) -> (y[n], i[n]: int64) = (max[m](x[n, m]**2), argmax[m](x[n, m]**2))": ["x", "i"],
    # Where y is said to be of every m, an element of it is not an element of the quotient.
    "f(x[n], w[m]) -> y[n, m] = y[n, m] = exp(x[n])/(1 + exp(x[n]))": ["x"],
}


@pytest.mark.parametrize("text", KEEPS)
def test_what_is_saved(text: str) -> None:
    found = derived.backward(made(text))
    assert found
    assert [*found.saved] == KEEPS[text]


@pytest.mark.parametrize("part", ["exp({})", "exp({})/sum[m](exp(x[m]))"])
def test_an_output_of_a_part_is_not_read_beyond_it(part: str) -> None:
    some, all_ = part.format("x[i]"), part.format("x[k]")
    for limit, is_read in (("size(n) - 1", False), ("size(n)", True)):
        found = derived.backward(
            made(f"f(x[n]) -> (y[i], z[]) = y[i < {limit}] = {some}; z = sum[k]({all_})")
        )
        assert found
        assert (
            bool(re.search(r"(?<!grad_)y\[n\]", notation.format_formula(found.formula))) == is_read
        )


def test_the_gradient_of_a_quotient_has_it_as_a_factor() -> None:
    found = derived.backward(made("f(x[n, m]) -> y[m, n] = exp(x[n, m])/sum[k](exp(x[n, k]))"))
    assert found
    expected = "grad[m, n]*y[m, n] - sum[m1](grad[m1, n]*y[m1, n])*y[m, n]"
    assert notation.format_formula(found.formula) == expected


def test_the_maximum_still_leaves_where_an_output_is_read() -> None:
    for kinds in (["backward"], ["backward", "backward"]):
        printed = notation.format_formula(operator("attention", *kinds))
        assert "argmax" not in printed
        assert "o[" in printed
