"""The site is built without a warning, loads nothing from elsewhere, and has every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pullback as pb

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; a link is followed by a reader.
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=\"?(https?:[^\" >]*)")


def test_reference_of_python_has_every_public_name() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: pullback\.(\w+)$", page, re.MULTILINE)) == sorted(pb.__all__)


@pytest.mark.thorough
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {
        page.name: found for page in pages if (found := FETCHED.findall(page.read_text()))
    } == {}
    for needed in ("search/search_index.js", "assets/iframe-worker.js"):
        assert (tmp_path / needed).is_file()
