"""`pullback cuda run|race|memory FILE`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pullback.cli import app
from pullback.cuda import orders
from pullback.cuda.programs import race, run
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler

PROGRAM = """
#include <cstdio>
__global__ void add(float* sum, const float* terms, int n) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = i < n ? terms[i] : 0;
  BARRIER
  if (i == 63) {
    float total = 0;
    for (int k = 0; k < 64; ++k) total += s[k];
    *sum = total;
  }
}
int main(int count, char** words) {
  float *terms, *sum, host[50], total;
  for (float& each : host) each = 0.5f;
  cudaMalloc(&terms, sizeof host);
  cudaMalloc(&sum, sizeof total);
  cudaMemcpy(terms, host, sizeof host, cudaMemcpyHostToDevice);
  add<<<1, 64>>>(sum, terms, 50);
  cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost);
  std::printf("%s%g\\n", count > 1 ? words[1] : "sum ", total);
  if (count < 3) return 0;
  return words[2][0] == 'b' || total != 25 ? 3 : 0;
}
"""
BARRIER, NO_BARRIER = "-DBARRIER=__syncthreads();", "-DBARRIER="

SCRIPT = """
import sys
import torch
import pullback as pb

shift = pb.operator(
    "demo::shift(x[n], far: int) -> y[n]",
    cuda=pb.source('''
__global__ void shift(float* y, const float* x, long n, long far) {
  long i = threadIdx.x;
  if (i < n) y[i] = x[i + far];
}
void launch(float* y, const float* x, long n, long far, cudaStream_t stream) {
  shift<<<1, 64, 0, stream>>>(y, x, n, far);
}''', call="launch(y, x, n, far, stream)"),
)
for far in sys.argv[1:]:
    print(float(shift(torch.ones(50), int(far)).sum()), flush=True)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("program") / "add.cu"
    file.write_text(PROGRAM)
    return file


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "shift.py"
    file.write_text(SCRIPT)
    return file


def pullback(*words: str | Path) -> Result:
    """Run the command; what the program itself prints goes where it always does."""
    return CliRunner().invoke(app, ["cuda", *map(str, words)])


def test_program_runs_and_its_output_passes_through(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = pullback("run", program, "--flag", BARRIER, "--", "total ")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "run: no fault found in 1 launch\n"
    assert capfd.readouterr() == ("total 25\n", "")


def test_json_has_what_the_program_wrote_too(program: Path) -> None:
    done = pullback("run", program, "--flag", BARRIER, "--format", "json")
    record = json.loads(done.stdout)
    assert (done.exit_code, record["ok"], record["launches"]) == (0, True, 1)
    assert record["output"] == "sum 25\n"


def test_race_names_both_lines_and_the_exit_code_is_one(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = pullback("race", program, "--flag", NO_BARRIER)
    assert done.exit_code == 1
    assert "cuda-race [PB221]: " in done.stdout
    assert "add.cu:6" in done.stdout
    assert "add.cu:10" in done.stdout
    assert done.stdout.splitlines()[-1] == "race: 1 fault found in 1 launch"
    assert "terminate called" not in capfd.readouterr().err


def test_race_is_silent_on_the_repaired_program(program: Path) -> None:
    found = race(program, flags=[BARRIER])
    assert found.ok, str(found)
    assert str(found) == "race: no fault found in 1 launch"


def test_all_orders_are_compared(program: Path) -> None:
    found = run(program, order="all", flags=[NO_BARRIER])
    assert [finding.code for finding in found.findings] == ["PB232"], str(found)
    assert dict(found.findings[0].evidence)["forward"] == "line 1: sum 25"
    assert run(program, order="all", flags=[BARRIER]).ok


def test_a_program_ends_badly_if_it_does_so_in_one_order(program: Path) -> None:
    ended = {
        order: run(program, ["sum ", "if wrong"], order=order, flags=[NO_BARRIER]).returncode
        for order in ("forward", "all")
    }
    assert ended == {"forward": 0, "all": 3}


def test_exit_code_of_a_program_is_told(program: Path) -> None:
    found = run(program, ["total ", "badly"], flags=[BARRIER])
    assert not found.ok
    assert found.summary == "run: add.cu ended with exit code 3; no fault found in 1 launch"


@pytest.mark.ci
def test_script_with_an_operator_is_checked_for_memory(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = pullback("memory", script, "0", "1")
    assert done.exit_code == 1
    assert capfd.readouterr().out == "50.0\n"
    first = (
        "cuda-memory [PB223]: shift: thread (49,0,0) of block (0,0,0) reads 4 bytes past the end"
    )
    assert first in done.stdout
    assert "allocated by PyTorch" in done.stdout
    assert done.stdout.splitlines()[-1] == "memory: 1 fault found in 2 launches"


@pytest.mark.thorough
def test_script_with_an_operator_is_checked_for_races(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = pullback("race", script, "0")
    assert (done.exit_code, done.stdout) == (0, "race: no fault found in 1 launch\n")
    assert capfd.readouterr().out == "50.0\n"


def test_missing_file_names_the_nearest(program: Path) -> None:
    done = pullback("run", program.with_name("ad.cu"))
    assert done.exit_code == 2
    assert "program-missing [PB237]" in done.stderr
    assert "did you mean 'add.cu'?" in done.stderr


def test_file_without_main_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text("__global__ void k() {}\n")
    with pytest.raises(PullbackError, match=r"nothing-to-run \[PB238\].*main") as error:
        run(file)
    assert "SCRIPT.py" in str(error.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kernels.txt").touch()
    with pytest.raises(PullbackError, match=r"PB238.*neither"):
        run(tmp_path / "kernels.txt")


def test_unknown_order_is_refused(program: Path) -> None:
    done = pullback("run", program, "--order", "backward")
    assert done.exit_code == 2
    assert "unknown-cuda-mode [PB235]" in done.stderr


def test_help_names_the_commands() -> None:
    done = pullback("--help")
    assert done.exit_code == 0
    assert all(word in done.stdout for word in ("run", "race", "memory", "Exit code"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sum 1.000001", "sum 1.000002", True),
        ("sum 1.0001", "sum 1.1", False),
        ("3 lines", "4 lines", False),
        ("thread 1\nthread 2", "thread 2\nthread 1", True),
        ("a", "a\nb", False),
        ("nan", "nan", True),
    ],
)
def test_outputs_are_compared_by_words_and_values(one: str, other: str, *, same: bool) -> None:
    assert (orders.compare_outputs({"forward": one, "reverse": other}) is None) == same
