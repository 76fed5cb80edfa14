"""Calls of index notation that were written down: done again, they give the very same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pullback.bind.dense import record
from pullback.bind.dense.prepared import PreparedFormula, prepare
from pullback.define.math import derived as derivatives
from pullback.define.math.formula import Formula
from pullback.diagnostic import PullbackError
from tests.bind.test_index_dense import each_formula, evaluated, formula, inputs_of, value_of


def prepared(indexed: Formula) -> PreparedFormula:
    return prepare(indexed.layout, indexed.nodes, tuple(indexed.sizes.items()), frozenset())


def replayed(indexed: Formula, *calls: dict[str, Tensor]) -> list[Tensor]:
    """Return the outputs of the last call, after others of the same shapes were written down."""
    records = prepared(indexed).records = record.Records()
    found = [evaluated(indexed, tensors) for tensors in (calls[0], calls[0], *calls)]
    # How many elements go inside, data decides: that is evaluated each time.
    assert any(records.known.values()) or indexed.line.name == "_shifted_grad"
    return found[-1]


def afresh(indexed: Formula, tensors: dict[str, Tensor]) -> list[Tensor]:
    prepared(indexed).records = record.Records()
    return evaluated(indexed, tensors)


@each_formula
def test_formula_and_gradients_are_the_same(text: str, reference: object, seed: int) -> None:
    indexed = formula(text)
    derived = derivatives.backward(indexed)
    assert derived
    first, second = (inputs_of(indexed, seed + k, torch.float32) for k in range(2))
    before = copy.deepcopy(second)
    [value] = replayed(indexed, first, second)
    assert torch.equal(value, afresh(indexed, second)[0])
    output = indexed.line.outputs[0].name
    calls = [
        {"grad": torch.randn_like(value), output: evaluated(indexed, tensors)[0], **tensors}
        for tensors in (first, second)
    ]
    for found, wanted in zip(
        replayed(derived.formula, *calls), afresh(derived.formula, calls[1]), strict=True
    ):
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
    assert all(torch.equal(second[name], tensor) for name, tensor in before.items())


def test_an_index_outside_is_seen_in_each_call() -> None:
    indexed = formula("call(x[v, d], idx[n]: int64) -> y[n, d] = x[idx[n], d]")
    x, index = torch.randn(4, 2), torch.tensor([0, 3])
    replayed(indexed, {"x": x, "idx": index})
    with pytest.raises(PullbackError, match="read at 4") as raised:
        evaluated(indexed, {"x": x, "idx": index + 1})
    assert raised.value.finding.code == "PB149"


def test_what_is_not_finite_is_seen_in_each_call() -> None:
    text = "call(x[h], k[p]) -> y[h] = sum[p](pad(x[h + p - 1])*k[p])"
    x, k = torch.randn(6), torch.randn(3)
    for _ in range(3):
        value_of(text, x=x, k=k)
    k[0] = torch.inf
    assert value_of(text, x=x, k=k)[0].isfinite()


def test_the_same_tensor_twice_is_no_other_two() -> None:
    indexed = formula("call(x[n], y[n]) -> z[n] = x[n] - 2*y[n]")
    x, y = torch.randn(3), torch.randn(3)
    [z] = replayed(indexed, {"x": x, "y": x}, {"x": x, "y": y})
    assert torch.equal(z, x - 2 * y)


def test_a_scalar_is_that_of_the_call() -> None:
    indexed = formula("call(x[n], a: float) -> y[] = sum[n](x[n])/a")
    x = torch.ones(3)
    for a in (0.0, 0.0, 0.0, -0.0):
        [y] = evaluated(indexed, {"x": x, "a": a})
        assert y == (3.0 / torch.tensor(a))


def test_outputs_are_memory_of_each_call() -> None:
    indexed = formula("call(x[n, i], w[o, i]) -> y[n, o] = sum[i](x[n, i]*w[o, i])")
    tensors = {"x": torch.randn(3, 2), "w": torch.randn(4, 2)}
    [one] = replayed(indexed, tensors)
    [other] = evaluated(indexed, tensors)
    assert one.data_ptr() != other.data_ptr()


def test_what_data_decides_the_shapes_of_is_not_written_down() -> None:
    with record.Recorder([x := torch.randn(4)]) as recorder:
        y = x[x > 0].clone()
    assert recorder.replay([y]) is None


SAME_NODES = {
    "(x[n], y[n]) -> z[n] = sum[k](x[n] - y[k])": lambda x, y: len(x) * x - y.sum(),
    "(y[n], x[n]) -> z[n] = sum[k](x[n] - y[k])": lambda y, x: len(x) * x - y.sum(),
    "(x[n], y[m]) -> z[n, m] = x[n]*y[m]*max[k](x[k])": lambda x, y: x[:, None] * y * x.max(),
    "(x[n], y[m]) -> z[m, n] = x[n]*y[m]*max[k](x[k])": lambda x, y: x * y[:, None] * x.max(),
    "(x[n], y[m]) -> z[n] = max[k](x[k])": lambda x, y: x.max().expand(len(x)),
    "(x[n], y[m]) -> z[m] = max[k](x[k])": lambda x, y: x.max().expand(len(y)),
}


def test_what_is_written_down_is_of_one_operator() -> None:
    tensors = torch.randn(4), torch.randn(4)
    for text, reference in SAME_NODES.items():
        operator = formula(f"alike{text}")
        given = dict(zip([tensor.name for tensor in operator.line.tensors], tensors, strict=True))
        for _ in range(3):
            torch.testing.assert_close(evaluated(operator, given)[0], reference(*tensors))


WORDS = "call(s[v, d], x[n, d], t[n]: int64, u[n]: int64) -> "


@pytest.mark.parametrize(
    ("output", "reference"),
    [
        ("y[v, d] = s - sum[n](where(v == t[n], x[n, d], 0))", lambda s, rows: s - rows),
        ("y[v, d] = s + 2*sum[n](where(v == t[n], x[n, d], 0))", lambda s, rows: s + 2 * rows),
        ("y[v, d] = 3*s - sum[n](where(v == t[n], x[n, d], 0))", lambda s, rows: 3 * s - rows),
        ("y[d, v] = s - sum[n](where(v == t[n], x[n, d], 0))", lambda s, rows: (s - rows).T),
    ],
)
def test_rows_are_added_in_memory_that_nothing_else_needs(
    output: str, reference: Callable[..., Tensor]
) -> None:
    """Costs nothing; a cross-entropy's gradient would hold the weights once more."""
    indexed = formula(WORDS + output)
    for _ in range(3):
        s, x, t = torch.randn(50, 3), torch.randn(20, 3), torch.randint(50, (20,))
        wanted = reference(s, torch.zeros_like(s).index_add(0, t, x))
        given = {"s": s, "x": x, "t": t, "u": t}
        before = s.clone()
        torch.testing.assert_close(evaluated(indexed, given)[0], wanted)
        assert torch.equal(s, before)
        [found] = evaluated(indexed, given, spare=frozenset({"s"}))
        torch.testing.assert_close(found, wanted)
        assert output.startswith("y[d, v]") or found.data_ptr() == s.data_ptr()


def test_a_call_that_is_given_up_has_changed_nothing() -> None:
    """Another output asks for its places after the first one has been written over `s`."""
    indexed = formula(
        WORDS + "(y[v, d], z[v, d]) = y = s - sum[n](where(v == t[n], x[n, d], 0)); "
        "z = sum[n](where(v == u[n], x[n, d], 0))"
    )
    for k in range(4):
        s, x, t = torch.randn(50, 3), torch.randn(20, 3), torch.randint(50, (20,))
        wanted = s - torch.zeros_like(s).index_add(0, t, x)
        given = {"s": s, "x": x, "t": t, "u": t + 100 * (k == 3)}
        found = evaluated(indexed, given, spare=frozenset({"s"}))
        torch.testing.assert_close(found[0], wanted)
