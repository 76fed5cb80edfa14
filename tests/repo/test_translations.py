"""A translation has the headings and the code of the page that it translates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHINESE = ROOT / "docs" / "zh"
PAGES = sorted(str(page.relative_to(CHINESE)) for page in CHINESE.rglob("*.md"))
# A block of code, or the marks of a heading.
PART = re.compile(r"^(```+)([^\n]*\n.*?)^\1$|^(#+) ", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_a_translation_has_the_headings_and_the_code_of_the_english_page(page: str) -> None:
    english = ROOT / ("README.md" if page == "index.md" else f"docs/{page}")
    assert english.is_file(), f"docs/zh/{page} translates no page"
    ours, theirs = (PART.findall(path.read_bytes().decode()) for path in (CHINESE / page, english))
    assert ours == theirs, f"docs/zh/{page} has other headings or other code than {english.name}"
