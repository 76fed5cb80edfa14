"""pytest with `--cuda-on-cpu`, `--cuda-race`, `--cuda-memory`, `--cuda-order`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import pullback

pytestmark = pytest.mark.compiler

TESTS = """
import pullback as pb
import torch

turn = pb.operator(
    "demo::turn(x[n], far: int = 0, wait: int = 1) -> y[n]",
    cuda=pb.source('''
__global__ void turn(float* y, const float* x, long n, long far, long wait) {
  __shared__ float s[64];
  long i = threadIdx.x;
  if (i < n) s[i] = x[i + far];
  if (wait) __syncthreads();
  if (i < n) y[i] = s[n - 1 - i];
}
void launch(float* y, const float* x, long n, long far, long wait, cudaStream_t stream) {
  turn<<<1, 64, 0, stream>>>(y, x, n, far, wait);
}''', call="launch(y, x, n, far, wait, stream)"),
)


def test_sound():
    x = torch.arange(50.0)
    assert torch.equal(turn(x), x.flip(0))


def test_far():
    turn(torch.arange(50.0), far=1)


def test_no_barrier():
    x = torch.arange(50.0)
    assert torch.equal(turn(x, wait=0), x.flip(0))
"""
PLAIN = """
import os
import sys

def test_switch():
    print("switch", os.environ.get("CUDA_ON_CPU"), "pullback.cuda" in sys.modules)
"""


# Installed, pytest finds the plugin by itself; a second time it is refused.
INSTALLED = any(found.name == "pullback" for found in entry_points(group="pytest11"))
NAMED = "" if INSTALLED else "-p pullback.pytest_plugin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "test_turn.py").write_text(TESTS)
    (made / "test_plain.py").write_text(PLAIN)
    (made / "pytest.ini").write_text(f"[pytest]\naddopts = {NAMED}\n")
    return made


def run(folder: Path, *words: str) -> tuple[int, list[str], str]:
    source = Path(pullback.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "INTERNALERROR" not in done.stdout, done.stdout
    return done.returncode, done.stdout.splitlines(), done.stdout + done.stderr


def outcomes(lines: list[str]) -> dict[str, str]:
    shown = [line.split() for line in lines if line.startswith("test_turn.py::")]
    return {words[0].partition("::")[2]: words[1] for words in shown}


def test_race_fails_the_test_with_the_finding(folder: Path) -> None:
    code, lines, text = run(folder, "--cuda-race", "test_turn.py")
    assert code == 1, text
    assert "cuda on the CPU: race check, order forward" in lines
    assert outcomes(lines)["test_sound"] == "PASSED"
    assert outcomes(lines)["test_no_barrier"] == "FAILED"
    assert "cuda-race [PB221]" in text
    assert "frame #" not in text
    assert "cuda on the CPU: 3 launches checked for races" in lines


def test_memory_starts_pytest_anew_with_the_sanitizer(folder: Path) -> None:
    code, lines, text = run(folder, "--cuda-memory", "test_turn.py")
    assert code == 1, text
    assert lines.count("cuda on the CPU: memory check, order forward") == 1
    assert outcomes(lines)["test_sound"] == "PASSED"
    assert outcomes(lines)["test_far"] == "FAILED"
    assert "cuda-memory [PB223]" in text


def test_memory_with_workers_of_xdist(folder: Path) -> None:
    code, lines, text = run(folder, "--cuda-memory", "-n", "2", "-k", "sound or far")
    assert code == 1, text
    assert "1 failed, 1 passed" in lines[-1]
    assert any("2 launches checked for memory errors" in line for line in lines), text


def test_every_test_runs_in_each_order(folder: Path) -> None:
    code, lines, text = run(folder, "--cuda-order", "-k", "sound or barrier")
    assert code == 1, text
    found = outcomes(lines)
    assert {found[f"test_sound[{order}]"] for order in ("forward", "reverse", "random")} == {
        "PASSED"
    }
    assert found["test_no_barrier[reverse]"] == "FAILED"
    assert found["test_no_barrier[random]"] == "FAILED"


def test_without_options_nothing_is_said_or_imported(folder: Path) -> None:
    code, _, text = run(folder, "-s", "test_plain.py")
    assert code == 0, text
    assert "switch None False" in text
    assert "cuda on the CPU" not in text


def test_plugin_alone_imports_neither_torch_nor_the_rest_of_pullback() -> None:
    source = Path(pullback.__file__).parents[1]
    text = (
        "import sys, pullback.pytest_plugin;"
        "print(sorted(m for m in sys.modules if m == 'torch' or m.startswith('pullback')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['pullback', 'pullback.pytest_plugin']"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cuda-race", "--cuda-memory"), "two runs"),
        (("--cuda-order=forward", "--cuda-order=reverse"), "given 2 times"),
        (("--cuda-order=backward",), "unknown-cuda-mode [PB235]"),
    ],
)
def test_options_that_contradict_are_refused(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, text = run(folder, *words)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert said in text
