"""10,000 calls with arguments of every kind: no crash and no wrong result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compiler, pytest.mark.slow]
COUNT = 10_000


def test_random_calls_neither_crash_nor_give_a_wrong_result(seed: int) -> None:
    script = Path(__file__).with_name("random_calls.py")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), str(seed), str(COUNT)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = {what: int(n) for n, what in (row.split(" ", 1) for row in done.stdout.splitlines())}
    assert sum(seen.values()) == COUNT
    # The calls are worth making: many are accepted, many refused.
    assert seen["accepted"] + seen["accepted, with backward"] > COUNT / 5
    assert seen["PullbackError"] > COUNT / 5
