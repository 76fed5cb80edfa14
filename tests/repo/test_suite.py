"""How the tests themselves are chosen, and where they keep what they compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = """
import pytest

@pytest.mark.ci(3)
@pytest.mark.parametrize("row", range(7))
def test_of_a_table(row): pass

@pytest.mark.ci
def test_that_is_dear(): pass

@pytest.mark.thorough
def test_that_is_thorough(): pass

def test_that_always_runs(): pass
"""


def run_pytest(*words: str | Path, **variables: str) -> str:
    """Run this project's pytest, which keeps what it compiles, as a user's shell would."""
    own = {name: value for name, value in os.environ.items() if name.isupper()}
    for name in ("CI", "PULLBACK_CACHE", "PULLBACK_TEST_OBJECTS", "PYTEST_ADDOPTS"):
        own.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", *map(str, words)]
    ran = subprocess.run(
        command, cwd=ROOT, env=own | variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.ci(3)  # three seconds each
@pytest.mark.parametrize(
    ("words", "variables", "many"),
    [
        ((), {}, 4),
        ((), {"CI": "1"}, 9),
        (("--thorough",), {}, 10),
        (("-m", "ci"), {}, 8),
        (("-m", "thorough"), {}, 1),
    ],
    ids=["plain", "in CI", "thorough", "what CI adds", "what is thorough"],
)
def test_a_plain_run_has_a_part_of_each_table_and_ci_all(
    words: tuple[str, ...], variables: dict[str, str], many: int, tmp_path: Path
) -> None:
    (tmp_path / "test_table.py").write_text(TABLE)
    options = (
        "-n0",
        "-c",
        ROOT / "pyproject.toml",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
    )
    found = run_pytest(*options, *words, tmp_path / "test_table.py", **variables)
    assert re.findall(r"(\d+) passed", found) == [str(many)]


@pytest.mark.compiler
def test_what_cmake_compiles_is_kept_though_a_worker_removed_the_folder(tmp_path: Path) -> None:
    (tmp_path / "made.cpp").write_text("int one() { return 1; }")
    words = [
        sys.executable,
        ROOT / "tests/compile_once.py",
        "g++",
        "-o",
        "made.o",
        "-c",
        "made.cpp",
    ]
    folder = tmp_path / "removed/objects"
    variables = {**os.environ, "PULLBACK_TEST_OBJECTS": str(folder)}
    subprocess.run(words, cwd=tmp_path, env=variables, check=True)
    (kept,) = folder.iterdir()
    assert kept.read_bytes() == (tmp_path / "made.o").read_bytes()
