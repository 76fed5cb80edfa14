"""Reductions over a long index in passes: how many, what they exchange, and what is refused."""

from __future__ import annotations

import pytest

from pullback.define import parse as lines
from pullback.define.math import build, derived, intervals, notation, show
from pullback.define.math.attention import find_attention
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at
from pullback.define.math.node import SUM, equal, in_order, index, inside, number
from pullback.define.math.passes import (
    Passes,
    make_passes,
)
from pullback.define.math.statistics import keep_statistics
from pullback.define.math.tiles import Pair, find_tiles, open_outputs
from tests.define.long_reductions import ATTENTION, LINES, QKV, READING, SCORES, attention


def formula(text: str) -> Formula:
    return notation.parse(lines.parse(f"test::{text}"))


def labels_of(indexed: Formula) -> list[tuple[str, ...]]:
    return [output.labels for output in indexed.line.outputs]


def every_pair(indexed: Formula) -> set[Pair]:
    """Return all pairs of indices that blocks could be taken of."""
    indices, opened, _ = open_outputs(indexed.nodes, labels_of(indexed), indexed.sizes)
    return {pair for pair, _ in find_tiles(opened, indices)}


def pairs_of(indexed: Formula) -> set[Pair]:
    """Return the rows and columns of the scores, by the names that tests give these."""
    pairs = every_pair(indexed)
    return {pair for pair in pairs if {name.partition("_")[0] for name in pair} <= {"n", "m"}}


def passes_of(indexed: Formula) -> Passes:
    return make_passes(indexed.nodes, labels_of(indexed), indexed.sizes, pairs_of(indexed))


@pytest.mark.parametrize("name", LINES)
def test_a_line_and_its_gradient_take_so_many_passes(name: str) -> None:
    text, forward, backward = LINES[name]
    indexed = formula(text)
    assert passes_of(indexed).count == forward
    gradients = derived.backward(indexed)
    assert (gradients is not None) == (backward is not None)
    if gradients:
        assert passes_of(gradients.formula).count == backward


@pytest.mark.parametrize("name", LINES)
def test_gradients_that_read_statistics_of_rows_take_a_pass_less(name: str) -> None:
    text, forward, backward = LINES[name]
    kept = keep_statistics(formula(text))
    expected = READING[name] if name in READING else backward and backward - 1
    assert (kept is not None) == (expected is not None)
    if kept:
        assert passes_of(kept.forward).count == forward
        assert passes_of(kept.backward.formula).count == expected


def test_what_has_scores_of_rows_and_of_columns_has_one_gradient_of_both() -> None:
    kept = keep_statistics(formula(LINES["both ways"][0]))
    assert kept
    shown = notation.format_formula(kept.backward.formula)
    assert shown.count("sum[m](") == shown.count("sum[n](") == 1


def test_sums_of_tiles_that_multiply_the_same_matrix_are_one_product() -> None:
    """Unless a user's number would have to go into them, as that of a row: it may be infinite."""

    def matrices(line: str) -> list[tuple[str, ...]]:
        kept = keep_statistics(formula(line))
        assert kept
        every = passes_of(kept.backward.formula).statistics
        return [own.labels for own in every if "d__0" in own.labels]

    assert matrices(LINES["mean of both ways"][0]) == [("n__0", "d__0"), ("n__1", "d__0")]
    of_each_row = (
        f"f(q[n, d], k[n, d]) -> l[n] = s[n, m] = {SCORES}; "
        "l = log(sum[m](exp(s[n, m]))) + log(sum[m](exp(s[m, n])))"
    )
    assert len(matrices(of_each_row)) == 4


def test_only_what_gradients_read_is_kept() -> None:
    kept = keep_statistics(formula(LINES["no maximum"][0]))
    assert kept
    assert [str(output) for output in kept.forward.line.outputs] == ["o[n, e]", "sum_n[n]!"]
    # What an output is itself is read as the output.
    text = f"f(q[n, d], k[m, d]) -> z[n] = sum[m](exp({SCORES}))"
    assert keep_statistics(formula(text)) is None


ATTENTIONS = {
    *("plain", "causal", "of itself", "divided inside", "grouped heads"),
    "grouped heads by another name",
}


@pytest.mark.parametrize("name", LINES)
def test_an_attention_is_known_by_its_structure(name: str) -> None:
    indexed = formula(LINES[name][0])
    found = find_attention(passes_of(indexed))
    assert (found is not None) == (name in ATTENTIONS)
    if found and name != "of itself":
        own = found.attention
        assert [tensor for tensor, _ in own.tensors] == ["q", "k", "v"]
        assert own.is_causal == (name == "causal")


@pytest.mark.parametrize(("scores", "factor"), [(f"{SCORES}/8", 0.125), (f"3*{SCORES}", 3.0)])
def test_an_attention_has_a_scale(scores: str, factor: float) -> None:
    found = find_attention(passes_of(formula(attention(scores))))
    assert found
    assert found.attention.factor == factor


