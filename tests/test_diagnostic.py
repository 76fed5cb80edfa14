"""Findings as text, and read back from it."""

from __future__ import annotations

import pytest

from pullback.diagnostic import Finding, an, parse

ROWS = (("at", "a.cu:1"), ("reserved words", "int: no"), ("log", "a line\n  one indented\n\nlast"))
FINDINGS = [
    Finding(code="PB221", name="cuda-race", message="two threads", evidence=ROWS, help="a barrier"),
    Finding(code="PB207", name="reserved-in-c++", message="'int'", help="another\n    name: x"),
    Finding(code="PB301", name="shape", message="x is 2\nand y is 3", evidence=(("x", ""),)),
    Finding(code="PB301", name="shape", message="x [2]: not y"),
]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.message)
def test_a_finding_is_read_back_from_its_text(finding: Finding) -> None:
    assert parse(str(finding)) == finding


@pytest.mark.parametrize("text", ["", "launches 3", "error: no [PB221]: here", "a\nb [PB1]: c"])
def test_another_text_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "said", ["an int", "an ndarray", "an Optional[Tensor]", "a uint8", "a UnionType", "a Tensor"]
)
def test_a_word_has_its_article(said: str) -> None:
    assert an(said.split(" ")[1]) == said
