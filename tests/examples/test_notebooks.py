"""The notebooks run from top to bottom, and show pictures where they say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"

pytestmark = [pytest.mark.compiler, pytest.mark.thorough]


def outputs(name: str, folder: Path) -> list[dict[str, str]]:
    """Run a notebook in an empty folder, and return what its cells show: texts by kind."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook: Any = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client.NotebookClient(notebook, timeout=250, resources=resources).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output.data for cell in code for output in cell.outputs if "data" in output]


def test_formulas_are_shown_in_latex_and_plans_as_bars(tmp_path: Path) -> None:
    shown = outputs("formulas", tmp_path)
    latex = [own["text/latex"] for own in shown if "text/latex" in own]
    assert any(r"\sum_{m} e^{-\sum_{d}" in text for text in latex)
    assert any(r"h_{t - 1}" in text for text in latex)
    assert any('class="bar' in own.get("text/html", "") for own in shown)
    assert any("shard(0)" in own.get("text/html", "") for own in shown)


def test_graphs_are_shown_as_pictures_and_saved(tmp_path: Path) -> None:
    shown = outputs("graphs", tmp_path)
    pictures = [own["text/html"] for own in shown if "<svg" in own.get("text/html", "")]
    assert len(pictures) == 2
    assert "gallery::swish" in pictures[0]
    assert "folded" in pictures[1]
    assert {path.name for path in tmp_path.iterdir()} == {"graph.html", "graph.svg"}


def test_a_check_shows_where_a_gradient_is_wrong(tmp_path: Path) -> None:
    shown = outputs("check", tmp_path)
    (page,) = (own["text/html"] for own in shown if "text/html" in own)
    assert page.index("<svg") < page.index("<details>")


def test_a_notebook_is_kept_without_what_it_showed() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        assert '"outputs": []' in path.read_text()
        assert '"output_type"' not in path.read_text()
