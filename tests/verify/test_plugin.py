"""`assert pb.check(...)` and the fixture `check`, in pytest and in pytest-xdist."""

from __future__ import annotations

import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.forked import in_fork

TESTS = """
import pullback as pb
import torch

FEW = ["PB504"]
X = torch.ones(2, 3, dtype=torch.float64)

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad

class Overwriting(Cube):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.data.pow_(2).mul_(3 * grad)

def test_good(check):
    assert check(Cube, X, probes=FEW).ok

def test_assert():
    assert pb.check(Overwriting, X, probes=FEW)

def test_fixture(check):
    check(Overwriting, X, probes=FEW)

def test_seed(check):
    check(Overwriting, X, probes=FEW, seed=5)

def test_other():
    assert not pb.check(Overwriting, X, probes=FEW)
    assert False, "for another reason"
"""
INSTALLED = any(found.name == "pullback" for found in entry_points(group="pytest11"))


def run(folder: Path, *options: str) -> str:
    (folder / "test_ops.py").write_text(TESTS, encoding="utf-8")
    plugin = () if INSTALLED else ("-p", "pullback.pytest_plugin")
    words = ["-q", "-p", "no:cacheprovider", *plugin, *options]

    def work() -> None:
        sys.path.insert(0, str(folder))  # as `python -m pytest` does
        pytest.main(words)

    return in_fork(work, folder=folder).stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone"),
        pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.thorough),
    ],
)
def test_a_fault_fails_the_test_with_the_report(options: tuple[str, ...], tmp_path: Path) -> None:
    text = run(tmp_path, *options)
    assert "4 failed, 1 passed" in text
    assert re.search(r"^E +AssertionError: assert <Report: saved-tensor-overwritten ", text, re.M)
    section = r"-+ pullback check -+\nOverwriting\(x: float64 \(2, 3\)\)    seed 0\n"
    assert re.search(section, text)
    assert "replay: pb.check(Overwriting, *inputs, seed=0, probes=['PB504'])" in text
    seeds = re.findall(r"^E +Failed: Overwriting\(x: float64 \(2, 3\)\) +seed (\d+)", text, re.M)
    assert sorted(seeds, key=int)[0] == "5"
    assert len(seeds) == 2
    assert 'replay: pytest "test_ops.py::test_fixture"' in text
    # Of the frames, only the test's own is shown.
    assert "pytest_plugin.py" not in text


@pytest.mark.thorough
def test_the_short_name_is_left_to_a_plugin_that_has_it(tmp_path: Path) -> None:
    """The package pytest-check is the plugin `check`."""
    (tmp_path / "check.py").write_text(
        "import pytest\n@pytest.fixture\ndef check(): return 'theirs'\n", encoding="utf-8"
    )
    (tmp_path / "test_names.py").write_text(
        "def test_both(check, pullback_check): assert check == 'theirs' and pullback_check\n",
        encoding="utf-8",
    )
    assert "1 passed" in run(tmp_path, "-p", "check", "test_names.py")
