"""Operators in index notation over two and four processes: the numbers are those of one."""

from __future__ import annotations

import pytest
from sharded import checks, outcomes

each_check = pytest.mark.parametrize(
    ("processes", "check"), [(count, name) for count in (2, 4) for name in checks(count)]
)


@each_check
def test_processes_agree_with_one(processes: int, check: str) -> None:
    failure = outcomes(processes)[check]
    assert failure is None, failure
