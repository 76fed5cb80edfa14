"""The example of docs/onnx.md does what its tutorial says; `repo/test_docs.py` runs the page."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import onnx
import pytest

from tests.forked import in_fork

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.compiler


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
