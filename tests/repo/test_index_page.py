"""The page on index notation runs from top to bottom, and prints what it says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "index-notation.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r">>> (.*)\n((?:(?!>>>).*\n)+)")


@pytest.mark.compiler
def test_page_on_index_notation_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    namespace: dict[str, object] = {"__name__": "page"}
    examples = 0
    for code in BLOCK.findall(PAGE.read_text()):
        if not code.startswith(">>>"):
            exec(compile(code, str(PAGE), "exec"), namespace)
        for source, expected in EXAMPLE.findall(code):
            examples += 1
            assert printed(source, namespace).strip() == expected.strip()
    assert examples


def printed(source: str, namespace: dict[str, object]) -> str:
    try:
        return repr(eval(source, namespace))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
