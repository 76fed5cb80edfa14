"""The classic faults of CUDA kernels that a race detector is for, each with its repaired twin."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pullback.kernels.cuda_on_cpu import program
from pullback.kernels.cuda_on_cpu.mode import Mode
from tests.kernels.cuda_on_cpu.one_program import together

FAULTS = tuple(sorted((Path(__file__).parent / "faults").glob("race_*.cu")))
OTHERS = ("reverse", "random:3")
# "// expect: PB221 lines 8, 12: put __syncthreads()": the code, the lines, words of the help.
EXPECT = re.compile(r"// expect: (?P<code>PB\d+) lines (?P<lines>[\d, ]+): (?P<help>.*)")

each_fault = pytest.mark.parametrize("file", FAULTS, ids=lambda path: path.stem)
each_order = pytest.mark.parametrize(
    "order", ["forward", *(pytest.param(order, marks=pytest.mark.thorough) for order in OTHERS)]
)
pytestmark = pytest.mark.compiler


def run(name: str, order: str) -> subprocess.CompletedProcess[str]:
    all_of_them = together("race_faults", FAULTS, twins=True)
    return program.run(all_of_them, Mode(check="race", order=order), [name], capture=True)


@each_order
@each_fault
def test_a_fault_is_reported_at_its_lines_with_its_cure(file: Path, order: str) -> None:
    expected = EXPECT.match(file.read_text())
    assert expected
    done = run(file.stem, order)
    assert done.returncode == 1
    assert f"[{expected['code']}]" in done.stderr
    for line in expected["lines"].split(", "):
        assert f"{file}:{line}," in done.stderr
    assert f"help:     {expected['help']}" in done.stderr


@each_order
@each_fault
def test_the_repaired_kernel_is_not_reported(file: Path, order: str) -> None:
    done = run(f"{file.stem}_repaired", order)
    assert (done.returncode, done.stderr) == (0, "")
