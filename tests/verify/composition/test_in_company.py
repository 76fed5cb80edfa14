"""Second derivatives, forward mode and composition: each fault is found, right code is silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pullback.verify.probes import every_probe
from tests.verify.case import DEAR, Case, Made, asked
from tests.verify.composition import functions, operators, right
from tests.verify.composition.case import CASES, RIGHT

MODULES = (functions, operators, right)
OWN = [
    probe.code
    for probe in every_probe()
    if probe.code == "PB529" or "PB565" <= probe.code <= "PB599" or "PB665" <= probe.code <= "PB669"
]
CHEAP = [code for code in OWN if code not in DEAR]
twins_are_asked = [[], pytest.param(OWN, marks=pytest.mark.thorough)]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)


@each_case
def test_a_fault_is_found_and_its_cause_named(case: Case) -> None:
    torch.manual_seed(0)
    report = asked(case.make(False), probes=[*CHEAP, case.id])
    if case.level == "fault":
        assert [finding.code for finding in report.faults] == [case.id], str(report)
    assert report.ok == (case.level == "advice"), str(report)
    text = next(str(found) for found in report.findings if found.code == case.id)
    assert any(word in text for word in case.says), str(report)


@each_case
@pytest.mark.parametrize("probes", twins_are_asked, ids=["its own", "all"])
def test_the_repaired_twin_has_no_fault(case: Case, probes: list[str]) -> None:
    torch.manual_seed(0)
    report = asked(case.make(True), probes=[*probes, case.id])
    assert report.ok, str(report)


@pytest.mark.ci(3)
@pytest.mark.parametrize("make", RIGHT, ids=lambda make: make.__name__)
def test_right_code_has_no_fault(make: Callable[[], Made]) -> None:
    torch.manual_seed(0)
    report = asked(make(), probes=OWN)
    assert report.ok, str(report)
