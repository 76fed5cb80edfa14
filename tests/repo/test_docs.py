"""The documentation's code runs, from top to bottom, as a reader would run it."""

from __future__ import annotations

from pathlib import Path

import pages
import probes_page
import pytest

from tests.forked import in_fork

ROOT = Path(__file__).parents[2]
# Without translations: they have the same code, as `test_translations.py` says.
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "zh" not in page.parts
]
# What newcomers read; the other pages are thorough.
FIRST = {"README.md", "tutorial.md", "onnx.md"}
# `verify/test_pages.py` runs the first one's examples, `python -m benchmarks.packages` the other,
# which is about packages that the tests do not install.
ELSEWHERE = {"probes.md", "packages.md"}


@pytest.mark.ci(3)
@pytest.mark.compiler
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=() if page.name in FIRST else pytest.mark.thorough,
        )
        for page in PAGES
        if page.name not in ELSEWHERE and pages.has_code(page)
    ],
)
def test_the_code_on_a_page_runs_and_prints_what_the_page_shows(
    page: Path, tmp_path: Path, seed: int
) -> None:
    done = in_fork(lambda: pages.run(page, tmp_path), folder=tmp_path, seconds=560)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", probes_page.WRITTEN, ids=lambda path: path.name)
def test_what_is_said_of_probes_is_what_their_pages_say(path: Path) -> None:
    said = "run: python tests/repo/probes_page.py"
    assert path.read_text(encoding="utf-8") == probes_page.WRITTEN[path](), said
