"""Index notation is printed, and what is printed is read to the very same nodes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback import PullbackError
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.define.parse import parse
from tests.define.indexed import FORMULAS
from tests.telling import examples

TEXTS = {text.partition("(")[0]: text for text in FORMULAS}
DERIVE = {"backward": derived.backward, "jvp": derived.jvp}
ORDERS = ((), ("backward",), ("jvp",), ("backward", "backward"), ("backward", "jvp"))


@functools.cache
def of(name: str, *kinds: str) -> Formula:
    """Return a formula or its derivative: `of("gauss", "backward", "jvp")`."""
    if not kinds:
        return notation.parse(parse(f"demo::{TEXTS[name]}"))
    found = DERIVE[kinds[-1]](of(name, *kinds[:-1]))
    assert found is not None
    return found.formula


def require_round_trip(made: Formula) -> str:
    """Print a formula, read it, compare; return what was printed."""
    printed = notation.format_formula(made)
    given = {name: size for name, size in made.sizes.items() if name in made.line.dimensions}
    again = notation.parse(replace(made.line, formula=printed), made.accuracy, sizes=given)
    assert again.nodes == made.nodes, printed
    assert again.sizes == made.sizes, printed
    return printed


@pytest.mark.ci(3)
@pytest.mark.parametrize("kinds", ORDERS, ids=".".join)
@pytest.mark.parametrize("name", TEXTS)
def test_derivatives_of_every_order_are_printed_and_read_back(
    name: str, kinds: tuple[str, ...]
) -> None:
    require_round_trip(of(name, *kinds))


PRINTED = {
    "linear": "grad_x[n, i] = sum[o](grad[n, o]*w[o, i]); "
    "grad_w[o, i] = sum[n](grad[n, o]*x[n, i]); grad_b[o] = sum[n](grad[n, o])",
    "gauss": "t1[n, m] = exp(-sum[d]((x[n, d] - y[m, d])**2)); t2[n, m] = grad[n]*t1[n, m]; "
    "grad_x[n, d] = -2*(grad[n]*sum[m](v[m]*t1[n, m]*(x[n, d] - y[m, d]))); "
    "grad_y[m, d] = 2*(v[m]*sum[n](t2[n, m]*(x[n, d] - y[m, d]))); "
    "grad_v[m] = sum[n](t2[n, m])",
    "correlate": "grad_x[h, w] = sum[p](where(0 <= h - p < size(h) - size(p) + 1, "
    "sum[q](where(0 <= w - q < size(w) - size(q) + 1, grad[h - p, w - q]*k[p, q], 0)), 0)); "
    "grad_k[p, q] = sum[i, j](grad[i, j]*x[i + p, j + q])",
    "softmax": "grad[..., n]*y[..., n] - sum[n1](grad[..., n1]*y[..., n1])*y[..., n]",
    "gather": "2*sum[n](where(v == idx[n], grad[n, d]*x[idx[n], d], 0))",
    "stride": "grad_x[h] = sum[j](where(0 <= h - 2*j < size(p), grad[j]*k[h - 2*j], 0)); "
    "grad_k[p] = sum[j](grad[j]*x[2*j + p])",
    "rowmax": "where(m == argmax[m1](x[n, m1]**2), 2*(grad[n]*x[n, m]), 0)",
    "cumsum": "sum[n1](where(n <= n1, grad[n1], 0))",
    "column": "where(m == 0, grad[n]*sum[m1](a[n, m1]**2), 0) + 2*(grad[n]*a[n, 0]*a[n, m])",
}


@pytest.mark.parametrize(("name", "expected"), PRINTED.items(), ids=list(PRINTED))
def test_gradient_is_printed_compactly(name: str, expected: str) -> None:
    assert notation.format_formula(of(name, "backward")) == expected


SHAPES = [
    "(x[n, n]) -> y[n, n1] = y[n, n1 < size(n)] = x[n, n1]",
    "(x[n, n]) -> y[n, n] = x",
    "(x[n]) -> y[n, n] = y[a, b] = where(a == b, x[a], 0)",
    "(x[n, 3]) -> y[n, 3] = y[n, c] = x[n, c]*c",
    "(x[n, 3], z[n, 3]) -> y[n] = sum[c](x[n, c]*z[n, c])",
    "(x[n, e]) -> y[n, e] = y[n, e] = x*n",
    "(x[n], e[m]) -> y[n] = sum[m](x*e*m)",
    "(x[n, e]) -> y[n] = sum[k](x[n, k]*k)",
    "(x[..., n]) -> y[n] = sum[...](x)",
    "(x[..., n], y[..., n]) -> z[] = sum[..., n](x*y)",
    "(x[n], y[m]) -> z[i] = z[i < size(n)] = x[i] + pad(y[i + 1])",
    "(x[h], k[p]) -> y[h] = sum[q < 3](pad(x[h - q]))*size(p)",
    "(x[n]) -> (y[], i[]: int64) = (max[n](x), argmax[n](x))",
    "(x[n], k: int, a: float) -> y[] = pad(x[k + 1])*a",
    "(x[n], i[m]: int64, f[m]: bool) -> y[m] = where(f, x[i + 1], i)*(i + 2*m - 1)",
    "(x[n], t1[n]) -> y[n] = sum[k](exp(x[k]*t1[n])*exp(x[k]*t1[n]))",
    "(i[n]: int64) -> (y[]: int64, z[n]: bool) = (sum[n](i == 3), i == n)",
    "(x[n]) -> y[i] = t[j] = exp(x[2*j]); y = t[i + 1] - t[i]",
    "(x[n]) -> y[] = size(n)",
    "(x[n]) -> y[n] = mean[k](x[k] - n % 2) + (n//3)*n**2",
    "(x[n]) -> y[] = max[i < size(n)//2](x[2*i] - x[2*i + 1])",
    "(x[n]) -> y[n] = pad(x[n + 1 - 2*(n % 2)])*(n//6 % 5) + pad(x[2*(n//4) + n % 2])",
    "(x[n]) -> y[n] = x[n//2]*(n % 2) - pad(x[n - (n + 1)//2]) + x[0]*(-(n % 3))*(1 - n//2)",
    "(x[b, n]) -> y[b, n] = s[b, m < (size(n) + 7)//8] = sum[p < 8](pad(x[b, 8*m + p])**2);"
    " y = x/s[b, n//8]",
    # In its gradient one expression stands in sums over n and m, and over m and n.
    "(x[n, m], y[m], z[n]) -> (r[n, m], s[n]) = t[n, j < size(m)] = z[0]/(3 + pad(y[j + n]));"
    " r = x + t[n, m]*t[0, m]; s = sum[j](t[n, j])",
    # In its tangent a part is read only where a condition on its own indices holds.
    "(x[n, m], y[m]) -> (r[n, m], s[n]) = t[n, j < size(m)] = sum[i < size(m)](pad(y[(j - n)//4]));"
    " r = x + t[n, m]*t[0, m]; s = sum[j](t[n, j])",
]


@pytest.mark.parametrize("text", SHAPES)
def test_unusual_indices_are_printed_and_read_back(text: str) -> None:
    made = notation.parse(parse(f"demo::f{text}"))
    require_round_trip(made)
    for derive in DERIVE.values():
        if (found := derive(made)) is not None:
            require_round_trip(found.formula)


# --- at random


@st.composite
def formulas(draw: st.DrawFn) -> str:
    """A formula of random reads, guards and reductions, of one output or two."""
    fresh = iter(range(1000))

    def expression(rows: Sequence[str], columns: Sequence[str], depth: int) -> str:
        def inner() -> str:
            return expression(rows, columns, depth - 1)

        n, m = draw(st.sampled_from(rows)), draw(st.sampled_from(columns))
        leaves = [f"x[{n}, {m}]", f"y[{m}]", f"z[{n}]", f"table[idx[{n}], {m}]", "a", "2", "0.5"]
        leaves += [f"pad(x[{n} - 1, {m}])", f"pad(y[{m} + {n}], 1.0)", n, f"idx[{n}]", "size(m)"]
        leaves += [f"where({n} > 0, z[{n} - 1], 0)", "z[0]", f"pad(x[k, 2*{m}])"]
        leaves += [f"x[{n}//2, ({m} + 1) % 3]", f"pad(y[({m} - {n})//4])", f"({n} + {m}) % 2"]
        kind = draw(st.sampled_from(["leaf", "two", "one", "where", "sum", "sum", "max"]))
        if depth == 0 or kind == "leaf":
            return draw(st.sampled_from(leaves))
        if kind == "two":
            # A divisor that is 0 outside of a tensor alone would be a number that is refused.
            both = draw(st.sampled_from(["({} + {})", "({} - {})", "({}*{})", "({}/(3 + {}))"]))
            return both.format(inner(), inner())
        if kind == "one":
            return draw(st.sampled_from(["-({})", "exp({})", "({})**2", "tanh({})"])).format(
                inner()
            )
        if kind == "where":
            condition = draw(
                st.sampled_from([f"{inner()} < {inner()}", f"{n} == 0", f"{m} <= {n}"])
            )
            return f"where({condition}, {inner()}, {inner()})"
        reduction = "sum" if kind == "sum" else draw(st.sampled_from(["max", "min", "mean"]))
        index = f"i{next(fresh)}"
        if draw(st.booleans()):
            size, (more, other) = "n", ((*rows, index), columns)
        else:
            size, (more, other) = "m", (rows, (*columns, index))
        return f"{reduction}[{index} < size({size})]({expression(more, other, depth - 1)})"

    one = expression(["n"], ["m"], draw(st.integers(1, 4)))
    inputs = "x[n, m], y[m], z[n], table[v, m], idx[n]: int64, k: int, a: float"
    if draw(st.booleans()):
        return f"({inputs}) -> r[n, m] = {one}"
    part = expression(["n"], ["j"], 2)
    shared = f"t[n, j < size(m)] = {part}"
    outputs = f"r = {one} + t[n, m]*t[0, m]; s = sum[j](t[n, j])"
    return f"({inputs}) -> (r[n, m], s[n]) = {shared}; {outputs}"


@settings(max_examples=examples(60, 400))
@given(formulas())
def test_any_formula_and_its_derivatives_are_printed_and_read_back(text: str) -> None:
    made = parsed(text)
    if made is None:
        return
    require_round_trip(made)
    for derive in DERIVE.values():
        if (found := derive(made)) is not None:
            require_round_trip(found.formula)


def parsed(text: str) -> Formula | None:
    """Return a formula; None if it divides by the number 0, or takes the maximum of conditions."""
    try:
        return notation.parse(parse(f"demo::f{text}"))
    except PullbackError as error:
        if error.finding.code in ("PB135", "PB136"):
            return None
        raise
