"""Every class of the catalogue, and more: the fault is found, its cause named; the twin is fine."""

from __future__ import annotations

import pytest
import torch

import pullback as pb
from tests.verify.case import Case
from tests.verify.catalogue import ctx, formulas, layout, library, second, unlisted, values
from tests.verify.catalogue.row import ROWS

MODULES = (formulas, values, second, ctx, layout, library, unlisted)
each_row = pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.id}-{row.make.__name__}" if isinstance(row, Case) else ""
)


@each_row
def test_the_fault_is_found_and_its_cause_named(row: Case) -> None:
    # Compiling takes two thirds of the time, and few faults are found by that alone.
    assert any(is_named(row, skip) for skip in (["compiled-differs"], []))


def is_named(row: Case, skip: list[str]) -> bool:
    """Tell whether a check without some probes finds the fault and its cause."""
    torch.manual_seed(0)
    target, inputs = row.make(False)
    report = pb.check(target, *inputs, skip=skip)
    found = report.faults if row.level == "fault" else report.findings
    print(report)  # noqa: T201  (pytest shows it where the test fails)
    texts = [str(finding).lower() for finding in found]
    return any(word.lower() in text for word in row.says for text in texts)


@each_row
def test_the_repaired_twin_has_no_fault(row: Case) -> None:
    torch.manual_seed(0)
    target, inputs = row.make(True)
    report = pb.check(target, *inputs)
    assert report.ok, str(report)
