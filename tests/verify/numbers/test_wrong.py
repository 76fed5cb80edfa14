"""The cause of a wrong gradient is named, and a right one is left alone."""

from __future__ import annotations

import pytest
import torch

import pullback as pb
from tests.verify.numbers.made import Backward, Wrong, function
from tests.verify.numbers.wrong import WRONG

cases = [
    pytest.param(wrong, backward, words, id=f"{wrong.name} {index}")
    for wrong in WRONG
    for index, (backward, words) in enumerate(wrong.wrong)
]


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
