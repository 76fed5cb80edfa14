"""Operators called with DTensors over two and four processes: the numbers are those of one."""

from __future__ import annotations

import pytest
from sharded import checks, outcomes


@pytest.mark.parametrize("check", checks(2, few=True))
def test_two_processes_agree_with_one(check: str) -> None:
    failure = outcomes(2, few=True)[check]
    assert failure is None, failure


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("processes", "check"),
    [(count, name) for count in (2, 4) for name in checks(count, few=False)],
)
def test_processes_agree_with_one(processes: int, check: str) -> None:
    failure = outcomes(processes, few=False)[check]
    assert failure is None, failure
