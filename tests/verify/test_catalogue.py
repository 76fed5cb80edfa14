"""Every class of the catalogue, and more: the fault is found, its cause named; the twin is fine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pullback as pb
from pullback.diagnostic import Finding
from pullback.verify.report import Report
from tests.verify.case import DEAR, Case, asked
from tests.verify.catalogue import ctx, formulas, layout, library, second, unlisted, values
from tests.verify.catalogue.row import ROWS

MODULES = (formulas, values, second, ctx, layout, library, unlisted)
each_row = pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.id}-{row.make.__name__}" if isinstance(row, Case) else ""
)


@pytest.mark.ci(3)
@each_row
def test_a_fault_is_found_by_its_cause_and_not_in_the_repaired_twin(row: Case) -> None:
    # Few faults are found by a dear probe alone.
    named = named_by(row) or named_by(row, probes=DEAR)
    assert named
    torch.manual_seed(0)
    twin = asked(row.make(True), probes=sorted(named))
    assert twin.ok, str(twin)


def named_by(row: Case, **options: Any) -> set[str]:
    """Return the codes of the findings that name the cause."""
    torch.manual_seed(0)
    report = asked(row.make(False), **options)
    print(report)  # noqa: T201  (pytest shows it where the test fails)
    return {finding.code for finding in findings(row, report) if names(row, finding)}


def findings(row: Case, report: Report) -> tuple[Finding, ...]:
    return report.faults if row.level == "fault" else report.findings


def names(row: Case, finding: Finding) -> bool:
    """Tell whether a finding names the cause."""
    return any(word.lower() in str(finding).lower() for word in row.says)


@pytest.mark.thorough
@each_row
def test_the_repaired_twin_has_no_fault_at_all(row: Case) -> None:
    torch.manual_seed(0)
    target, inputs = row.make(True)
    report = pb.check(target, *inputs)
    assert report.ok, str(report)
