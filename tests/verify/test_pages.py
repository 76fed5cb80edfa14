"""Every probe's page proves itself: its failing example fires it and no other, the twin none."""

from __future__ import annotations

import pytest

import pullback as pb
from pullback.verify.probe import Probe, every_probe
from tests.verify.pages import example, sections

each_probe = pytest.mark.parametrize("probe", every_probe(), ids=lambda probe: probe.code)


@each_probe
def test_a_failing_example_fires_its_probe_and_no_other(probe: type[Probe]) -> None:
    target, inputs, options = example(probe, "Fails")
    report = pb.check(target, *inputs, **options)
    found = report.faults if probe.level == "fault" else report.findings
    assert probe.code in {finding.code for finding in found}, str(report)
    assert {finding.code for finding in report.faults} <= {probe.code}, str(report)


@each_probe
def test_a_passing_example_fires_nothing(probe: type[Probe]) -> None:
    target, inputs, options = example(probe, "Passes")
    report = pb.check(target, *inputs, **options)
    assert report.ok, str(report)
    assert probe.code not in {finding.code for finding in report.findings}, str(report)


@each_probe
def test_a_page_says_what_why_and_what_is_not_seen(probe: type[Probe]) -> None:
    assert {"Why", "Fails", "Passes", "Cannot"} <= set(sections(probe))
