"""Index notation without PyTorch: what is read, which ranges follow, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pullback import PullbackError
from pullback.define.dimension import Number
from pullback.define.math import derived, infer, notation, show
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import in_order, index
from pullback.define.math.sizes import arithmetic
from pullback.define.parse import parse


def read(text: str) -> Formula:
    """The formula of `(x[n]) -> y[i] = ...`."""
    return notation.parse(parse(f"demo::f{text}"))


def rows(text: str) -> list[str]:
    return [row for row in text.split("\n") if row]


def text_of(size: Affine) -> str:
    return show.format_node(index(size))


# --- what means the same

SAME = [
    ("(x[n], y[m]) -> z[n, m] = x + y", "(x[n], y[m]) -> z[n, m] = x[n] + y[m]"),
    ("(x[..., n]) -> y[..., n] = x", "(x[..., n]) -> y[..., n] = x[..., n]"),
    ("(x[..., n]) -> y[..., n] = x[n]", "(x[..., n]) -> y[..., n] = x[..., n]"),
    ("(x[..., n]) -> y[n] = sum[...](x)", "(x[..., n]) -> y[n] = sum[b](x[b, n])"),
    ("(x[n]) -> y[] = sum[n](x)", "(x[n]) -> y[] = sum[k](x[k])"),
    ("(x[n]) -> y[] = min[n](x)", "(x[n]) -> y[] = -max[k](-x[k])"),
    ("(x[n]) -> y[] = mean[n](x)", "(x[n]) -> y[] = sum[k](x[k])/size(n)"),
    ("(x[n, m]) -> y[] = sum[n, m](x)", "(x[n, m]) -> y[] = sum[n](sum[m](x))"),
    ("(x[n, m]) -> y[] = max[n, m](x)", "(x[n, m]) -> y[] = max[n](max[m](x))"),
    ("(x[n]) -> y[n] = t = exp(x); y = t*t", "(x[n]) -> y[n] = exp(x)*exp(x)"),
    ("(x[n]) -> y[n] = t[k] = exp(x[k]); y = t[n]*t[n]", "(x[n]) -> y[n] = exp(x)*exp(x)"),
    (
        "(x[n]) -> y[n] = p = argmax[m](x[m]); t = 2*x[p]; y = t*x[n]",
        "(x[n]) -> y[n] = 2*x[argmax[m](x[m])]*x[n]",
    ),
    ("(x[n]) -> y[i] = t[k] = exp(x[k + 1]); y = t[i + 1]", "(x[n]) -> y[i] = exp(x[i + 2])"),
    ("(x[n]) -> y[] = t = exp(x[k]); y = sum[k](t)", "(x[n]) -> y[] = sum[n](exp(x))"),
    ("(x[n, n]) -> y[n, n] = x", "(x[n, n]) -> y[n, n] = y[a, b] = x[a, b]"),
    ("(x[..., n]) -> y[..., n] = y[..., i] = x[i]", "(x[..., n]) -> y[..., n] = y[i] = x[i]"),
    (
        "(x[..., n]) -> y[..., n] = y[..., n] = x + pad(y[..., n - 1])",
        "(x[..., n]) -> y[..., n] = y[n] = x + pad(y[n - 1])",
    ),
    ("(x[n]) -> y[n] = pad(x[n - 1])", "(x[n]) -> y[n] = where(0 <= n - 1 < size(n), x[n - 1], 0)"),
    (
        "(x[n]) -> y[n] = pad(x[n - 1], inf)",
        "(x[n]) -> y[n] = where(0 <= n - 1 < size(n), x[n - 1], inf)",
    ),
    ("(x[n]) -> y[n] = pad(x[n])", "(x[n]) -> y[n] = x"),
    ("(x[n]) -> y[n] = x[2*n - n - n + n]", "(x[n]) -> y[n] = x"),
    ("(x[n]) -> y[n] = (n + 1)*x", "(x[n]) -> y[n] = (1 + n)*x"),
    ("(x[n], k: int) -> y[] = x[k + 1]", "(x[n], k: int) -> y[] = x[1 + k]"),
    ("(x[n], i[m]: int64) -> y[m] = x[i]", "(x[n], i[m]: int64) -> y[m] = x[i[m]]"),
    ("(x[n]) -> (y[], z[n]) = (sum[n](x), x)", "(x[n]) -> (y[], z[n]) = z = x; y = sum[k](z[k])"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_say_the_same_are_the_same_nodes(one: str, other: str) -> None:
    assert read(one).nodes == read(other).nodes


DATA = ["k == j", "k + 1 == 2*j", "0 <= k < 5", "0 <= k + j < 5", "k < j", "0 <= k < j"]


@pytest.mark.parametrize("text", DATA)
def test_whole_numbers_of_data_are_compared_as_they_are_written(text: str) -> None:
    inputs = "k[n]: int64, j[n]: int64"
    made = read(f"({inputs}) -> y[n]: bool = {text}").nodes[0]
    written = re.sub(r"\b([kj])\b", r"\1[n]", text)
    assert read(f"({inputs}) -> y[n]: bool = {written}").nodes == (made,)
    assert {part.op for part in in_order([made])}.isdisjoint({"equal", "inside"})


# --- ranges

RANGES = [
    ("(x[h], k[p]) -> y[i] = sum[p](x[i + p]*k[p])", "size(h) - size(p) + 1"),
    ("(x[h], k[p]) -> y[i] = sum[j](x[i + j]*k[j])", "size(h) - size(p) + 1"),
    ("(x[h], k[p]) -> y[i] = sum[p](x[2*i + p]*k[p])", "(size(h) - size(p))//2 + 1"),
    ("(x[h], k[p]) -> y[i] = sum[p](x[3*i + 2*p]*k[p])", "(size(h) - 2*size(p) + 1)//3 + 1"),
    ("(x[h], k[p]) -> y[i] = sum[p](x[i + 2*p]*k[p])", "size(h) - 2*size(p) + 2"),
    ("(x[h]) -> y[i] = x[i + 1] - x[i]", "size(h) - 1"),
    ("(x[h]) -> y[i] = x[i + 1] - pad(x[i - 1])", "size(h) - 1"),
    ("(x[h]) -> y[i] = pad(x[i - 1])", "size(h) + 1"),
    ("(x[h]) -> y[i] = x[size(h) - 1 - i]", "size(h)"),
    ("(x[h]) -> y[i] = max[k < 2](x[2*i + k])", "size(h)//2"),
    ("(x[h]) -> y[i] = max[k < 4](x[4*i + k])", "size(h)//4"),
    ("(x[h]) -> y[i] = t[j] = x[2*j + 1]; y = t[i + 1]", "size(h)//2 - 1"),
    ("(x[h]) -> y[i] = y[i < size(h)//3] = x[i]", "size(h)//3"),
    ("(x[h]) -> y[i] = y[i < 4*size(h)//2] = pad(x[i])", "2*size(h)"),
    ("(x[h]) -> y[i] = x[i]", "size(h)"),
    ("(x[..., h]) -> y[..., i] = x[i + 2]", "size(h) - 2"),
    ("(x[n, 7]) -> y[n, i] = x[n, i + 3]", "4"),
]


@pytest.mark.parametrize(("text", "expected"), RANGES)
def test_range_of_a_new_index_follows_from_what_is_read(text: str, expected: str) -> None:
    assert text_of(read(text).sizes["i"]) == expected


def test_range_of_an_output_is_a_dimension_of_its_line() -> None:
    made = read("(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[2*i + p, j + q]*k[p, q])")
    assert str(made.shaped.outputs[0]) == "y[(h - p) // 2 + 1, w - q + 1]"
    assert arithmetic(Affine(4)) == Number(value=4)


# --- which language

POINTWISE = """
(x[n]) -> y[n] = x*2
(x[..., n]) -> y[..., n] = tanh(x)
(x[e]) -> y[e] = x + e
(x[n]) -> y[n] = t = x; y = t + 1
(x[n], k: int) -> y[n] = x*k
(x[n, d], w[d]) -> y[n, d] = x*w
(x[n]) -> y[n] = max(x, 0)
"""
INDEXED = """
(x[n]) -> y[n] = x[n]
(x[n]) -> y[] = sum[n](x)
(x[n]) -> y[n] = x*size(n)
(x[n]) -> y[n] = x*n
(x[n]) -> y[i] = x[i]
(x[n]) -> (a[n], b[]) = (x, 2.0)
(x[n]) -> y[n] = y[i] = x[i]
(x[n]) -> y[n] = pad(x[n])
"""


@pytest.mark.parametrize(
    ("text", "expected"), [(t, t in INDEXED.split("\n")) for t in rows(POINTWISE + INDEXED)]
)
def test_indices_decide_which_language_a_formula_is_in(text: str, expected: bool) -> None:
    assert read(text).pointwise is not expected


# --- reads under conditions

INSIDE = """
(x[n]) -> y[n] = where(n > 0, x[n - 1], 0)
(x[n]) -> y[n] = where(n >= 1, x[n - 1], 0)
(x[n]) -> y[n] = where(0 < n, x[n - 1], 0)
(x[n]) -> y[n] = where(n == 0, 0, x[n - 1])
(x[n]) -> y[n] = where(n != 0, x[n - 1], 0)
(x[n]) -> y[n] = where(not n == 0, x[n - 1], 0)
(x[n]) -> y[n] = where(n < 1, 0, x[n - 1])
(x[n]) -> y[n] = where(n <= 0 or x > 0, 0, x[n - 1])
(x[n]) -> y[n] = where(n + 1 < size(n), x[n + 1], 0)
(x[n]) -> y[n] = where(0 <= n - 1 < size(n), x[n - 1], 0)
(x[n]) -> y[n] = where(n > 0 and n < size(n) - 1, x[n - 1] + x[n + 1], 0)
(x[n]) -> y[n] = where(n > 0, where(n < size(n) - 1, x[n - 1] + x[n + 1], 0), 0)
(x[n]) -> y[n] = where(n > 0 and x[n - 1] > 0, x, 0)
(x[n]) -> y[n] = sum[k < size(n)](where(k <= n, x[n - k], 0))
(x[n], k: int) -> y[n] = where(k > 0, x[k], 0)
(x[n], i[n]: int64) -> y[n] = x[2*i[n] - 1]
(x[n, 4]) -> y[n] = x[n, 3]
(x[n]) -> y[] = x[size(n) - 1]
(x[n]) -> y[n] = before[i] = x[i - 1]; y = where(n > 0, before[n], 0)
(x[n]) -> y[n] = a[i] = x[i - 1]; b[i] = 2*a[i]; y = where(n > 0, b[n], 0)
(x[n]) -> y[] = x[argmax[k](x[k]*x[k])]
(x[h], k[p]) -> y[j] = sum[p](x[2*j + p]*k[p])
"""


@pytest.mark.parametrize("text", rows(INSIDE))
def test_read_that_stays_inside_is_accepted(text: str) -> None:
    read(text)


# --- what is refused

REFUSED = {
    "PB140": """
