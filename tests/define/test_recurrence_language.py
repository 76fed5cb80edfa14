"""Recurrences without PyTorch: what is a state, in which order it runs, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pullback import PullbackError
from pullback.define.math import derived, notation
from pullback.define.math.cumulative import find_cumulative
from pullback.define.math.formula import Formula
from pullback.define.math.hoist import find_nested, hoist
from pullback.define.math.node import in_order
from pullback.define.math.recurrence import reads_of
from pullback.define.math.sink import sink
from pullback.define.parse import parse


def read(text: str) -> Formula:
    return notation.parse(parse(f"demo::f{text}"))


LRU = "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"
LINES = {
    "lru": LRU,
    "a hidden state": "(dt[..., t, d], A[d, s], B[..., t, s], C[..., t, s], x[..., t, d]) -> "
    "y[..., t, d] = h[t, d, s] = exp(dt*A)*pad(h[t - 1, d, s]) + dt*B*x; y = sum[s](C*h)",
    "two steps back": "(x[..., t], b[3], a[3]) -> y[..., t] = b[0]*x + b[1]*pad(x[t - 1]) "
    "- a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])",
    "backwards": "(d[..., t], c[..., t]) -> v[..., t] = d + c*pad(v[t + 1])",
    "a wavefront": "(D[..., i, j], g: float) -> R[..., i, j] = "
    "D - g*logaddexp(-R[i-1, j-1]/g, logaddexp(-R[i-1, j]/g, -R[i, j-1]/g)); "
    "R[-1, -1] = 0; R[-1, j] = inf; R[i, -1] = inf",
    "a stencil": "(u0[x], k[x], time[t]) -> u[t, x] = u[t-1, x] + "
    "k*(pad(u[t-1, x+1]) - 2*u[t-1, x] + pad(u[t-1, x-1])); u[-1, x] = u0",
    "counted steps": "(u0[x], k[x], steps: int) -> u[t < steps, x] = u[t-1, x] + "
    "k*(pad(u[t-1, x+1]) - 2*u[t-1, x] + pad(u[t-1, x-1])); u[-1, x] = u0",
    "an end that is counted": "(x[n], m: int) -> y[t < 2*m + 1] = y[t + 1]*pad(x[t]); "
    "y[2*m + 1] = x[0]",
    "a final state": "(x[..., t, d], r: float) -> (y[..., t, d], end[..., d]) = "
    "y = r*y[t-1, d] + (1 - r)*x; y[-1, d] = 0; end = y[size(t) - 1, d]",
    "a window": "(x[t], c[4]) -> y[t] = x + sum[k < 4](c[k]*pad(y[t - 1 - k]))",
    "a matrix": "(x[t, i], U[i, i]) -> h[t, i] = tanh(x + sum[j](U[i, j]*pad(h[t - 1, j])))",
    "coupled": "(x[t]) -> (u[t], v[t]) = u = pad(v[t - 1]) + x; v = u*2 + pad(v[t - 1])",
    "both are states": "(x[t]) -> (u[t], v[t]) = "
    "u = pad(v[t - 1])*pad(u[t - 2]) + x; v = u*2 + pad(u[t - 1])",
    "data beside it": "(x[t, n], i[n]: int64) -> h[t, n] = pad(h[t - 1, i[n]], 1) + x",
    "all places before": "(x[t]) -> h[t] = h[t - 2]*x; h[t < 0] = 1",
    "the best of states": "(move[s, s], x[t, s]) -> h[t, s] = x + "
    "where(t == 0, 0, max[r](pad(h[t - 1, r]) + move[r, s]))",
    "skewed": "(x[i, j]) -> y[i, j] = x + pad(y[i - 1, j + 1]) + pad(y[i, j - 1])",
}


def assert_read_back(formula: Formula) -> None:
    """Assert that a formula's text means the formula, in every node."""
    line = replace(formula.line, formula=notation.format_formula(formula))
    known = line.dimensions
    sizes = {name: size for name, size in formula.sizes.items() if name in known}
    again = notation.parse(line, sizes=sizes, trusted=True)
    assert (again.nodes, again.groups) == (formula.nodes, formula.groups)


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_recurrences_and_their_derivatives_are_printed_and_read_back(text: str) -> None:
    formula = read(text)
    for each in (formula, *derivatives_of(formula)):
        assert_read_back(each)
    assert_read_back(derived.add_dimension(formula, {formula.line.tensors[0].name}, "lanes"))


