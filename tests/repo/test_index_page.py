"""The page on index notation states what there is; `test_docs` runs it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.bind.dense import slices
from pullback.bind.loops import rates
from pullback.bind.loops.backends import Backend
from pullback.bind.math import choose
from pullback.kernels.loops import worth

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).parents[2] / "docs" / "index-notation.md"


def test_page_on_index_notation_states_the_cost_model_that_there_is() -> None:
    text = " ".join(PAGE.read_text().split())
    for said in (
        f"where no size is {worth.SMALL} or less",
        f"more than {worth.MOST:.0f} times the operations",
        f"more than {Backend.little:,.0f} in all".replace(",", " "),
        f"`max(operations / {rates.CPU_OPERATIONS:.0e}, ".replace("e+0", "e"),
        f"bytes / {rates.CPU_BANDWIDTH:.0e})`".replace("e+0", "e"),
        f"`dense / {rates.CPU_BANDWIDTH:.0e}`".replace("e+0", "e"),
        f"the loop is {choose.CLEAR} times as fast",
        f"if it takes up to {choose.NEAR} times as long",
        f"would move more than {choose.MOST_COMPARED >> 20} MiB",
        f"more than {slices.MOST_BYTES >> 20} MiB, or {slices.MOST_TIMES} times the inputs",
    ):
        assert said in text, said


@pytest.mark.compiler
@pytest.mark.thorough
@pytest.mark.parametrize("what", ["sum over pairs", "write a stencil", "gather and scatter"])
def test_how_to_in_index_notation_runs(what: str) -> None:
    page = PAGE.with_name("how-to.md").read_text()
    warnings.simplefilter("ignore")
    found = PYTHON.search(page, page.index(f"## … {what}"))
    assert found
    exec(compile(found[1], what, "exec"), {"pb": pb, "torch": torch})
