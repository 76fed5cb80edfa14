"""Each fault is found by the probe that names its cause; the repaired twin has none."""

from __future__ import annotations

import pytest

from pullback.verify.probes import every_probe
from tests.verify.case import asked
from tests.verify.invariance.faults import Case, table

OWN = [
    probe.code
    for probe in every_probe()
    if "PB530" <= probe.code <= "PB549" or "PB557" <= probe.code <= "PB561"
]
each_case = pytest.mark.parametrize("case", table(), ids=lambda case: case.name)


@pytest.mark.ci(3)
@each_case
def test_a_fault_is_found_and_named(case: Case) -> None:
    report = asked((case.make(True), case.inputs()), probes=OWN)
    assert [finding.code for finding in report.faults] == [case.code], str(report)
    message = report.faults[0].message
    assert all(word in message for word in case.words), message


@each_case
@pytest.mark.parametrize(
    "probes", [[], pytest.param(OWN, marks=pytest.mark.thorough)], ids=["its own", "all"]
)
def test_its_repaired_twin_has_no_fault(case: Case, probes: list[str]) -> None:
    report = asked((case.make(False), case.inputs()), probes=[*probes, case.code])
    assert report.ok, str(report)
