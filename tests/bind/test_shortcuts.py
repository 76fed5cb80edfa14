"""Calls of one loop that the runtime makes alone, once a call like them was made."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.kinds.indexed import Indexed
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler
_numbers = itertools.count()
BAG = "(table[v, d], index[n, k]: int64) -> y[n, d] = sum[k](table[index[n, k], d])"


def define(rest: str) -> tuple[pb.Operator, list[bool]]:
    """Return a new operator, and of each of its calls whether the runtime made it alone."""
    operator = pb.operator(f"shortcuts::f{next(_numbers)}{rest}")
    assert isinstance(operator.kind, Indexed)
    executor: Any = operator.kind.executor
    taken: list[bool] = []
    add = executor.shorten

    def shorten(*given: Any) -> None:
        add(*given)
        if inner := executor.shortcut:

            def noted(*arguments: object) -> object | None:
                values = inner(*arguments)
                taken.append(values is not None)
                return values

            executor.shortcut = noted

    executor.shorten = shorten
    return operator, taken


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_bag_is_the_same_however_its_tensors_lie(seed: int) -> None:
    bag, taken = define(BAG)
    table, index = draw(30, 8, seed=seed), torch.arange(60).reshape(12, 5) * 7 % 30
    wanted = table[index].sum(1)
    torch.testing.assert_close(bag(table, index), wanted)
    ways: list[tuple[Tensor, Tensor, bool]] = [
        (table, index, True),
        (table.t().contiguous().t(), index, False),
        (torch.ops.aten._neg_view.default(-table), index, True),
        (table, index.t().contiguous().t(), False),
        (torch.nn.Parameter(table), index, True),
    ]
    for one, other, alone in ways:
        torch.testing.assert_close(bag(one, other), wanted)
        assert taken.pop() is alone
    # Other sizes and dtypes are other calls.
    torch.testing.assert_close(bag(table[:, :3].contiguous(), index), wanted[:, :3])
    torch.testing.assert_close(bag(table.double(), index), table.double()[index].sum(1))
    assert not any(taken)


def test_an_index_outside_is_found_in_a_call_that_is_known() -> None:
    bag, taken = define(BAG)
    table, index = torch.ones(30, 8), torch.zeros(4, 3, dtype=torch.int64)
    for _ in range(3):
        bag(table, index)
    assert taken[-1]
    index[2, 1] = 30
    with pytest.raises(PullbackError, match=r"PB149.*'table' is read at 30"):
        bag(table, index)
    index[2, 1] = 29
    assert bag(table, index).tolist() == [[3.0] * 8] * 4


def test_gradients_pass_through_it(seed: int) -> None:
    bag, taken = define(BAG)
    table, index = draw(30, 8, seed=seed), torch.arange(60).reshape(12, 5) * 7 % 30
    for _ in range(2):
        table = table.detach().requires_grad_()
        output = bag(table, index)
        (grad,) = torch.autograd.grad(output.square().sum(), table)
        (wanted,) = torch.autograd.grad(table[index].sum(1).square().sum(), table)
        torch.testing.assert_close(grad, wanted)
    assert taken[-1]


@pytest.mark.parametrize(
    ("line", "reference", "scalars"),
    [
        (
            "(x[..., n], s: float, k: int) -> y[..., n] = s*x + k*sum[m](x[m])",
            lambda x, s, k: s * x + k * x.sum(-1, keepdim=True),
            [(0.5, 2), (-1.5, 3)],
        ),
        (
            "(x[..., n], order: int) -> y[..., n] = sum[k < order](x*k)",
            lambda x, order: x * sum(range(order)),
            [(3,), (5,), (3,)],
        ),
        (
            "(x[..., n], k: int) -> (y[..., n], top[...])"
            " = top = max[m](x[m]); y = k*x - max[m](x[m])",
            lambda x, k: (k * x - x.amax(-1, keepdim=True), x.amax(-1)),
            [(2,), (-1,)],
        ),
    ],
    ids=["scalars", "counts", "several outputs"],
)
def test_scalars_are_those_of_the_call(
    line: str, reference: Callable[..., Any], scalars: list[tuple[Any, ...]], seed: int
) -> None:
    operator, _ = define(line)
    x = draw(2, 3, 50, seed=seed)
    for given in [*scalars, *scalars]:
        torch.testing.assert_close(operator(x, *given), reference(x, *given))
