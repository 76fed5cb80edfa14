"""`pb.operator(..., check=True)`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError

rest = pytest.mark.thorough
LINE = "defined::{name}(x[...]) -> y[...]"


def right(grad: Tensor, x: Tensor) -> Tensor:
    return grad * x.cos()


def wrong(grad: Tensor, x: Tensor) -> Tensor:
    return -grad * x.cos()


def test_a_right_operator_is_returned() -> None:
    operator = pb.operator(
        LINE.format(name="right"), python=lambda x: x.sin(), backward=right, check=True
    )
    assert operator(torch.zeros(2)).tolist() == [0, 0]


@pytest.mark.parametrize("example", [None, (torch.ones(3),)], ids=["found", "given"])
def test_a_wrong_operator_stops_with_the_report(example: tuple[Tensor, ...] | None) -> None:
    name = "wrong" if example is None else "wrong_at"
    with pytest.raises(PullbackError) as caught:
        pb.operator(
            LINE.format(name=name),
            python=lambda x: x.sin(),
            backward=wrong,
            check=True,
            example=example,
        )
    text = str(caught.value)
    assert text.startswith(f"check-failed [PB407]: defined::{name} is defined, but its derivative")
    assert "PB553" in text
    assert "wrong sign" in text
    assert ("no inputs were given; found" in text) == (example is None)


def test_an_example_without_a_use_is_refused() -> None:
    with pytest.raises(PullbackError, match="without function= or check="):
        pb.operator(LINE.format(name="none"), python=lambda x: x.sin(), example=(torch.ones(1),))


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("rest", "shown"),
    [
        ("(x[..., n]) -> y[..., n] = exp(x)/sum[m](exp(x[m]))", "x: float64"),
        pytest.param(
            "(t[v, d], index[n]: int64) -> y[n, d] = t[index[n], d]", "index: int64", marks=rest
        ),
        pytest.param("(x[h], k[p]) -> y[i] = sum[p](x[i + p]*k[p])", "k: float64", marks=rest),
    ],
    ids=["softmax", "embed", "correlate"],
)
def test_inputs_are_found_for_index_notation(
    rest: str, shown: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    operator = pb.operator(f"defined::index_{name}{rest}")
    report = pb.check(operator, probes=["wrong-gradient", "vmap-differs"])
    assert report.ok, str(report)
    assert shown in str(report)
