"""The rules of the race detector, told to it without a scheduler, and held against a search."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pullback.kernels.cuda_on_cpu import program
from pullback.kernels.cuda_on_cpu.library import CSRC
from pullback.kernels.cuda_on_cpu.mode import Mode

HERE = Path(__file__).parent
# What the program itself lists: see `cases` in race_rules.cpp.
RULES = tuple(
    line.split('"')[1]
    for line in (HERE / "race_rules.cpp").read_text().splitlines()
    if line.startswith('    {"')
)

pytestmark = pytest.mark.compiler


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    flags = [f"-I{CSRC}", f"-I{HERE}"]
    file = HERE / "race_rules.cpp"
    return program.run(file, Mode(check="race"), arguments, flags=flags, capture=True)


@pytest.mark.parametrize("rule", RULES)
def test_what_breaks_a_rule_is_reported_and_its_repaired_twin_is_not(rule: str) -> None:
    done = run(rule)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_tried_here() -> None:
    assert run().stdout.split() == sorted(RULES)


@pytest.mark.parametrize("count", [1000, pytest.param(10000, marks=pytest.mark.thorough)])
def test_random_histories_have_a_race_where_a_search_finds_one(seed: int, count: int) -> None:
    done = run("random", str(seed), str(count))
    assert done.returncode == 0, done.stdout + done.stderr
