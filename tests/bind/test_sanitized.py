"""AddressSanitizer and UBSan have nothing to say of the runtime, the kernels and the loops."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "sanitized.sh"

pytestmark = [pytest.mark.compiler, pytest.mark.thorough, pytest.mark.timeout(1200)]

PLANTED = """
import torch
import pullback as pb

def test_it() -> None:
    kernel = "void f(float* y, int k, long n) { %s; }"
    f = pb.operator(
        "planted::f(x[n], k: int) -> y[n]", cpu=pb.source(kernel, call="f(y, k, n)")
    )
    f(torch.ones(64), 2**31 - 1)
"""


def sanitized(*words: str | Path) -> subprocess.CompletedProcess[str]:
    # In one process: this is a worker beside others.
    variables = {**os.environ, "PYTEST_ADDOPTS": "-n 0"}
    for name in [name for name in variables if name.startswith("PYTEST_XDIST")]:
        del variables[name]
    words = (SCRIPT, *words)
    return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


def test_they_find_nothing() -> None:
    done = sanitized()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("y[0] = 1", ""),
        ("y[n] = 1", "heap-buffer-overflow"),
        ("y[0] = k + int(n)", "signed integer overflow"),
    ],
)
def test_they_find_a_fault_that_is_planted(fault: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED % fault)
    done = sanitized(tmp_path / "test_planted.py", "-s")
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout + done.stderr
