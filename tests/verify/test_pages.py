"""Every probe's page proves itself: its failing example fires it and no other, the twin none."""

from __future__ import annotations

import inspect

import pytest

import pullback as pb
from pullback.verify.probe import Probe
from pullback.verify.probes import every_probe
from pullback.verify.report import Report
from tests.verify.case import SPOILING, asked
from tests.verify.pages import example, sections

PROBES = every_probe()
each_probe = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.code)
each_fault = pytest.mark.parametrize(
    "probe", [probe for probe in PROBES if probe.level == "fault"], ids=lambda probe: probe.code
)


def report_on(probe: type[Probe], heading: str, *, alone: bool = False) -> Report:
    """Check an example of a probe's page, with every probe or with this one alone."""
    target, inputs, options = example(probe, heading)
    if alone:
        options |= {"probes": [probe.code]}
    spoils = probe.code in SPOILING
    return asked((target, inputs), dear={probe.code}, isolate=spoils, **options)


@pytest.mark.ci(3)
@each_probe
def test_a_failing_example_fires_its_probe_and_no_other(probe: type[Probe]) -> None:
    report = report_on(probe, "Fails")
    found = report.faults if probe.level == "fault" else report.findings
    assert probe.code in {finding.code for finding in found}, str(report)
    assert {finding.code for finding in report.faults} <= {probe.code}, str(report)


@each_fault
def test_a_probe_finds_its_pages_fault_alone(probe: type[Probe]) -> None:
    report = report_on(probe, "Fails", alone=True)
    assert probe.code in {finding.code for finding in report.faults}, str(report)


@pytest.mark.ci(3)
@each_probe
def test_a_passing_example_fires_nothing(probe: type[Probe]) -> None:
    report = report_on(probe, "Passes")
    assert report.ok, str(report)
    assert probe.code not in {finding.code for finding in report.findings}, str(report)


@each_fault
def test_a_probe_whose_findings_are_of_two_levels_says_so(probe: type[Probe]) -> None:
    text = inspect.getsource(inspect.getmodule(probe.examine) or probe)
    assert probe.milder == ("level=" in text)


@pytest.mark.thorough
@each_probe
@pytest.mark.parametrize("heading", ["Fails", "Passes"])
def test_an_example_says_the_same_to_a_whole_check(probe: type[Probe], heading: str) -> None:
    """In a process of its own, and asked every question, as a user's check is."""
    target, inputs, options = example(probe, heading)
    report = pb.check(target, *inputs, **options)
    allowed = {probe.code} if heading == "Fails" else set[str]()
    assert {finding.code for finding in report.faults} <= allowed, str(report)
    fires = probe.code in {finding.code for finding in report.findings}
    assert fires == (heading == "Fails"), str(report)


@each_probe
def test_a_page_says_what_why_and_what_is_not_seen(probe: type[Probe]) -> None:
    assert {"Why", "Fails", "Passes", "Cannot"} <= set(sections(probe))
