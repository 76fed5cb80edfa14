"""What CUDA programs use, a file a feature: each checks itself against the host and prints "ok".

They are ordinary CUDA: nvcc compiles them too, and on a machine with a GPU they give the same.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pullback.kernels import toolchain
from pullback.kernels.compile import compile
from pullback.kernels.cuda_on_cpu import library, program
from pullback.kernels.cuda_on_cpu.mode import Check, Mode

FEATURES = sorted((Path(__file__).parent / "features").glob("*.cu"))
WAYS = [(order, workers) for order in ("forward", "reverse", "random:5") for workers in (1, 2)]
# Three seconds a run, in which it waits for limits of time: each order and each number once.
WAYS_OF = {"errors": [("forward", 1), ("reverse", 2), ("random:5", 1)]}
CHECKS: list[Check] = ["race", "memory"]
HAVE_NVCC = any(
    isinstance(found, toolchain.Compiler) and found.language == "cuda"
    for found in toolchain.survey()
)

each_feature = pytest.mark.parametrize("file", FEATURES, ids=lambda path: path.stem)
pytestmark = pytest.mark.compiler


def output_of(file: Path, mode: Mode) -> str:
    done = program.run(file, mode, capture=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@each_feature
def test_it_works_in_every_order_with_one_worker_and_with_two(file: Path) -> None:
    for order, workers in WAYS_OF.get(file.stem, WAYS):
        assert "ok" in output_of(file, Mode(order=order, workers=workers)), (order, workers)


@pytest.mark.parametrize("check", CHECKS)
@each_feature
def test_no_check_reports_a_fault_in_it(file: Path, check: Check) -> None:
    assert "ok" in output_of(file, Mode(check=check))


@pytest.fixture(scope="module")
def with_ucontext() -> Path:
    """The runtime as it is on processors without a switch of our own."""
    ours = library.plan("none")
    made = compile(replace(ours, flags=(*ours.flags, "-DCUDA_ON_CPU_UCONTEXT")))
    assert b"swapcontext" in made.read_bytes()
    return made


@pytest.mark.parametrize("name", ["barrier", "warp", "shared", "atomics"])
def test_it_works_with_the_systems_own_switch(
    name: str, with_ucontext: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next(file for file in FEATURES if file.stem == name)
    assert "ok" in output_of(file, Mode())
    monkeypatch.setenv("LD_PRELOAD", str(with_ucontext))
    for order in ("forward", "random:5"):
        assert "ok" in output_of(file, Mode(order=order))


@pytest.mark.cuda
@pytest.mark.skipif(not HAVE_NVCC, reason="no CUDA toolkit here")
@each_feature
def test_a_gpu_gives_the_same(file: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    nvcc = toolchain.find("cuda")
    made = tmp_path / "program"
    native = ["-std=c++20", "-arch=native", "-O2", str(file), "-o", str(made)]
    subprocess.run([*nvcc.command, *native], check=True)
    done = subprocess.run([str(made)], capture_output=True, text=True, check=True)
    assert "ok" in done.stdout
