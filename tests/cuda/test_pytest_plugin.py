"""pytest with `--cuda-on-cpu`, `--cuda-race`, `--cuda-memory`, `--cuda-order`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pullback
from pullback.kernels.cuda_on_cpu import runtimes
from tests.forked import in_fork

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
import ctypes
import os
import sys

def test_switch():
    sanitizer = hasattr(ctypes.CDLL(None), "__asan_init")
    print("switch", os.environ.get("CUDA_ON_CPU"), "pullback.cuda" in sys.modules, sanitizer)
"""
importlib.import_module("torch")  # which forks of this process need not do
# No plugin but this one: some take longer to import than all tests here.
ALONE: dict[str, Any] = {
    "PYTHONPATH": str(Path(pullback.__file__).parents[1]),
    "PYTEST_ADDOPTS": "",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "test_turn.py").write_text(TESTS)
    (made / "test_plain.py").write_text(PLAIN)
    (made / "pytest.ini").write_text("[pytest]\naddopts = -v -p no:cacheprovider\n")
    return made


class Ended:
    """What a session of pytest has said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.lines = done.stdout.splitlines()
        self.text = done.stdout + done.stderr
        assert "INTERNALERROR" not in self.text, self.text

    def outcome_of(self, name: str) -> str:
        (line,) = [line for line in self.lines if line.startswith(f"test_turn.py::{name} ")]
        return line.split()[1]


def run(folder: Path, *words: str) -> Ended:
    """Run pytest with the plugin."""
    named = ["-p", "pullback.pytest_plugin", *words]
    return Ended(in_fork(lambda: sys.exit(pytest.main(named)), folder=folder, **ALONE))


def start(folder: Path, *words: str) -> Ended:
    """Start pytest with the plugin."""
    named = ["-m", "pytest", "-p", "pullback.pytest_plugin", *words]
    return Ended(
        subprocess.run(
            [sys.executable, *named],
            cwd=folder,
            env={**os.environ, **ALONE},
            capture_output=True,
            text=True,
            check=False,
        )
    )


def test_race_fails_the_test_with_the_finding(folder: Path) -> None:
    ended = run(folder, "--cuda-race", "test_turn.py")
    assert ended.code == 1, ended.text
    assert "cuda on the CPU: race check, order forward" in ended.lines
    assert ended.outcome_of("test_sound") == "PASSED"
    assert ended.outcome_of("test_no_barrier") == "FAILED"
    assert "cuda-race [PB221]" in ended.text
    assert "frame #" not in ended.text
    # A fork counts on from what was launched before it.
    assert (
        f"cuda on the CPU: {runtimes.count_launches() + 3} launches checked for races"
        in ended.lines
    )


def test_memory_starts_pytest_anew_with_the_sanitizer(folder: Path) -> None:
    ended = start(folder, "--cuda-memory", "-s", "test_plain.py")
    assert ended.code == 0, ended.text
    assert ended.lines.count("cuda on the CPU: memory check, order forward") == 1
    assert "switch memory True True" in ended.text


# PyTorch takes three seconds to be imported with the sanitizer.
@pytest.mark.thorough
def test_memory_fails_the_test_with_the_finding(folder: Path) -> None:
    ended = start(folder, "--cuda-memory", "test_turn.py")
    assert ended.code == 1, ended.text
    assert ended.outcome_of("test_sound") == "PASSED"
    assert ended.outcome_of("test_far") == "FAILED"
    assert "cuda-memory [PB223]" in ended.text


@pytest.mark.thorough
def test_memory_with_workers_of_xdist(folder: Path) -> None:
    ended = start(folder, "--cuda-memory", "-p", "xdist", "-n", "2", "-k", "sound or far")
    assert ended.code == 1, ended.text
    assert "1 failed, 1 passed" in ended.lines[-1]
    counted = "2 launches checked for memory errors"
    assert any(counted in line for line in ended.lines), ended.text


@pytest.mark.ci
def test_every_test_runs_in_each_order(folder: Path) -> None:
    ended = run(folder, "--cuda-order", "-k", "sound or barrier")
    assert ended.code == 1, ended.text
    for order in ("forward", "reverse", "random"):
        assert ended.outcome_of(f"test_sound[{order}]") == "PASSED"
    assert ended.outcome_of("test_no_barrier[reverse]") == "FAILED"
    assert ended.outcome_of("test_no_barrier[random]") == "FAILED"


def test_without_options_nothing_is_said_or_imported(folder: Path) -> None:
    ended = start(folder, "-s", "test_plain.py")
    assert ended.code == 0, ended.text
    assert "switch None False False" in ended.text
    assert "cuda on the CPU" not in ended.text


def test_plugin_alone_imports_neither_torch_nor_the_rest_of_pullback() -> None:
    text = (
        "import sys, pullback.pytest_plugin;"
        "print(sorted(m for m in sys.modules if m == 'torch' or m.startswith('pullback')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **ALONE},
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
    ended = run(folder, *words)
    assert ended.code == pytest.ExitCode.USAGE_ERROR
    assert said in ended.text
