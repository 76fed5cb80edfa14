"""The cause of a wrong gradient is named, and a right one is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from tests.verify.case import Function, asked, d
from tests.verify.numbers.made import Backward, Wrong, function
from tests.verify.numbers.wrong import WRONG

cases = [
    pytest.param(wrong, backward, words, id=f"{wrong.name} {index}")
    for wrong in WRONG
    for index, (backward, words) in enumerate(wrong.wrong)
]


@pytest.mark.ci(3)
@pytest.mark.parametrize(("wrong", "backward", "words"), cases)
def test_the_cause_is_named(wrong: Wrong, backward: Backward, words: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    target = function(wrong.forward, backward)
    report = pb.check(target, *wrong.inputs(), probes=["PB553"], isolate=False)
    assert [finding.code for finding in report.faults][:1] == ["PB553"], str(report)
    texts = [str(finding).lower() for finding in report.faults]
    assert not any("no known cause" in text for text in texts), str(report)
    assert any(word in text for word in words for text in texts), str(report)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_right_gradient_is_left_alone(wrong: Wrong) -> None:
    torch.manual_seed(0)
    target = function(wrong.forward, wrong.right)
    report = pb.check(target, *wrong.inputs(), probes=["PB551", "PB553"], isolate=False)
    assert not report.findings, str(report)


def test_a_transpose_that_is_too_many_is_told_from_one_that_is_missing() -> None:
    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w.t()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, w = ctx.saved_tensors
            return grad @ w.t(), grad.t() @ x

    report = asked((Linear, (d(4, 4), d(4, 4))), probes=["PB553"])
    assert "`w` is transposed in the gradient of `x`, and should not be" in str(report)


def test_a_reversal_with_a_factor_is_told_how_to_declare_it() -> None:
    target = function(lambda x: x.sin(), lambda g, x, y: -0.3 * g * x.cos())
    report = asked((target, (d(4),)), probes=["PB553"])
    assert "-0.3 x the true one" in str(report)
    assert "reversal=True" in str(report)


def test_the_scale_of_a_quantiser_is_told_how_to_declare_its_gradient() -> None:
    class Quantised(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(x, scale)
            return (x / scale).round() * scale

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, scale = ctx.saved_tensors
            return None, (grad * ((x / scale).round() - x / scale)).sum()

    scale = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    report = asked((Quantised, (torch.randn(9).double(), scale)), probes=["PB553"])
    assert "PB553" in str(report)
    assert "straight_through=True" in str(report)
