"""Operators in index notation, shipped: a wheel has their lines, and needs no compiler."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from building import command

import pullback as pb
from pullback.deploy import shipped
from pullback.deploy.cmake import build_cmake
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler

OPS = """
import pullback as pb
sums = pb.operator("shippedindex::sums(x[n], y[m]) -> u[n] = sum[m](exp(-(x[n] - y[m])**2))")
"""
USE = """
import sys
sys.path.insert(0, "installed")
import torch, sums_ops
x, y = torch.randn(5, requires_grad=True), torch.randn(4)
wanted = torch.exp(-((x[:, None] - y) ** 2)).sum(1)
found = sums_ops.sums(x, y)
torch.testing.assert_close(found, wanted)
pairs = [torch.autograd.grad(u.sum(), x)[0] for u in (found, wanted)]
torch.testing.assert_close(*pairs)
print(sums_ops.sums.plan(x, y))
"""


def test_a_wheel_runs_where_there_is_no_compiler(tmp_path: Path) -> None:
    file = tmp_path / "sums_ops.py"
    file.write_text(OPS)
    words = ("build", file, "--as", "wheel", "--into", tmp_path / "dist")
    answer = command("-m", "pullback", *words, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    away = {"PATH": "/nowhere", "CXX": "", "PULLBACK_CACHE": str(tmp_path / "cache")}
    used = command("-c", USE, folder=tmp_path, **away)
    assert used.returncode == 0, used.stderr
    assert "u: PyTorch (there is no C++ compiler)" in used.stdout


def test_a_library_without_python_cannot_have_one(tmp_path: Path) -> None:
    line = "shippedindex::rows(x[n, m]) -> y[n] = sum[m](x[n, m]**2)"
    with pytest.raises(PullbackError) as caught:
        build_cmake(shipped.collect([pb.operator(line)]), tmp_path)
    assert caught.value.finding.code == "PB733"
    assert "its formula in index notation runs in Python" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