(x[n], y[m]) -> z[i] = x[i] + y[i]
(x[n]) -> z[i, j] = x[i + j]
(x[n], y[m]) -> z[] = sum[i](x[i]*y[i])
(x[n], y[m]) -> z[n] = t[i] = x[i]*y[i]; z = t[n]
(x[n]) -> y[i] = pad(x[i - 1]) + pad(x[i + 1])
(x[n]) -> y[] = sum[i, j](x[2*i + 3*j])
""",
    "PB141": """
(x[h]) -> y[h] = x[h + 1]
(x[h]) -> y[h] = x[h - 1]
(x[h]) -> y[i] = x[i - 1]
(x[h]) -> y[h] = x[2*h]
(x[h]) -> y[h] = x[-1]
(x[h]) -> y[h] = x[1]
(x[n], y[m]) -> z[n, m] = x[m] + y[n]
(x[n, 4]) -> y[n] = x[n, 4]
(x[n], y[m], z[q]) -> r[] = sum[i, j](x[i + j]*y[i]*z[j])
(x[n], m[n]: bool) -> y[n] = where(m, x[n + 1], 0)
(x[n]) -> y[n] = where(n > 0, x[n - 2], 0)
(x[n]) -> y[n] = where(n > 0, 0, x[n - 1])
(x[n]) -> y[n] = where(n > 0 or x > 0, x[n - 1], 0)
(x[n]) -> y[n] = where(x[n - 1] > 0, x, 0)
(x[n]) -> y[n] = (n > 0)*x[n - 1]
(x[n]) -> y[n] = t[k] = x[k]; y = t[n + 1]
(x[n]) -> y[n] = t[k] = x[k - 1]; y = t[n]
(x[n]) -> y[n] = t[k] = x[k - 1]; y = where(n >= 0, t[n], 0)
(x[n]) -> y[] = sum[k < 5](x[k])
(x[n]) -> y[] = x[argmax[k](x[k]) + 1]
""",
    "PB142": """