LONG = ("a wavefront", "a hidden state", "a stencil", "skewed", "the best of states")
AGAIN = [
    pytest.param(text, id=name, marks=[pytest.mark.thorough] if name in LONG else [])
    for name, text in LINES.items()
]


@pytest.mark.ci(3)
@pytest.mark.parametrize("text", AGAIN)
def test_second_derivatives_of_recurrences_are_read_back(text: str) -> None:
    """They differentiate adjoints, and have groups in both directions."""
    for first in derivatives_of(read(text)):
        for second in derivatives_of(first):
            assert_read_back(second)


def derivatives_of(formula: Formula) -> list[Formula]:
    made = [derived.backward(formula), derived.jvp(formula)]
    return [found.formula for found in made if found]


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("lru", {"t": 1}),
        ("backwards", {"t": -1}),
        ("a wavefront", {"i": 1, "j": 1}),
        ("a stencil", {"t": 1}),
        ("a window", {"t": 1}),
        ("both are states", {"t": 1}),
        ("data beside it", {"t": 1}),
        ("skewed", {"i": 2, "j": 1}),
    ],
)
def test_the_reads_say_the_order_and_the_derivative_runs_the_other_way(
    name: str, weights: dict[str, int]
) -> None:
    formula = read(LINES[name])
    (group,) = formula.groups
    assert dict(group.weights) == weights
    backward = derived.backward(formula)
    assert backward
    directions = {index: weight for g in backward.formula.groups for index, weight in g.weights}
    assert directions == {index: -weight for index, weight in weights.items()}


def test_what_reads_no_state_of_its_own_is_none() -> None:
    assert read("(x[t]) -> y[t] = u = exp(x); v[t] = u*u; y = v[t] + pad(v[t - 1])").groups == ()
    (group,) = read(LINES["coupled"]).groups
    assert [state.name for state in group.states] == ["v"]
    (group,) = read(LINES["both are states"]).groups
    assert [state.name for state in group.states] == ["u", "v"]


def test_a_boundary_is_a_selection() -> None:
    sugar = read("(x[t], h0[]) -> h[t] = h[t - 1]*x; h[-1] = h0")
    plain = read("(x[t], h0[]) -> h[t] = where(t == 0, h0, h[t - 1])*x")
    assert sugar.groups == plain.groups
    (group,) = read(LINES["a stencil"]).groups
    assert len(list(reads_of([group.states[0].node], ["u0"]))) == 3


def test_a_hidden_state_has_the_batch_written_or_not() -> None:
    line = "(x[..., t], h0[...]) -> y[..., t] = h[{}t] = h[{}t - 1] + x; h[{}-1] = h0; y = 2*h"
    plain = read(line.format("", "", ""))
    for written in [("..., ", "", ""), ("..., ", "..., ", "..., "), ("", "..., ", "")]:
        assert read(line.format(*written)).groups == plain.groups


def test_a_part_has_the_batch_written_or_not() -> None:
    line = "(x[..., n], w[n]) -> y[..., n] = t[{}i] = w[i]*x[i]; s[i] = w[i]; y = t[n] + s[n]"
    assert read(line.format("")).nodes == read(line.format("..., ")).nodes


def test_a_part_that_reads_a_state_has_the_batch_written_or_not() -> None:
    line = (
        "(z[..., t], q[], r[]) -> x[..., t] ="
        " K[{}t] = (P[t - 1] + q)/(P[t - 1] + q + r); P[t] = (1 - K[t])*(P[t - 1] + q); P[-1] = 1;"
        " x = pad(x[t - 1]) + K[t]*(z - pad(x[t - 1]))"
    )
    assert read(line.format("")).groups == read(line.format("..., ")).groups


def test_a_state_read_along_another_dimension_is_told_to_share_its_name() -> None:
    with pytest.raises(PullbackError, match="PB141") as error:
        read("(e[t, s], A[p, s]) -> v[t, s] = e + where(t == 0, 0, max[p](v[t - 1, p] + A[p, s]))")
    assert "one name" in str(error.value.finding.help)
    assert read("(e[t, s], A[s, s]) -> v[t, s] = e + max[p](pad(v[t - 1, p]) + A[p, s])").groups


def test_a_derivative_keeps_no_hidden_state() -> None:
    backward = derived.backward(read(LINES["a hidden state"]))
    assert backward
    assert [s for g in backward.formula.groups for s in [x.name for x in g.states]] == ["h", "p1"]
    assert set(backward.saved) == {"dt", "A", "B", "C", "x"}


