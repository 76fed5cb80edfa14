"""What CUDA programs use, a file a feature: each checks itself against the host and prints "ok".

They are ordinary CUDA: nvcc compiles them too, and on a machine with a GPU they give the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pullback.kernels import toolchain
from pullback.kernels.compile import compile
from pullback.kernels.cuda_on_cpu import library, program
from pullback.kernels.cuda_on_cpu.mode import Check, Mode
from tests.kernels.cuda_on_cpu.one_program import together

FOLDER = Path(__file__).parent / "features"
FEATURES = sorted(FOLDER.glob("*.cu"))
# "errors" alone: each of its many messages takes longer, the larger a program is.
ALIKE = tuple(file for file in FEATURES if file.stem != "errors")
ERRORS = FOLDER / "errors.cu"
CHECKS: list[Check] = ["race", "memory"]
# They take as long to compile as all others together.
LARGE = ("cub_device", "libraries", "thrust", "wmma")
SMALL = tuple(file for file in ALIKE if file.stem not in LARGE)
# Values are the same, and the compiler takes a third of the time.
QUICK = ("-O0", "-g0")
ORDERS = ("forward", "reverse", "random:5")
WAYS = [(order, workers) for order in ORDERS for workers in (1, 2)]
FEW = [("forward", 1), ("reverse", 2), ("random:5", 1)]  # each order and each number once
HAVE_NVCC = any(
    isinstance(found, toolchain.Compiler) and found.language == "cuda"
    for found in toolchain.survey()
)

pytestmark = pytest.mark.compiler


def run(file: Path, mode: Mode, among: tuple[Path, ...] = (), flags: Sequence[str] = ()) -> None:
    """Run a feature, in a program of those that it is compiled with."""
    made = together(f"{len(among)}-features", among) if among else file
    done = program.run(made, mode, [file.stem], flags=flags, capture=True)
    assert (done.returncode, done.stderr) == (0, ""), (mode, done.stdout + done.stderr)
    assert "ok" in done.stdout, mode


def named(value: Path | str) -> str:
    return value.stem if isinstance(value, Path) else value


@pytest.mark.ci(3)
@pytest.mark.parametrize("file", SMALL, ids=named)
def test_it_works_in_every_order_with_one_worker_and_with_two(file: Path) -> None:
    for order, workers in FEW:
        run(file, Mode(order=order, workers=workers), SMALL, QUICK)


@pytest.mark.thorough
@pytest.mark.parametrize("file", ALIKE, ids=named)
def test_it_works_optimised(file: Path) -> None:
    for order, workers in WAYS:
        run(file, Mode(order=order, workers=workers), ALIKE)


# What looks like a race, and is none.
def test_the_race_check_reports_nothing_that_is_fair() -> None:
    run(FOLDER / "fair.cu", Mode(check="race"))


@pytest.mark.thorough
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("file", ALIKE, ids=named)
def test_no_check_reports_a_fault_in_it(check: Check, file: Path) -> None:
    run(file, Mode(check=check), ALIKE, QUICK)


# A run takes two seconds, in which it waits for limits of time.
@pytest.mark.thorough
@pytest.mark.parametrize(("order", "workers"), FEW)
def test_errors_are_reported_and_survived(order: str, workers: int) -> None:
    run(ERRORS, Mode(order=order, workers=workers))


@pytest.mark.thorough
@pytest.mark.parametrize("check", CHECKS)
def test_errors_are_reported_and_survived_in_a_check(check: Check) -> None:
    run(ERRORS, Mode(check=check))


@pytest.fixture(scope="module")
def with_ucontext() -> Path:
    """The runtime as it is on processors without a switch of our own."""
    ours = library.plan("none")
    made = compile(replace(ours, flags=(*ours.flags, "-DCUDA_ON_CPU_UCONTEXT")))
    assert b"swapcontext" in made.read_bytes()
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["barrier", "warp", "shared", "atomics"])
def test_it_works_with_the_systems_own_switch(
    name: str, with_ucontext: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FOLDER / f"{name}.cu"
    run(file, Mode(), SMALL, QUICK)
    monkeypatch.setenv("LD_PRELOAD", str(with_ucontext))
    for order in ("forward", "random:5"):
        run(file, Mode(order=order), SMALL, QUICK)


@pytest.mark.cuda
@pytest.mark.skipif(not HAVE_NVCC, reason="no CUDA toolkit here")
@pytest.mark.parametrize("file", FEATURES, ids=named)
def test_a_gpu_gives_the_same(file: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    nvcc = toolchain.find("cuda")
    made = tmp_path / "program"
    native = ["-std=c++20", "-arch=native", "-O2", str(file), "-o", str(made)]
    subprocess.run([*nvcc.command, *native], check=True)
    done = subprocess.run([str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout
