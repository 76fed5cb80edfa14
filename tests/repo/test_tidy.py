"""Rules of the house that a tool can check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON_CODE = re.compile(r'Rule\("(PB\d+)", "([^"]+)"\)')
CPP_CODE = re.compile(r'"([a-z-]+) \[(PB\d+)\]"')


def codes() -> dict[str, set[str]]:
    """Return every code with the names it is given."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for code, name in PYTHON_CODE.findall(path.read_text()):
            found.setdefault(code, set()).add(name)
    for path in (ROOT / "src").rglob("*.cpp"):
        for name, code in CPP_CODE.findall(path.read_text()):
            found.setdefault(code, set()).add(name)
    return found


def test_a_code_has_one_name_in_python_and_in_cpp() -> None:
    assert {code: names for code, names in codes().items() if len(names) > 1} == {}


def test_the_reference_lists_every_code_and_no_other() -> None:
    rows = re.findall(
        r"^\| (PB\d+) \| ([^ ]+) \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE
    )
    assert dict(rows) == {code: min(names) for code, names in codes().items()}


@pytest.mark.parametrize("code", sorted(codes()))
def test_a_test_raises_every_code(code: str) -> None:
    names = codes()[code]
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    texts = "\n".join(path.read_text() for path in tests)
    assert code in texts or any(name in texts for name in names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_a_reader_can_keep_in_mind(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