def test_what_a_step_passes_back_is_a_factor_of_the_other_gradients() -> None:
    """An exponential is computed for that alone; a product as cheap as a read is made again."""
    backward = derived.backward(read(LINES["a hidden state"]))
    assert backward
    assert not any(node.op == "exp" for node in in_order(backward.formula.elements))
    assert [*reads_of(backward.formula.elements, ["p1"])]
    cheap = derived.backward(read(LRU))
    assert cheap
    names = [output.name for output in cheap.formula.line.outputs]
    assert not [*reads_of([cheap.formula.elements[names.index("grad_a")]], ["p1"])]


LIKE = [
    ("(x[t]) -> s[t] = pad(s[t - 1]) + exp(x)", "add"),
    ("(x[t], y[t]) -> s[t] = (x + y) + pad(s[t + 1])", "add"),
    ("(x[t], s0[]) -> s[t] = where(t == 0, s0, s[t - 1]*x[t - 1])", "mul"),
    ("(x[t], y[t]) -> s[t] = maximum(maximum(x, pad(s[t - 1], -inf)), y)", "maximum"),
    ("(x[t, d]) -> s[t] = pad(s[t - 1]) + sum[d](x)", "add"),
]
UNLIKE = [
    "(x[t], a[t]) -> s[t] = a*pad(s[t - 1]) + x",
    "(x[t]) -> s[t] = x - pad(s[t - 1])",
    "(x[t]) -> s[t] = x + pad(s[t - 2])",
    "(x[t]) -> s[t] = where(t == 3, x, x + pad(s[t - 1]))",
    "(x[t]) -> s[t] = where(x > 0, x + pad(s[t - 1]), 0)",
    "(x[t]) -> s[t] = pad(s[t - 1]) + pad(s[t - 1]) + x",
    "(x[t]) -> s[t] = tanh(pad(s[t - 1]) + x)",
    "(x[t, d]) -> s[t, d] = pad(s[t - 1, d + 1]) + x",
    "(x[t], y[t]) -> s[t] = x*(y*pad(s[t - 1], 1))",  # an infinite x*y, where s is 0
    "(x[t]) -> (u[t], v[t]) = u = pad(v[t - 1]) + x; v = pad(u[t - 1]) + x",
    "(x[i, j]) -> s[i, j] = pad(s[i - 1, j - 1]) + pad(s[i, j - 1]) + x",
]


@pytest.mark.parametrize(("text", "op"), LIKE)
def test_a_cumulative_function_is_known_by_its_step(text: str, op: str) -> None:
    formula = read(text)
    found = find_cumulative(formula, formula.groups[0])
    assert found
    assert found.op == op


@pytest.mark.parametrize("text", UNLIKE)
def test_other_steps_are_no_cumulative_function(text: str) -> None:
    formula = read(text)
    assert find_cumulative(formula, formula.groups[0]) is None


def test_the_adjoint_of_a_sum_is_a_sum_the_other_way() -> None:
    backward = derived.backward(read("(x[t], s0[]) -> s[t] = s[t - 1] + x; s[-1] = s0"))
    assert backward
    (group,) = backward.formula.groups
    found = find_cumulative(backward.formula, group)
    assert found
    assert (found.op, found.outputs, found.is_read) == ("add", ("l_s",), False)


