"""Whole numbers divided by zero: an error, as in PyTorch, whoever computes the formula."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.loops import compiled, interpreted
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings(f"ignore::{FormulaNotice.__module__}.{FormulaNotice.__name__}"),
]
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a // b": torch.floor_divide,
    "a % b": torch.remainder,
    "fmod(a, b)": torch.fmod,
}
LINE = "pbwhole::{}(a[{}]: int64, b[{}]: int64) -> y[{}]: int64 = {}"
EXECUTIONS = ("loop", "index", "no compiler", "a loop in Python")
names = (f"divided{k}" for k in range(100))


@pytest.fixture(params=EXECUTIONS)
def defined(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], pb.Operator]:
    """Define a formula of a and b, to be computed in one of the ways that there are."""
    execution: str = request.param
    error = toolchain.CompilerMissing.error("no C++ compiler can be used")
    if execution == "a loop in Python":
        monkeypatch.setattr(
            compiled, "load_loop", lambda loop, _: interpreted.interpret_loop(loop, error)
        )

    def find(*_: object) -> None:
        raise error

    if execution == "no compiler":
        monkeypatch.setattr(toolchain, "find", find)

    def define(formula: str) -> pb.Operator:
        dims = "n" if execution == "index" else "..."
        if execution == "index":
            formula = re.sub(r"\b([ab])\b", r"\1[n]", formula)
        return pb.operator(LINE.format(next(names), dims, dims, dims, formula))

    return define


@pytest.mark.parametrize("formula", FUNCTIONS)
def test_it_raises_where_pytorch_does_and_is_right_elsewhere(
    defined: Callable[[str], pb.Operator], formula: str
) -> None:
    operator, reference = defined(formula), FUNCTIONS[formula]
    least = torch.iinfo(torch.int64).min
    # More than a vector, and more than a thread's share.
    for size in (1, 13, 40_000):
        a, b = torch.randint(-20, 20, (size,)), torch.randint(1, 9, (size,))
        b[::2] *= -1
        a[0] = least
        assert torch.equal(operator(a, b), reference(a, b))
        b[-1] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            reference(a, b)
        for _ in range(3):  # also where the operations of a call are recorded, and replayed
            with pytest.raises(PullbackError, match=operator.definition.line.qualname) as caught:
                operator(a, b)
            assert caught.value.finding.code == "PB136"
    none = torch.zeros(0, dtype=torch.int64)
    assert operator(none, none).shape == (0,)


def test_a_divisor_that_a_selection_makes_safe_is_none(
    defined: Callable[[str], pb.Operator],
) -> None:
    operator = defined("a // where(b != 0, b, 1)")
    a, b = torch.tensor([7, 8, -9]), torch.tensor([2, 0, 2])
    assert operator(a, b).tolist() == [3, 8, -5]


LINES = [
    "(x[...], k: int) -> y[...] = x*(7 // k)",
    "(x[...], k: int) -> y[...] = x*(k // (k - k))",
    "(x[n], k: int) -> y[n] = x[n]*(n % k)",
    "(x[n], k: int) -> y[] = sum[n](x[n]*((7 + k) // n))",
]


@pytest.mark.parametrize("line", LINES)
def test_scalars_and_indices_are_whole_numbers_too(line: str) -> None:
    operator = pb.operator(f"pbwhole::{next(names)}{line}")
    with pytest.raises(RuntimeError, match="PB136"):
        operator(torch.ones(5, requires_grad=True), 0)


@pytest.mark.parametrize("length", [2, 9, 100, 5000])  # by PyTorch's operations, and by loops
def test_a_recurrence_stops_there_too(length: int) -> None:
    name = next(names)
    operator = pb.operator(f"pbwhole::{name}(x[t]: int64) -> h[t]: int64 = pad(h[t - 1], 5)//x")
    x = torch.ones(length, dtype=torch.int64)
    for _ in range(3):
        x[-1] = 1
        assert operator(x)[-1] == 5
        x[-1] = 0
        with pytest.raises(RuntimeError, match=f"PB136.*{name}: a whole number"):
            operator(x)
