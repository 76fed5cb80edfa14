"""Sums that are added up from parts: which expressions are one, and of which elements."""

from __future__ import annotations

import pytest

from pullback.define import parse
from pullback.define.math import notation
from pullback.define.math.index import size
from pullback.define.math.node import Node
from pullback.define.math.parts import open_sums

GIVEN = "(x[t], B[s], g[t, d], h[t, d, s])"


def node_of(labels: str, text: str) -> Node:
    """Return the element of a line's output."""
    line = f"parts::own{GIVEN} -> y[{labels}] = {text}"
    return notation.parse(parse.parse(line)).nodes[0]


SUMS = {
    "sum[d](g[t, d])": "g[t, d]",
    "x*sum[s](B*sum[d](h[t, d, s]))": "x*sum[s](B*h[t, d, s])",
    "sum[d](g[t, d])/x - sum[d](g[t, d]*x)": "g[t, d]/x - x*g[t, d]",
    "where(x > 0, -sum[d](g[t, d]), 0)": "where(x > 0, -g[t, d], 0)",
}
OTHERS = (
    "exp(sum[d](g[t, d]))",
    "sum[d](g[t, d]) + x",
    "sum[d](g[t, d])*sum[d](x*g[t, d])",
    "x/sum[d](g[t, d])",
    "max[d](g[t, d])",
)


@pytest.mark.parametrize("text", SUMS)
def test_a_linear_combination_of_sums_is_the_sum_of_its_elements(text: str) -> None:
    found = open_sums(node_of("t", text), {"d": size("d")})
    assert found is node_of("t, d", SUMS[text])


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_no_such_combination_is_no_sum(text: str) -> None:
    assert open_sums(node_of("t", text), {"d": size("d")}) is None


def test_several_indices_are_opened_one_after_the_other() -> None:
    found = open_sums(node_of("t", "x*sum[d, s](h[t, d, s])"), {"s": size("s"), "d": size("d")})
    assert found is node_of("t, d, s", "x*h[t, d, s]")