REFUSED = [
    ("PB151", "(x[t]) -> h[t] = pad(h[t - 1]) + pad(h[t + 1]) + x", "h[t] reads h[t + 1]"),
    ("PB151", "(x[t]) -> h[t] = h[t] + x", "h[t] reads h[t]"),
    ("PB104", "(x[t]) -> y[t] = T[t] = x*pad(T[t - 1], 1); y = T*x", "'T' is reserved"),
    ("PB151", "(x[t]) -> (u[t], v[t]) = u = v + x; v = u*2 + 0*pad(v[t + 1])", "'v'"),
    ("PB141", "(x[t]) -> (y[t], z[]) = y = pad(y[t - 1]) + x; z = y[-1]", "is size(t) - 1"),
    ("PB141", "(x[t, n], i[n]: int64) -> h[t, n] = x + h[t - 1, i[n]]", "pad(h[t - 1, i[n]])"),
    (
        "PB152",
        "(x[t, n], u[n]: int64) -> h[t, n] = x + sum[k < 5](where(k == u, pad(h[t-1-k, n]), 0))",
        "is data",
    ),
    ("PB145", "(x[t], s[k]) -> h[t] = h[t - 1] + x; h[t < 0] = s[t]", "write one for each, h[-1]"),
    (
        "PB144",
        "(x[t, n]) -> h[t, n] = p[t, n] = floor(pad(p[t - 1, n]) + x);"
        " h = pad(h[t - 1, p[t, n]]) + x",
        "'p' may be one as an output, p[...]: int64",
    ),
    ("PB152", "(x[t], i[t]: int64) -> h[t] = h[i[t]] + x", "not a number"),
    ("PB152", "(x[t]) -> h[t] = pad(h[2*t]) + x", "not a number"),
    ("PB152", "(x[t]) -> h[t] = h[size(t) - 1 - t] + x", "not a number"),
    ("PB153", "(x[t], w[t]) -> h[t] = x + sum[k](where(k < t, w[t - k]*h[k], 0))", "whole range"),
    ("PB153", "(x[t]) -> h[t] = x - mean[k](h[k])", "whole range"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[-1] = 0; h[t < 0] = 1", "two boundaries"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[-1] = h[0]", "reads 'h'"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[-1] = 0; h[size(t)] = 1", "no read of 'h'"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[-1] = 0; h[3] = 1", "outside"),
    ("PB154", "(x[t]) -> h[t] = 2*x; h[-1] = 0", "does not read itself"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[t < 1] = 0", "this is no boundary of 'h'"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[t <= -1] = 0", "as [t < 0] or [t >= size(t)]"),
    ("PB154", "(x[t]) -> h[t] = h[t - 1] + x; h[t == -1] = 0", "h[t == -1] = 0"),
    ("PB137", "(x[t]) -> h[t] = h[t - 1] + x; g[t] = x; h[-1] = 0", "or after g[t] = x"),
    ("PB154", "(m: int) -> h[t < m] = 2*h[t + 1]; h[m - 1] = 1", "outside"),
    ("PB154", "(m: int) -> h[t < m] = 2*h[t + 1]; h[t >= m + 1] = 1", "outside"),
    ("PB155", "(x[t]) -> y[t] = h = pad(h[t - 1]) + x; y = h", "has no indices"),
    ("PB155", "(x[t]) -> h[t] = pad(h[t - 1]) > x", "real numbers"),
    ("PB141", "(x[t]) -> h[t] = h[t - 1] + x", "write h[-1] = ...; or pad(h[t - 1])"),
    ("PB141", "(x[t]) -> h[t] = h[t - 2] + x; h[-1] = 0", "write h[-2] = ..."),
    ("PB141", "(x[i, j]) -> h[i, j] = h[i - 1, j - 1] + x; h[-1, j] = 0", "write h[i, -1] = ..."),
]


@pytest.mark.parametrize(("code", "text", "says"), REFUSED)
def test_what_has_no_order_or_no_boundary_is_refused(code: str, text: str, says: str) -> None:
    with pytest.raises(PullbackError, match=code) as error:
        read(text)
    assert says in str(error.value)


def test_what_a_gradient_sums_up_over_states_is_a_state_itself() -> None:
    """The step after takes the sum, and the gradient for the matrix reads what is summed."""
    text = "(x[b, t, d], w[d, d]) -> h[b, t, d] = tanh(x + sum[j](w[d, j]*pad(h[b, t - 1, j])))"
    drafted = derived.backward(read(text))
    assert drafted
    before = drafted.formula
    sunk = sink(before, range(len(before.elements)))
    assert sunk
    assert {state.name for state in before.groups[0].states} == {"p1", "l_h"}
    (group,) = sunk.groups
    names = [state.name for state in group.states]
    assert names[0] == "l_h"
    assert len(names) == 2
    line, matrix = sunk.line.outputs[-1].name, sunk.elements[-1]
    assert line == "grad_w"
    assert {r.name for r in reads_of([matrix], names)} == {names[1]}
    assert sink(read("(x[t]) -> h[t] = pad(h[t - 1]) + x"), [0]) is None


def test_functions_of_sums_are_computed_before_steps_that_sum_them_up() -> None:
    text = (
        "(x[b, t, d], w[d, d]) -> h[b, t, d] = z[b, t, d] = sigmoid(x + sum[j](w[d, j]*"
        "pad(h[b, t - 1, j]))); h = z*x + (1 - z)*pad(h[b, t - 1, d])"
    )
    drafted = derived.backward(read(text))
    assert drafted
    nested = find_nested(drafted.formula)
    assert nested == (True,)
    hoisted = hoist(drafted.formula, nested)
    (group,) = hoisted.formula.groups
    assert all(state.node.height <= 1 for state in group.states)
    assert {r.name for r in reads_of([s.node for s in group.states], hoisted.parts)}
