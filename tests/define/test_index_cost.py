"""Costs of operators in index notation, against counts by hand and against PyTorch's counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F  # noqa: N812  (its usual name)
from torch.utils.flop_counter import FlopCounterMode

from pullback.define.math import extents
from pullback.define.math.cost import Cost, cost, count_multiplications
from pullback.define.math.formula import Formula
from tests.define.as_lines import made, operator

EXP = 10
DIV = 4
SQRT = 4


def costs(name: str, *kinds: str, **sizes: int) -> Cost:
    return of(operator(name, *kinds), sizes)


def of(indexed: Formula, given: dict[str, int], wanted: list[bool] | None = None) -> Cost:
    sizes = dict(given)
    for index, size in indexed.sizes.items():
        value = extents.evaluate_size(size, sizes)
        assert value is not None
        sizes[index] = int(value)
    return cost(indexed, sizes, wanted)


def counted(call: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_linear_is_two_operations_an_element_of_the_product() -> None:
    n, i, o = 7, 5, 3
    found = costs("linear", n=n, i=i, o=o)
    assert found.flops == 2 * n * o * i + n * o
    assert found.read == 4 * (n * i + o * i + o)
    assert found.written == 4 * n * o
    x, w = torch.ones(n, i), torch.ones(o, i)
    assert found.flops == counted(lambda: F.linear(x, w)) + n * o


def test_gradient_of_linear_is_twice_that() -> None:
    n, i, o = 7, 5, 3
    found = costs("linear", "backward", n=n, i=i, o=o)
    assert found.flops == 4 * n * o * i + n * o
    assert found.written == 4 * (n * i + o * i + o)
    x, w = torch.ones(n, i, requires_grad=True), torch.ones(o, i, requires_grad=True)
    y = F.linear(x, w)
    assert found.flops == counted(lambda: y.sum().backward()) + n * o


def test_a_gradient_that_nobody_wants_is_not_counted() -> None:
    n, i, o = 7, 5, 3
    only = of(operator("linear", "backward"), {"n": n, "i": i, "o": o}, [True, False, False])
    assert only.flops == 2 * n * o * i
    assert only.read == 4 * (n * o + o * i)
    assert only.written == 4 * n * i


def test_conv2d_is_what_pytorch_counts() -> None:
    sizes = {"b": 2, "c": 3, "a": 4, "h": 8, "w": 7, "p": 3, "q": 2}
    x, f = torch.ones(2, 3, 8, 7), torch.ones(4, 3, 3, 2)
    assert of(operator("conv2d"), sizes).flops == counted(lambda: F.conv2d(x, f))


def test_attention_is_two_products_of_matrices_and_a_softmax() -> None:
    s, t, e, d = 5, 4, 3, 6
    q, k, v = torch.ones(s, e), torch.ones(t, e), torch.ones(t, d)
    products = counted(lambda: (q @ k.T).softmax(-1) @ v)
    assert products == 2 * s * t * (e + d)
    softmax = s * t + s * t + EXP * s * t + s * t + DIV * s * d  # max, minus, exp, sum, divide
    assert costs("attention", s=s, t=t, e=e, d=d).flops == products + softmax


@pytest.mark.parametrize(
    ("name", "sizes", "flops"),
    [
        ("sqdist", {"n": 7, "m": 5, "d": 3}, 3 * 7 * 5 * 3),
        ("gauss", {"n": 7, "m": 5, "d": 3}, 3 * 7 * 5 * 3 + (EXP + 1 + 1) * 7 * 5),
        ("softmax", {"...": 6, "n": 5}, 6 * 5 * (1 + 1 + EXP + 1 + DIV)),
        ("rownorm", {"...": 6, "n": 5}, 6 * 5 * (1 + 1 + DIV) + 6 * (DIV + 1 + SQRT)),
        ("correlate", {"h": 8, "w": 7, "p": 3, "q": 2}, 2 * 6 * 6 * 3 * 2),
        ("gather", {"v": 9, "d": 3, "n": 7}, 7 * 3),
        ("bag", {"v": 9, "d": 3, "n": 7, "m": 5}, 7 * 5 * 3),
        ("outer", {"n": 7, "m": 5}, 7 * 5),
    ],
)
def test_operations_counted_by_hand(name: str, sizes: dict[str, int], flops: int) -> None:
    assert of(operator(name), sizes).flops == flops


def test_the_gradient_of_a_gather_adds_each_value_once() -> None:
    sizes = {"v": 1000, "d": 3, "n": 7, "m": 5}
    assert of(operator("bag", "backward"), sizes).flops == 7 * 5 * 3
    assert of(operator("bag", "backward"), sizes).written == 4 * 1000 * 3


def test_a_gather_reads_what_it_needs_and_no_more_than_there_is() -> None:
    few = costs("gather", v=1000, d=3, n=7)
    assert few.read == 4 * 7 * 3 + 8 * 7
    assert costs("gather", v=2, d=3, n=7).read == 4 * 2 * 3 + 8 * 7


def test_what_two_outputs_share_is_counted_once() -> None:
    sizes = {"n": 70, "m": 50, "d": 3}
    both = of(operator("gauss", "backward"), sizes).flops
    alone = [
        of(operator("gauss", "backward"), sizes, [k == place for k in range(3)]).flops
        for place in range(3)
    ]
    shared = (3 * 3 + EXP) * 70 * 50  # the distance and its exponential
    assert both <= sum(alone) - 2 * shared


def test_an_expression_of_other_index_names_is_the_same() -> None:
    named = made("f(x[n]) -> y[n] = exp(x[n])*sum[m](exp(x[m]))")
    assert cost(named, {"n": 10}).flops == 10 * EXP + 10 + 10


def test_dense_evaluation_moves_the_pairs() -> None:
    pairs = costs("gauss", n=4000, m=4000, d=3)
    assert pairs.dense > 4 * 4000 * 4000 * 3 * 3
    product = costs("linear", n=1000, i=1000, o=1000)
    assert product.dense < 10 * (product.read + product.written)
    scatter = costs("gather", "backward", v=1000, d=3, n=1000)
    assert scatter.dense < 10 * (scatter.read + scatter.written)


def test_itemsize_is_that_of_real_numbers() -> None:
    single = cost(operator("gather"), {"v": 1000, "d": 3, "n": 7}, itemsize=4)
    double = cost(operator("gather"), {"v": 1000, "d": 3, "n": 7}, itemsize=8)
    assert double.read == single.read + 4 * 7 * 3
    assert double.written == 2 * single.written


def test_an_empty_dimension_costs_nothing() -> None:
    found = costs("sqdist", n=0, m=5, d=3)
    assert (found.flops, found.read, found.written) == (0, 4 * 15, 0)


def test_whole_powers_are_products() -> None:
    assert [count_multiplications(k) for k in (2, 3, 4, 5, 8, -1, -2)] == [
        1,
        2,
        2,
        3,
        3,
        DIV,
        DIV + 1,
    ]


def test_shown() -> None:
    assert str(costs("gauss", n=4000, m=4000, d=3)) == (
        "336 MFLOP, 112 kB read, 16 kB written; 1.15 GB moved if every expression is a tensor"
    )