@pytest.mark.parametrize(
    "text",
    [
        attention(f"where(m <= n + 1, {SCORES}, -inf)"),
        attention(f"where(m < n, {SCORES}, -inf)"),
        attention(f"where(n <= m, {SCORES}, -inf)"),
        attention(f"where(m <= n, {SCORES}, -1)"),
        attention("sum[d](q[n, d]*k[m, d]*k[m, d])"),
        attention("a[n]*sum[d](q[n, d]*k[m, d])", ", a[n]"),
        attention(SCORES).replace("v[m, e])/", "v[m, e]*v[m, e])/"),
        attention(SCORES).replace("exp(s", "exp(2*s"),
    ],
)
def test_what_is_almost_an_attention_is_none(text: str) -> None:
    assert find_attention(passes_of(formula(text))) is None


def test_a_sum_of_exponentials_is_exchanged_for_a_newer_maximum() -> None:
    most, weighted, total = passes_of(formula(LINES["plain"][0])).statistics
    assert (most.running, most.rates) == ((), ())
    for own in (weighted, total):
        assert own.running == (most.name,)
        assert [show.format_node(rate) for rate in own.rates] == [f"-{most.name}"]


def test_what_several_reductions_need_is_one_node() -> None:
    most, *others = passes_of(formula(LINES["causal"][0])).statistics
    for own in others:
        assert show.format_node(most.body) in show.format_node(own.body)


def test_statistics_that_no_output_needs_are_left_out() -> None:
    found = passes_of(formula(LINES["both ways"][0]))
    assert [own.labels for own in found.needed([True, False])] == [("n__0",), ("n__0",)]
    assert len(found.needed([True, True])) == 4


def test_a_place_comes_with_its_maximum_and_nothing_is_pulled_out_of_it() -> None:
    text = f"f(q[n, d], k[m, d]) -> (o[n], i[n]) = s[n, m] = {SCORES}; o = max[m](s[n, m]); "
    one = passes_of(formula(f"{text} i = float(argmax[m](s[n, m]))"))
    assert [own.op for own in one.statistics] == ["max", "argmax"]
    # Rounded, two values that differ may be equal: then the first of them is the place.
    less = passes_of(formula(f"{text} i = float(argmax[m](s[n, m] - max[r](s[n, r])))"))
    assert [own.level for own in less.statistics] == [0, 1, 1]


def test_scores_are_computed_once_for_rows_and_columns_of_one_dimension() -> None:
    indexed = formula(LINES["mean of both ways"][0])
    products = {
        part
        for own in passes_of(indexed).statistics
        for part in in_order([own.body])
        if part.op == SUM
    }
    assert len(products) == 1


def test_a_divisor_is_not_pulled_out_from_under_a_condition() -> None:
    # Where nothing is selected the line gives 0, and 0/0 would be NaN.
    text = (
        f"f{QKV}) -> o[n, e] = s[n, m] = {SCORES}; z[n] = sum[r](exp(s[n, r])); "
        "o = sum[m](where(m < n, exp(s[n, m])/z[n]*v[m, e], 0))"
    )
    assert passes_of(formula(text)).count == 2
    assert passes_of(formula(text.replace("where(m < n, ", "(").replace(", 0)", ")"))).count == 1


def test_two_layers_take_a_pass_each() -> None:
    text = (
        f"f{QKV}) -> u[n, c] = s[n, m] = {SCORES}; {ATTENTION.replace('o =', 'o[n, e] =')}; "
        "u = sum[m](exp(sum[e](o[n, e]*v[m, e]))*v[m, c])"
    )
    assert passes_of(formula(text)).count == 2


# --- conditions on a block

N, M = at("n"), at("m")
BOX = {"n": (8, 15), "m": (4, 7), "|n|": (32, 32)}
TRUTHS = {
    "above": (inside(N - M, Affine(100)), True),
    "below": (inside(M - N, Affine(100)), False),
    "window": (inside(N - M, Affine(4)), None),
    "all of a dimension": (inside(N, Affine(0, (("|n|", 1),))), True),
    "equal": (equal(N - M), False),
    "perhaps equal": (equal(N - M - 4), None),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_condition_holds_everywhere_nowhere_or_that_is_not_known(name: str) -> None:
    condition, expected = TRUTHS[name]

    def bounds(term: object) -> tuple[int, int] | None:
        return BOX.get(str(term))

    assert intervals.holds(condition, bounds) is expected


def test_zero_times_what_may_be_infinite_is_not_certainly_zero() -> None:
    zero, other = number(0.0), index(N + M)
    product = build.apply("mul", zero, build.apply("exp", build.to_real(other)))
    pair = frozenset(("n", "m"))
    assert intervals.certain_value(product, pair, lambda _: True) == "any"
    assert intervals.certain_value(zero, pair, lambda _: True) == "zero"