(x[h]) -> y[i] = 3.0
(x[h]) -> y[] = sum[i](1.0)
(x[h], k[p]) -> y[h] = sum[q](x[h + q])
(x[h]) -> y[h] = sum[q](pad(x[h - q]))
(x[h]) -> y[h] = sum[q](pad(x[h + q - 1]))
(x[n], i[m]: int64) -> y[m] = sum[k](x[i[m] + k])
(x[n]) -> y[n] = t[k] = 2.0; y = x*t[n]
(x[t]) -> h[t, s] = pad(h[t - 1, s]) + x
(x[t]) -> h[t, s] = pad(h[t - 1, s - 1]) + x
(x[t]) -> (h[t, s], g[t, s]) = h = pad(g[t - 1, s]) + x; g = 2*h
(x[t]) -> y[t] = h[t, s] = pad(h[t - 1, s]) + x; y = sum[s](h[t, s])
(x[t]) -> y[t] = h[t, s] = pad(h[t - 1, s]) + x; y = h[t, 0]
""",
    "PB143": """
(x[n, m]) -> y[n, m] = x[n]
(x[n]) -> y[n] = x[n, n]
(x[..., n, m]) -> y[..., n, m] = x[n, ..., m]
(x[n]) -> y[n] = x[..., n]
(x[n], k: int) -> y[n] = x*k[0]
(x[n]) -> y[n] = t[k] = x[k]; y = t[n, n]
(x[n]) -> y[n] = y[i, j] = x[i]
(x[n]) -> y[n] = sum[n]
""",
    "PB144": """
