"""The page on index notation states what there is; `test_docs` runs it."""

from __future__ import annotations

from pathlib import Path

from pullback.bind.dense import slices
from pullback.bind.loops import rates
from pullback.bind.loops.backends import Backend
from pullback.bind.math import choose
from pullback.kernels.loops import worth

PAGE = Path(__file__).parents[2] / "docs" / "index-notation.md"


def test_page_on_index_notation_states_the_cost_model_that_there_is() -> None:
    text = " ".join(PAGE.read_text().split())
    for said in (
        f"where no size is {worth.SMALL} or less",
        f"more than {worth.MOST:.0f} times the operations",
        f"more than {Backend.little:,.0f} in all".replace(",", " "),
        f"take more than {choose.SLOWER} times as long",
        f"the limit is {worth.MOST_BY_DATA:.0f} times",
        f"`max(operations / {rates.CPU_OPERATIONS:.0e}, ".replace("e+0", "e"),
        f"bytes / {rates.CPU_BANDWIDTH:.0e})`".replace("e+0", "e"),
        f"`dense / {rates.CPU_BANDWIDTH:.0e}`".replace("e+0", "e"),
        f"the loop is {choose.CLEAR} times as fast",
        f"if it takes up to {choose.NEAR} times as long",
        f"would move more than {choose.MOST_COMPARED >> 20} MiB",
        f"more than {slices.MOST_BYTES >> 20} MiB, or {slices.MOST_TIMES} times the inputs",
    ):
        assert said in text, said
