"""Every kind of operator in every way of PyTorch: right, or refused as the docs say."""

from __future__ import annotations

import matrix
import pytest
import torch
from rows import Row
from ways import Way

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def marks(row: Row) -> tuple[pytest.MarkDecorator, ...]:
    """Return `slow` for what is compiled with PyTorch's headers, once."""
    return (pytest.mark.slow,) if "foreign" in row.limits else ()


@pytest.mark.parametrize(
    ("way", "row"),
    [
        pytest.param(way, row, id=f"{way.name}-{row.label}", marks=marks(row))
        for way, row in matrix.CELLS
    ],
)
def test_it_is_right_or_refused(way: Way, row: Row, seed: int) -> None:
    refusal = way.refusal(row)
    if refusal is None:
        way.check(row, seed)
        return
    with pytest.raises(RuntimeError, match=refusal.pattern):
        way.check(row, seed)


def test_the_page_is_up_to_date() -> None:
    text = matrix.PAGE.read_text()
    assert matrix.page(text) == text, "python tests/everywhere/matrix.py writes it anew"