(x[n]) -> y[i, j] = x[i*j]
(x[n]) -> y[n] = x[n//size(n)]
(x[n]) -> y[n] = x[(n + 1) % size(n)]
(x[n]) -> y[n] = x[n // -2]
(x[n], i[n]: int64) -> y[n] = x[(i[n] + n)//2]
(x[n]) -> y[i] = x[i**2]
(x[n]) -> y[n] = x[n/2]
(x[n]) -> y[n] = x[1.5]
(x[n]) -> y[n] = x[True]
(x[n]) -> y[n] = x[x[n]]
(x[n]) -> y[n] = x[x[n] > 0]
(x[n]) -> y[n] = x[0:n]
(x[n]) -> y[] = sum[k < 2.5](1.0)
(x[n]) -> y[] = sum[k < -1](1.0)
(x[n], m: float) -> y[] = sum[k < m](1.0)
(x[n], m[n]: int64) -> y[n] = sum[k < m[n]](1.0)
(x[n]) -> y[] = sum[n](sum[k < n](x[k]))
(x[n]) -> y[] = sum[k <= 5](1.0)
(x[n]) -> y[] = sum[2](1.0)
(x[n]) -> y[n] = y[n < 5] = x
""",
    "PB145": """
(x[n, m]) -> y[n] = x[n, m]
(x[n, m]) -> y[n] = x
(x[n, m]) -> y[n] = m*2.0
(x[n, m]) -> y[n] = x[n, q]
(x[n]) -> y[] = sum[k < n](x[k])
(x[n]) -> y[n] = x*size(q)
(x[..., n]) -> y[n] = x
(x[..., n]) -> y[n] = x[n]
(x[n]) -> y[n] = sum[...](x)
(x[n]) -> y[n] = t = x[k]; y = t
""",
    "PB146": """
(x[n, m]) -> y[n] = sum[n](x[n, 0])
(x[n]) -> y[] = sum[n, n](x)
(x[n]) -> y[] = sum[n](sum[n](x))
(x[n]) -> y[] = sum[x](1.0)
(x[n], a: float) -> y[] = sum[a < 3](1.0)
(x[n]) -> y[] = t = 2.0; y = sum[t < 3](1.0)
(x[n, e]) -> y[n] = sum[e](e*x[n, e])
(x[n, m]) -> y[n, m] = y[m, n] = x[m, n]
(x[n, n]) -> y[n, n] = y[i, i] = x[i, i]
""",
    "PB150": """
(x[n]) -> y[n] = x/sqrt(mean[k](x**2))
(x[n]) -> y[n] = x/sqrt(mean[k < size(n)](x**2))
(x[n], w[k]) -> y[n] = x/sqrt(mean[k](x**2))
(x[..., n]) -> y[..., n] = exp(x)/sum[k](exp(x))
(x[...]) -> y[...] = x - max[k](x)
(x[n]) -> y[n] = sum[k](exp(x[n]))
(x[n]) -> y[n] = t = x**2; y = x/mean[k](t)
(x[h, w]) -> y[h, w] = x - min[i, j](x)
(x[n], w[m]) -> y[n] = sum[k](x*sum[m](w))
(x[h]) -> y[] = sum[i](sum[h](x[h]))
""",
    "PB131": """
(x[n]) -> y[n] = x[n
(x[n]) -> y[n] = x[n] += 2
(x[n]) -> y[n] = a = b = x[n]
(x[n]) -> y[n] = x[n].y
(x[n]) -> y[n] = x[n] if n else 0
""",
    "PB132": """
(x[n]) -> y[] = prod[n](x)
(x[n]) -> y[] = sum(x[n])
(x[n]) -> y[] = max(x[n])
(x[n]) -> y[n] = x[n](3)
(x[n]) -> y[n] = foo(x[n])
""",
    "PB133": """
(x[n]) -> y[n] = z[n]
(x[n]) -> y[n] = x[n] + z
(x[n]) -> y[n] = x[n] + sum
""",
    "PB134": """
(x[n]) -> y[] = sum[n](x, 2)
(x[n]) -> y[n] = pad(x[n], 1, 2)
(x[n]) -> y[n] = pad(x[n] + 1)
(x[n]) -> y[n] = x*size(n, n)
(x[n, m]) -> y[]: int64 = argmax[n, m](x)
""",
    "PB135": """
(x[n]) -> y[] = max[n](x > 0)
(x[n]) -> y[]: int64 = argmax[n](x > 0)
(m[n]: bool) -> y[n]: bool = pad(m[n - 1])
(x[n]) -> y[n] = not x[n]
(x[n]) -> y[n] = 10*int(x[n])
(x[...]) -> y[...] = int(x)
(x[n], t[m]) -> y[n] = pad(t[int(floor(x[n]))])
""",
    "PB136": """
(x[n]) -> y[n] = x[n]/0
""",
    "PB137": """
(x[n]) -> y[n] = t = x[n]
(x[n]) -> (y[n], z[n]) = x[n]
(x[n]) -> y[n] = y = x[n]; y = x[n]
(x[n]) -> y[n] = x = x[n]; y = x
(x[n]) -> y[n] = n = x[n]; y = n
(x[n]) -> x[n] = x[n]
(x[n]) -> y[n] = pi = x[n]; y = pi
""",
    "PB138": """
(x[n]) -> y[n + 1] = x[n]
(x[*]) -> y[n] = x[n]
""",
    "PB139": """
(x[n]: complex64) -> y[n] = x[n]
(x[n]) -> y[n]: int64 = x[n]
(x[n]) -> y[n] = x[n] > 0
(x[n], s: str) -> y[n] = x[n]
""",
}


@pytest.mark.parametrize(
    ("code", "text"),
    [(code, text) for code, many in REFUSED.items() for text in rows(many)],
)
def test_what_cannot_be_meant_is_refused(code: str, text: str) -> None:
    with pytest.raises(PullbackError) as caught:
        read(text)
    assert caught.value.finding.code == code, caught.value
    assert caught.value.finding.message.startswith("demo::f: ")


def refusal(text: str) -> str:
    with pytest.raises(PullbackError) as caught:
        read(text)
    return str(caught.value)


def test_ambiguous_range_is_refused_with_both_readings() -> None:
    assert refusal("(x[n], y[m]) -> z[i] = x[i] + y[i]") == (
        "ambiguous-range [PB140]: demo::f: how far 'i' runs is not certain\n"
        "    at:     z[i] = ...\n"
        "    first:  i < size(n), by x[i]\n"
        "    second: i < size(m), by y[i]\n"
        "    help:   one name for both dimensions, if they are equal; write a limit, "
        "z[i < size(n)] = ...; or pad(y[i]), which is 0 outside"
    )


def test_cures_of_an_ambiguous_range_cure_it() -> None:
    limited = read("(x[n], y[m]) -> z[i] = z[i < size(n)] = x[i] + pad(y[i])")
    padded = read("(x[n], y[m]) -> z[i] = x[i] + pad(y[i])")
    assert limited.nodes == padded.nodes
    assert text_of(limited.sizes["i"]) == text_of(padded.sizes["i"]) == "size(n)"
    named = read("(x[n], y[n]) -> z[i] = x[i] + y[i]")
    assert text_of(named.sizes["i"]) == "size(n)"


# What is written first, and the element that the help puts in place of the name alone.
UNREAD = [
    ("(x[n]) -> y[n] = x/sqrt(mean[k]({}**2))", "x", "x[k]"),
    ("(x[..., n]) -> y[..., n] = exp(x)/sum[k](exp({}))", "x", "x[..., k]"),
    ("(x[n]) -> y[n] = t = x**2; y = x/mean[k]({})", "t", "t[k]"),
    ("(x[h, w]) -> y[h, w] = x - min[i, j]({})", "x", "x[i, j]"),
    ("(x[n, d]) -> y[n, d] = x - max[k]({})", "x", "x[n, k]"),
    ("(x[n, n]) -> y[n, n] = x - max[k]({})", "x", "x[n, k]"),
    ("(x[n]) -> y[] = mean[k]({}**2)", "x", "x[k]"),
]


@pytest.mark.parametrize(("text", "name", "meant"), UNREAD)
def test_cure_of_a_reduction_that_reads_nothing_at_its_index_cures_it(
    text: str, name: str, meant: str
) -> None:
    assert f"help: write {meant}" in refusal(text.format(name))
    read(text.format(meant))


def test_reduction_that_says_its_limit_and_its_elements_is_meant() -> None:
    assert read("(x[n]) -> y[n] = sum[k < 3](x[n])").nodes == read("(x[n]) -> y[n] = 3*x").nodes


@pytest.mark.parametrize("value", ["x[n]/x[n]", "exp(x[n])/exp(x[n])", "x[n]*2/x[n] + size(n)"])
def test_gradient_that_is_seen_to_be_zero_only_without_the_output_is_none(value: str) -> None:
    assert derived.backward(read(f"(x[n]) -> y[n] = {value}")) is None


def test_read_outside_is_refused_where_it_leaves() -> None:
    message = refusal("(x[h]) -> y[h] = x[h + 1]")
    assert "x[h + 1] may be outside of 'x': it goes to size(h)" in message
    assert "'x' ends at size(h) - 1" in message
    assert "pad(x[h + 1]) is 0 there" in message


def test_brackets_without_an_index_are_no_part_of_a_formula() -> None:
    assert "has no brackets in a formula: t" in refusal("(x[n]) -> y[] = t[] = max[n](x); y = 2*t")


def test_an_error_in_a_part_names_the_index_that_its_reader_has() -> None:
    line = (
        "(q[n, d], k[n, d], v[m]) -> o[n] = a[n, m] = sum[d](q[n, d]*k[m, d]);"
        " t[n] = max[m](a); o = t + sum[m](v[m])"
    )
    assert "'m' runs over size(m)" in refusal(line)


def test_formula_that_is_nested_too_deep_is_refused() -> None:
    limit = sys.getrecursionlimit()
    try:
        # Python's own limit, which torch.compile raises; and one that is nearly used up already.
        for limited, depth in ((1000, 1000), (500, 195)):
            sys.setrecursionlimit(limited)
            with pytest.raises(PullbackError, match="PB131"):
                read(f"(x[n]) -> y[n] = {'exp(' * depth}x[n]{')' * depth}")
        sys.setrecursionlimit(1000)
        read(f"(x[n]) -> y[n] = {'exp(' * 150}x[n]{')' * 150}")
    finally:
        sys.setrecursionlimit(limit)


def test_parts_that_are_used_twice_at_every_step_are_read_once() -> None:
    steps = "; ".join(f"a{k + 1}[i] = a{k}[i]*a{k}[i]" for k in range(40))
    read(f"(x[n]) -> y[n] = a0[i] = x[i - 1]; {steps}; y = where(n > 0, a40[n], 0)")


# --- calls

CALLS = [
    ("(x[n]) -> y[] = x[0]", {"n": 0}, "PB141"),
    ("(x[n]) -> y[] = x[0]", {"n": 1}, None),
    ("(x[n, m]) -> y[m] = x[0, m]", {"n": 0, "m": 0}, None),
    ("(x[n], y[m]) -> z[] = sum[m](exp(x[0]*y[m]))", {"n": 0, "m": 0}, None),
    ("(x[n], y[m]) -> z[] = sum[m](exp(x[0]*y[m]))", {"n": 0, "m": 2}, "PB141"),
    ("(x[n]) -> y[] = max[n](x)", {"n": 0}, "PB148"),
    ("(x[n, m]) -> y[n] = max[m](x)", {"n": 0, "m": 0}, None),
    ("(x[n, m]) -> y[n] = max[m](x)", {"n": 2, "m": 0}, "PB148"),
    ("(x[n]) -> y[] = sum[n](x)", {"n": 0}, None),
    (
        "(x[n], y[m]) -> z[i] = z[i < size(n) - size(m) + 1] = x[i]",
        {"n": 2, "m": 0, "i": 3},
        "PB141",
    ),
    ("(x[h], k[p]) -> y[i] = sum[p](x[i + p]*k[p])", {"h": 3, "p": 0, "i": 4}, None),
    ("(x[n]) -> y[n] = where(n > 0, x[0], 0)", {"n": 1}, None),
    ("(x[n], z[m]) -> y[n] = where(n > 0, z[0], 0)", {"n": 3, "m": 0}, "PB141"),
    ("(x[n], z[m]) -> y[n] = where(x > 0, z[0], 0)", {"n": 3, "m": 0}, "PB141"),
    ("(x[n], z[m]) -> y[n] = where(n > 3, z[0], 0)", {"n": 3, "m": 0}, None),
    ("(x[n], z[m]) -> y[n] = pad(z[n])", {"n": 3, "m": 0}, None),
    ("(x[n], z[m]) -> y[n] = where(n < size(m), z[n], 0)", {"n": 3, "m": 0}, None),
    ("(x[n], z[m]) -> y[n] = where(x > 0, sum[m](z), 0)", {"n": 3, "m": 0}, None),
    (
        "(x[n], i[n]: int64) -> y[m, n] = y[m < 2, n] = where(n > 0 and m == i[n - 1], x[n], 0)",
        {"n": 4, "m": 2},
        None,
    ),
    # A condition on where something is greatest is one on indices, though it reads.
    (
        "(x[n], k[p]) -> y[n] = t[n] = argmax[p](pad(x[n - p]) + k[p]); "
        "y = where(0 <= n - t[n] < size(n) and x[n - t[n]] > 1, x[n - t[n]], 0)",
        {"n": 4, "p": 2},
        None,
    ),
    (
        "(x[5]) -> y[] = p = argmax[i](x[i]); "
        "y = where(0 <= p + 1 < 5 and x[p + 1] > 0, x[p + 1], 0)",
        {},
        None,
    ),
]


@pytest.mark.parametrize(("text", "sizes", "code"), CALLS)
def test_call_of_small_sizes_reads_nothing_outside(
    text: str, sizes: dict[str, int], code: str | None
) -> None:
    made = read(text)
    for _ in range(2):  # what has passed is remembered, what has not is not
        if code is None:
            infer.require_inside(made, sizes)
        else:
            with pytest.raises(PullbackError, match=code):
                infer.require_inside(made, sizes)


def test_index_notation_does_not_import_pytorch() -> None:
    program = (
        "import sys; from pullback.define.parse import parse; "
        "from pullback.define.math import notation; "
        "made = notation.parse(parse('a::b(x[n, m]) -> y[n] = sum[m](x)')); "
        "assert notation.format_formula(made) == 'sum[m](x[n, m])'; assert 'torch' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


CURES = {
    "(x[n, m]) -> y[n] = sum(x)": r"write sum\[m\]\(x\)$",
    "(x[n, m]) -> y[n] = mean(x, 1)": r"write mean\[m\]\(x\)$",
    "(x[n]) -> y[] = max(x)": r"write max\[n\]\(x\)$",
    "(x[n]) -> y[n] = x - mean(x*x)": r"write mean\[k\]\(x\[k\]\*x\[k\]\)$",
    "(x[..., n]) -> y[..., n] = x/sum(exp(x))": r"write sum\[k\]\(exp\(x\[..., k\]\)\)$",
    "(x[n]) -> y[] = prod[i](x[i])": r"y = p\[size\(n\) - 1\]$",
    "(x[n]) -> y[]: int64 = argmin[i](x[i])": r"= argmax\[n\]\(-x\)$",
    "(x[n]) -> y[n] = softmax(x)": r"t/sum\[k\]\(t\[k\]\)$",
    "(x[n]) -> y[n] = torch.cumsum(x[n], 0)": r"= pad\(y\[n - 1\]\) \+ x$",
    "(x[n]) -> y[] = x[n].norm()": r"= sqrt\(sum\[n\]\(x\*\*2\)\)$",
    "(x[n]) -> y[n] = softmaxx(x[n])": "did you mean 'softmax'",
    "(x[n]) -> y[n] = argsort(x[n])": "python=",
    "(x[n]) -> y[n] = x + randn(n)": "random numbers as an input",
    "(x[n]) -> y[] = total[i](x[i])": "there are sum, max, min, mean, argmax",
    "(x[n]) -> y[] = sum[i < size(x)](x[i])": r"size takes an index.*\n.*\n.*write size\(n\)",
    "(x[n, n]) -> y[] = sum[n](x)": r"two dimensions 'n'(.|\n)*x\[n, n\]",
    "(x[n]) -> y[i, i] = x[i]": "different names",
    "(x[2]) -> y[] = x[2]": "this dimension is 2\n.*indices count from 0",
    "(x[n], b[m]) -> y[n, m] = t[i] = x[i]*b[m]; y = t[n]": "before the '=' of this part",
    "(a[k], x[n]) -> y[k, j] = a[k]*sum[n](x[n - j])": r"y\[k, j < size\(n\)\] = ",
    "(x[n, k], y[k, m]) -> z[n, m] = sum[k](x @ y)": r"sum\[k\]\(x\[n, k\]\*y\[k, m\]\)",
    "(x[n]) -> y[i <= 5] = x[i]": r"write i < ...",
    "(x[n]) -> y[2*i < 5] = x[i]": r"y\[i < 5\]",
    "(x[n]) -> (y[i < 5], z[i < 6]) = y = x[i]; z = x[i]": r"second: i < 6",
    "(x[n], i: int) -> y[i] = x[i]": r"y\[j < i\]",
}


@pytest.mark.parametrize("text", CURES)
def test_mistakes_of_newcomers_are_told_their_cure(text: str) -> None:
    assert re.search(CURES[text], refusal(text))


def test_reads_that_may_be_outside_leave_a_range_open() -> None:
    """Neither is a reason to stop at the other, in whatever order they stand."""
    for value in ("pad(x[i + 1]) + pad(x[i])", "pad(x[i]) + pad(x[i + 1])"):
        assert "PB140" in refusal(f"(x[n]) -> y[i] = {value}")


def test_second_of_two_conditions_bounds_an_index_if_the_first_says_nothing_of_it() -> None:
    made = read("(x[n], at[k]) -> c[i]: int64 = sum[n](at[i] <= x[n] and x[n] < at[i + 1])")
    assert text_of(made.sizes["i"]) == "size(k) - 1"
    assert "PB141" in refusal("(x[n]) -> y[n]: bool = x[n] > 0 and x[n + 1] > 0")
    read("(x[n]) -> y[n]: bool = n + 1 < size(n) and x[n + 1] > 0")


def test_dimension_may_have_the_name_of_what_a_derivative_adds() -> None:
    assert derived.backward(read("(x[grad]) -> y[] = sum[grad](x*x)"))
