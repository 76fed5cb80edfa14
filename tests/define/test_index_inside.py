"""What is shown of reads and ranges, against every value of the indices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback import PullbackError
from pullback.define.math import notation
from pullback.define.math.extents import evaluate_size
from pullback.define.parse import parse
from tests.telling import examples

LEAST, MOST = 1, 4  # sizes that are tried


def place(draw: st.DrawFn, indices: list[str]) -> str:
    """A sum of multiples of indices, a size among them at times."""
    index = draw(st.sampled_from(indices))
    other = draw(st.sampled_from([*indices, "0", "size(n)", "size(m)", "1"]))
    sign = draw(st.sampled_from(["", "-", "2*", "-2*"]))
    number = draw(st.integers(-3, 3))
    return f"{sign}{index} {draw(st.sampled_from('+-'))} {other} + {number}"


@st.composite
def guarded(draw: st.DrawFn) -> tuple[str, str]:
    """A condition, and a place that may be inside where it holds."""
    indices = ["n", "m"]

    def condition(depth: int) -> str:
        kind = draw(st.sampled_from(["compare", "inside", "and", "or", "not"]))
        if depth == 0 or kind in ("compare", "inside"):
            one = place(draw, indices)
            if kind == "inside":
                return f"(0 <= {one} < size(n))"
            sign = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
            return f"({one} {sign} {draw(st.integers(-2, 2))})"
        if kind == "not":
            return f"(not {condition(depth - 1)})"
        return f"({condition(depth - 1)} {kind} {condition(depth - 1)})"

    places = [place(draw, indices), "n - 1", "n + 1", "n + m", "m - n", "size(n) - 1 - m"]
    where = condition(2)
    compared = re.findall(r"\((?:0 <= )?([^()]*(?:size\(.\)[^()]*)?) [<>=!]+ ", where)
    # A quotient of other sizes than the tensor's is checked in calls.
    divided = [f"({each})//2" for each in ("n - 1", "n - 3", "n + m", "m - n", "n - 2*m")]
    return where, draw(st.sampled_from([*places, *compared, *divided]))


def holds(text: str, values: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """The value of a condition or a place, by Python itself."""
    for name, size in sizes.items():
        text = text.replace(f"size({name})", str(size))
    return eval(text, dict(values))


@settings(max_examples=examples(300, 1500))
@given(guarded())
def test_read_that_is_accepted_under_a_condition_is_inside(drawn: tuple[str, str]) -> None:
    condition, where = drawn
    require_inside(f"where({condition}, x[{where}], 0)", condition, where)


@settings(max_examples=examples(200, 1500))
@given(guarded(), st.sampled_from(["n", "n - 1", "size(n) - 1 - n"]))
def test_so_is_one_of_a_part_that_is_used_at_other_indices(
    drawn: tuple[str, str], moved: str
) -> None:
    """Costs a second."""
    condition, where = drawn
    condition = f"{condition} and 0 <= {moved} < size(n)"
    formula = f"t[n, m] = x[{where}]; y = where({condition}, t[{moved}, m], 0)"
    require_inside(formula, condition, re.sub(r"(?<!size\()\bn\b", f"({moved})", where))


def require_inside(formula: str, condition: str, where: str) -> None:
    """Evaluate a place, where a condition holds, for every index; not if the line is refused."""
    text = f"demo::f(x[n], z[m]) -> y[n, m] = {formula}"
    try:
        notation.parse(parse(text))
    except PullbackError as error:
        if error.finding.code != "PB141":
            raise
        return
    for n, m in itertools.product(range(LEAST, MOST + 1), repeat=2):
        sizes = {"n": n, "m": m}
        for i, j in itertools.product(range(n), range(m)):
            values = {"n": i, "m": j}
            if holds(condition, values, sizes):
                assert 0 <= holds(where, values, sizes) < n, (text, sizes, values)


@settings(max_examples=examples(150, 800))
@given(st.data())
def test_range_that_is_inferred_is_the_largest_in_which_all_reads_are_inside(
    data: st.DataObject,
) -> None:
    reads: list[tuple[int, int, int]] = data.draw(
        st.lists(
            st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 3)),
            min_size=1,
            max_size=3,
        )
    )
    shown = "*".join(f"x[{a}*i + {b}*p + {c}]" for a, b, c in reads)
    try:
        made = notation.parse(parse(f"demo::f(x[n], k[p]) -> y[i] = sum[p]({shown}*k[p])"))
    except PullbackError as error:
        # Of 2*i + p and 3*i nobody knows which ends first.
        if error.finding.code != "PB140" or len(reads) == 1:
            raise
        return
    for n, p in itertools.product(range(1, 12), range(1, 4)):
        extent = evaluate_size(made.sizes["i"], {"n": n, "p": p})
        assert extent is not None
        for i in range(max(extent, 0) + 1):
            inside = all(a * i + b * (p - 1) + c < n for a, b, c in reads)
            assert inside == (i < extent), (shown, n, p, i, extent)


ACCEPTED = [
    "y[n] = where(n == 0 or n == 1, 5, x[n - 2])",
    "y[n] = where(n == 0, 1, where(n == 1, 5, x[n - 2]))",
    "y[n] = where(n == 1, 1, where(n == 0, 5, x[n - 2]))",
    "y[n] = where(n != 0 and n != 1, x[n - 2], 3)",
    "y[n] = where(n == size(n) - 1 or n == size(n) - 2, 1, x[n + 2])",
    "y[n, m] = where(n == 0 and m == 0, 1, where(n == 0, 2, x[n - 1]*z[m]))",
    "y[n, m] = where(n == 0 and m == 0, 1, where(n == 0, z[m - 1], where(m == 0, x[n - 1], "
    "x[n - 1]*z[m - 1])))",
]
REFUSED = [
    "y[n] = where(n == 0 or n == 2, 5, x[n - 2])",
    "y[n] = where(n == 0 and n == 1, 5, x[n - 2])",
    "y[n, m] = where(n == 0 and m == 0, 1, x[n - 1]*z[m])",
    "y[n, m] = where(n == 0 and m == 0, 1, where(n == 0, z[m - 1], x[n - 1]*z[m - 1]))",
]


@pytest.mark.parametrize("output", ACCEPTED + REFUSED)
def test_what_several_conditions_exclude_together_is_known(output: str) -> None:
    """Boundaries of states and their derivatives are printed so. Costs nothing."""
    refused = pytest.raises(PullbackError, match="PB141") if output in REFUSED else nullcontext()
    with refused:
        notation.parse(parse(f"demo::f(x[n], z[m]) -> {output}"))
