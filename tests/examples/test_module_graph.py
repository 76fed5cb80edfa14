"""T8: the graph of a module with operators of ours."""

from __future__ import annotations

import pytest
from loading import example

pytestmark = pytest.mark.compiler


def test_the_graph_names_operators_lines_what_is_saved_and_parameters() -> None:
    text = example("module_graph/module_graph").main()
    assert text.count("examples::linear (pullback)") == 2
    assert "module_graph.py:28 in forward: return self.out(hidden).mean()" in text
    assert "saved weight (4, 3) float32, 48 B, the memory of hidden.weight" in text
    assert "hidden.bias: parameter (4,) float32" in text
