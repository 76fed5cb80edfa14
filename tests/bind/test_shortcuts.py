"""Calls of own loops that the runtime makes alone, once a call like them was made."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.kinds.indexed import Indexed
from pullback.bind.registry import operators
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


@pytest.mark.parametrize(
    ("line", "reference", "shapes"),
    [
        (
            "(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, d] - y[m, d]))",
            lambda x, y: (x[:, None] - y).abs().sum(-1),
            [(40, 9), (300, 9)],
        ),
        (
            "(x[n, m], y[n, m]) -> (z[m], t[n])"
            " = z = sum[n](abs(x - y)); t[n] = max[m](abs(x[n, m] - y[n, m]))",
            lambda x, y: ((x - y).abs().sum(0), (x - y).abs().amax(1)),
            [(4000, 30), (4000, 30)],
        ),
    ],
    ids=["laid out anew", "totals, and two loops"],
)
def test_it_makes_a_call_of_several_steps(
    line: str, reference: Callable[..., Any], shapes: list[tuple[int, ...]], seed: int
) -> None:
    operator, taken = define(line)
    for k in range(3):
        given = [draw(*shape, seed=seed + k) for shape in shapes]
        torch.testing.assert_close(operator(*given), reference(*given), rtol=1e-4, atol=1e-5)
    assert taken == [True, True]


@pytest.mark.thorough
def test_gradients_that_are_wanted_are_made_together(seed: int) -> None:
    layer, _ = define(
        "(x[b, n], g[n], c[n]) -> y[b, n] = mu[b] = mean[k](x[b, k]);"
        " y = (x - mu)/sqrt(mean[k]((x[b, k] - mu)**2) + 1e-5)*g + c"
    )
    every = [draw(200, 70, seed=seed), draw(70, seed=seed + 1), draw(70, seed=seed + 2)]
    grad = draw(200, 70, seed=seed + 3)
    executor: Any = None
    for wanted in [(0, 1, 2), (1, 2), (0, 1, 2), (1, 2)]:
        given = [t.clone().requires_grad_(k in wanted) for k, t in enumerate(every)]
        wrt = [given[k] for k in wanted]
        x, g, c = given
        expected = torch.autograd.grad(torch.nn.functional.layer_norm(x, [70], g, c), wrt, grad)
        found = torch.autograd.grad(layer(*given), wrt, grad)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        kind: Any = operators[f"shortcuts::_{layer.definition.line.name}_grad"].kind
        executor = kind.executor
    only_last_two = executor.shortcut(grad, *every[:2], [False, True, True])
    assert only_last_two
    assert only_last_two[0] is None
