"""The gallery's lines are what they are compared to; a language model of lines is PyTorch's."""

from __future__ import annotations

import pytest
from loading import example

pytestmark = pytest.mark.compiler
GALLERY = example("attention/gallery")
LINES = {**GALLERY.ROWS, **GALLERY.MORE}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LINES)
def test_every_line_of_the_gallery_is_its_reference(name: str) -> None:
    [apart] = GALLERY.check(table={name: LINES[name]}).values()
    assert max(apart) < 1e-12


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["causal", "kNN-softmax", "Sinkhorn step", "mixture density"])
def test_a_line_of_the_gallery_is_its_reference_by_blocks(name: str) -> None:
    size = GALLERY.LARGE._replace(n=2900, d=20)  # in float64 more than 64 MiB
    row = GALLERY.ROWS[name]
    given = [*row.inputs(size), *row.last(size.n)]
    ways = GALLERY.executed(GALLERY.operator_of(row), given)
    assert "blocks" in ways
    assert "whole" not in ways
    assert max(GALLERY.compare(GALLERY.operator_of(row), row, given)) < 1e-12


@pytest.mark.thorough
def test_a_language_model_of_lines_trains_as_pytorchs_own() -> None:
    small = {"steps": 30, "many": 4, "context": 24, "width": 32, "layers": 1, "limit": 20_000}
    ours, theirs = example("attention/language_model").main(**small).values()
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours[-1] < 0.8 * ours[0]
