"""The page on sharding runs from top to bottom, and prints what it says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sharding.md"
# Python that is no file of its own, and what it prints.
BLOCK = re.compile(
    r"(?P<file>^`[\w.]+`:\n\n)?^```python\n(?P<code>.*?)^```\n\n```\n(?P<printed>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.compiler
@pytest.mark.thorough
def test_page_on_sharding_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    warnings.simplefilter("ignore")
    namespace: dict[str, object] = {"__name__": "page"}
    run = 0
    for block in BLOCK.finditer(PAGE.read_text()):
        if block["file"] is None:
            exec(compile(block["code"], str(PAGE), "exec"), namespace)
            assert capsys.readouterr().out == block["printed"]
            run += 1
    assert run == 5
