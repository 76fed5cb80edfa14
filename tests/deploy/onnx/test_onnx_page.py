"""docs/onnx.md runs from top to bottom, and the example of it does what its tutorial says."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import onnx
import pytest

from tests.forked import in_fork

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/onnx.md").read_text()
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w.]+)`:\n\n)?```(?P<language>cpp|python)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

pytestmark = pytest.mark.compiler


@pytest.mark.filterwarnings("ignore::pullback.deploy.onnx.exporter.OnnxNotice")
def test_the_code_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    blocks = list(BLOCK.finditer(PAGE))
    for block in blocks:
        if block["language"] == "cpp":
            Path(block["file"]).write_text(block["code"])
    for block in blocks:
        if block["language"] == "python":
            exec(compile(block["code"], "docs/onnx.md", "exec"), namespace)
    printed = capsys.readouterr().out.strip()
    assert f"```\n{printed}\n```" in PAGE


def test_the_layer_of_the_tutorial_trains_and_is_the_same_in_onnx_runtime(tmp_path: Path) -> None:
    script = str(ROOT / "examples/linear_f/export.py")

    def run() -> None:
        sys.argv = [script, "linear.onnx"]
        runpy.run_path(script, run_name="__main__")

    done = in_fork(run, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # Of "y(3, 2)   16.000000" the name and the number.
    rows = re.findall(r"^(.+?) {2,}(\S+)$", done.stdout, re.MULTILINE)
    figures = {name.strip(): float(number) for name, number in rows}
    assert abs(figures["y(3, 2)"] - 16) < 0.1
    assert figures["difference, 1 row"] < 1e-6
    assert figures["difference, 1000 rows"] < 1e-6
    model = onnx.load(tmp_path / "linear.onnx")
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("functions", "MYLINEAR")
    assert list(node.input) == ["x", "weight", "bias"]
    assert list(node.output) == ["y"]
    (rows, columns) = model.graph.input[0].type.tensor_type.shape.dim
    assert (rows.dim_param, columns.dim_value) == ("batch", 2)
