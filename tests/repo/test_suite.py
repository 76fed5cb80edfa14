"""How the tests themselves are chosen, and where they keep what they compiled."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import python
from tests.telling import one_in

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
    words: tuple[str, ...],
    variables: dict[str, str],
    many: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "test_table.py").write_text(TABLE)
    options = ["-n0", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest"]
    options += ["-p", "no:cacheprovider", *words, tmp_path / "test_table.py"]
    found = python("-m", "pytest", *options, folder=ROOT, **variables)
    assert re.findall(r"(\d+) passed", found.stdout) == [str(many)], found


def test_a_fresh_process_has_the_environment_of_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = ("-c", "import os; print('PATH' in os.environ, os.environ.get('NEW'))")
    assert python(*asks, folder=tmp_path, NEW="one").stdout == "True one\n"
    monkeypatch.delenv("PATH")
    assert python(*asks, folder=tmp_path).stdout == "False None\n"


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize(("first", "second"), [(2, 2), (3, 3), (4, 6), (5, 9), (9, 4), (12, 27)])
def test_a_part_of_a_table_has_most_rows_of_both_its_sides(
    first: int, second: int, many: int
) -> None:
    found = one_in(many, [*itertools.product(range(first), range(second))])
    assert len(found) == -(-first * second // many)
    for side, length in enumerate((first, second)):
        assert len({row[side] for row in found}) > length / 2


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
