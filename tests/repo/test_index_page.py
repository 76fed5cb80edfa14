"""The page on index notation runs from top to bottom, and prints what it says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.bind.index import choose, slices
from pullback.kernels.index import worth

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


def test_page_on_index_notation_states_the_cost_model_that_there_is() -> None:
    text = " ".join(PAGE.read_text().split())
    for said in (
        f"where no size is {worth.SMALL} or less",
        f"more than {choose.MOST_WORK} times the operations",
        f"more than {choose.LITTLE:,} in all".replace(",", " "),
        f"`max(operations / {choose.OPERATIONS:.0e}, bytes / {choose.BANDWIDTH:.0e})`".replace(
            "e+0", "e"
        ),
        f"`dense / {choose.BANDWIDTH:.0e}`".replace("e+0", "e"),
        f"the loop is {choose.CLEAR} times as fast",
        f"would move more than {choose.MOST_COMPARED >> 20} MiB",
        f"more than {slices.MOST_BYTES >> 20} MiB, or {slices.MOST_TIMES} times the inputs",
    ):
        assert said in text, said


@pytest.mark.compiler
@pytest.mark.parametrize("what", ["sum over pairs", "write a stencil", "gather and scatter"])
def test_how_to_in_index_notation_runs(what: str) -> None:
    page = PAGE.with_name("how-to.md").read_text()
    warnings.simplefilter("ignore")
    found = BLOCK.search(page, page.index(f"## … {what}"))
    assert found
    exec(compile(found[1], what, "exec"), {"pb": pb, "torch": torch})


def printed(source: str, namespace: dict[str, object]) -> str:
    try:
        return repr(eval(source, namespace))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
