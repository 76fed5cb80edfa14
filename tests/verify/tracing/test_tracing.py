"""What the trace of one call shows: faults with their causes, and nothing on code that is right."""

from __future__ import annotations

import pytest
import torch

import pullback as pb
from tests.verify.tracing import faults, sound
from tests.verify.tracing.case import FAMILY, FAULTS, RIGHT, Case

MODULES = (faults, sound)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_the_fault_is_found_and_named(case: Case) -> None:
    torch.manual_seed(0)
    target, inputs = case.make()
    report = pb.check(target, *inputs, probes=FAMILY)
    assert case.code in {finding.code for finding in report.faults}, str(report)
    text = "\n".join(str(f) for f in report.faults if f.code == case.code)
    assert all(word in text for word in case.says), str(report)
    assert len({finding.code for finding in report.faults}) == 1, str(report)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_code_that_is_right_has_no_fault(case: Case) -> None:
    torch.manual_seed(0)
    target, inputs = case.make()
    report = pb.check(target, *inputs, probes=FAMILY)
    assert report.ok, str(report)
