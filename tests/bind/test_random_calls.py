"""Calls with arguments of every kind: no crash and no wrong result."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_calls import make_calls

from tests.forked import in_fork

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_random_calls_neither_crash_nor_give_a_wrong_result(
    count: int, seed: int, tmp_path: Path
) -> None:
    done = in_fork(lambda: make_calls(seed, count), folder=tmp_path, seconds=250)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = {what: int(n) for n, what in (row.split(" ", 1) for row in done.stdout.splitlines())}
    assert sum(seen.values()) == count
    # The calls are worth making: many are accepted, many refused.
    assert seen["accepted"] + seen["accepted, with backward"] > count / 5
    assert seen["PullbackError"] > count / 5
