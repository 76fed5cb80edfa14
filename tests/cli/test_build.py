"""`pullback build FILE`."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from pullback.bind.register import RedefinitionNotice
from pullback.cli import app

GOOD = """
import pullback as pb
copy = pb.operator(
    "{namespace}::copy(x[...]) -> y[...]",
    cpu=pb.source("void copy(float* y, const float* x, long n) {{ while (n--) y[n] = x[n]; }}",
                  call="copy(y, x, numel(x))"),
)
"""
BAD = """
import pullback as pb
bad = pb.operator(
    "{namespace}::bad(x[...]) -> y[...]",
    cpu=pb.source("void bad(float* y) {{ y[0] = nope; }}", call="bad(y)"),
)
"""
CUDA = """
import pullback as pb
copy = pb.operator(
    "{namespace}::copy(x[...]) -> y[...]",
    cuda=pb.source('''
__global__ void kernel(float* y, const float* x, long n) {{ if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }}
void copy(float* y, const float* x, long n, cudaStream_t s) {{ kernel<<<1, 32, 0, s>>>(y, x, n); }}''',
                  call="copy(y, x, numel(x), stream)"),
)
"""  # noqa: E501
PYTHON = """
import pullback as pb
twice = pb.operator("{namespace}::twice(x[...]) -> y[...]", python=lambda x: 2 * x)
"""

FORMULA = """
import pullback as pb
cube = pb.operator("{namespace}::cube(x[...]) -> y[...] = x**3")
"""


UNCOMPILED = """
import pullback as pb
pb.operator("{namespace}::plain(x[n]) -> y[n]", python=lambda x: x + 1)
pb.operator("{namespace}::total(x[n]) -> y[] = sum[n](x)")
"""


def build(folder: Path, *texts: str, namespace: str, more: tuple[str, ...] = ()) -> Result:
    file = folder / "operators.py"
    file.write_text("".join(texts).format(namespace=namespace), encoding="utf-8")
    return CliRunner().invoke(app, ["build", str(file), *more])


def rows(result: Result) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in result.output.splitlines()]


@pytest.mark.compiler
def test_json_has_each_kernel_and_each_error(tmp_path: Path) -> None:
    result = build(tmp_path, GOOD, BAD, namespace="buildjson", more=("--format", "json"))
    assert result.exit_code == 1, result.output
    record = json.loads(result.stdout)
    assert [(own["operator"], own["ok"]) for own in record["kernels"]] == [
        ("buildjson::copy", True),
        ("buildjson::bad", False),
    ]
    assert Path(record["kernels"][0]["library"]).is_file()
    assert ["nope" in str(error) for error in record["errors"]] == [True]
    none = CliRunner().invoke(app, ["build", str(tmp_path / "none.py"), "--format", "json"])
    assert none.exit_code == 2
    assert json.loads(none.stdout)["errors"][0]["code"] == "PB801"


@pytest.mark.compiler
def test_builds_and_shows_each_kernel_once(tmp_path: Path) -> None:
    result = build(tmp_path, GOOD, PYTHON, namespace="buildgood")
    assert result.exit_code == 0, result.output
    header, copy, twice, *_, count = rows(result)
    assert header == ["operator", "device", "compiler", "time", "library"]
    assert copy[:2] == ["buildgood::copy", "cpu"]
    assert Path(copy[-1]).is_file()
    assert twice == ["buildgood::twice", "any", "in Python: nothing to compile"]
    assert count == ["1 of 1 kernel built"]


@pytest.mark.compiler
def test_a_formula_and_its_gradients_are_built_for_float32(tmp_path: Path) -> None:
    result = build(tmp_path, FORMULA, namespace="buildformula")
    assert result.exit_code == 0
    built = [row[:2] for row in rows(result) if row[0].startswith("buildformula")]
    assert built == [
        ["buildformula::cube", "cpu float32"],
        ["buildformula::_cube_grad", "cpu float32"],
    ]


@pytest.mark.compiler
def test_the_second_time_it_is_cached(tmp_path: Path) -> None:
    # A text that no cache has seen.
    text = GOOD.replace('"void', f'"/* {uuid4()} */ void')
    for time in (r"\d", "cached"):
        with pytest.warns(RedefinitionNotice) if time == "cached" else nullcontext():
            result = build(tmp_path, text, namespace="buildtwice")
        assert re.match(time, rows(result)[1][3])


@pytest.mark.compiler
def test_a_kernel_that_fails_is_shown_and_the_rest_is_built(tmp_path: Path) -> None:
    result = build(tmp_path, BAD, GOOD, namespace="buildbad")
    assert result.exit_code == 1
    assert rows(result)[1] == ["buildbad::bad", "cpu", "FAIL"]
    assert rows(result)[2][0] == "buildbad::copy"
    assert "compile-failed [PB202]: buildbad-bad-cpu does not compile" in result.output
    assert "'nope' was not declared" in result.output
    assert result.output.endswith("1 of 2 kernels built\n")


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_cuda_is_compiled_without_a_gpu(tmp_path: Path) -> None:
    result = build(tmp_path, CUDA, namespace="buildcuda", more=("--arch", "sm_90"))
    assert result.exit_code == 0, result.output
    assert rows(result)[1][:2] == ["buildcuda::copy", "cuda sm_90"]
    assert Path(rows(result)[1][-1]).is_file()


@pytest.mark.compiler
def test_what_stops_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    result = build(tmp_path, GOOD, "\n1 / 0\n", namespace="buildstop")
    assert result.exit_code == 2
    assert rows(result)[1][0] == "buildstop::copy"
    assert "file-stopped [PB802]" in result.stderr
    assert re.search(
        r"stopped with ZeroDivisionError: division by zero\n +at: +operators.py:9", result.stderr
    )


@pytest.mark.compiler
def test_a_wrong_line_stops_the_file_with_its_own_error(tmp_path: Path) -> None:
    text = 'import pullback as pb\npb.operator("buildline::f(x[") -> y[...]", python=abs)'
    result = build(tmp_path, text.replace('x[")', "x[)"), namespace="")
    assert result.exit_code == 2
    assert "[PB1" in result.stderr


def test_a_missing_file_cannot_be_built(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["build", str(tmp_path / "none.py")])
    assert result.exit_code == 2
    assert "file-missing [PB801]: there is no file" in result.stderr


def test_a_file_that_is_not_python_cannot_be_built(tmp_path: Path) -> None:
    (tmp_path / "kernel.cpp").write_text("", encoding="utf-8")
    result = CliRunner().invoke(app, ["build", str(tmp_path / "kernel.cpp")])
    assert result.exit_code == 2
    assert "its name ends in .py" in result.stderr


@pytest.mark.parametrize("under_main", [False, True])
def test_a_file_without_operators_is_told_what_was_looked_for(
    tmp_path: Path, under_main: bool
) -> None:
    text = "if __name__ == '__main__':" + GOOD.replace("\n", "\n    ") if under_main else "x = 1\n"
    result = build(tmp_path, text, namespace="none")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "PB708" in said
    assert "called neither pb.operator nor @pb.formula" in said


def test_operators_without_kernels_are_listed(tmp_path: Path) -> None:
    result = build(tmp_path, UNCOMPILED, namespace=f"n{uuid4().hex}")
    assert result.exit_code == 0, result.output
    assert "in Python: nothing to compile" in result.output
    assert "in index notation" in result.output
