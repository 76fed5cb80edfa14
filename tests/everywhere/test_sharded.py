"""Operators called with DTensors over two to four processes: the numbers are those of one."""

from __future__ import annotations

import pytest
from sharded import checks, outcomes


@pytest.mark.ci
def test_two_processes_agree_with_one() -> None:
    # One test, since the processes that run all checks start anew in each of pytest's own.
    failures = {check: failure for check, failure in outcomes(2, few=True).items() if failure}
    assert not failures, failures


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("processes", "check"),
    [(count, name) for count in (2, 3, 4) for name in checks(count, few=False)],
)
def test_processes_agree_with_one(processes: int, check: str) -> None:
    failure = outcomes(processes, few=False)[check]
    assert failure is None, failure
