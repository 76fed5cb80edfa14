"""What cannot become a library without Python, and libraries that cannot be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from building import command
from torch import Tensor

import pullback as pb
from pullback.deploy import shipped
from pullback.deploy.cmake import build
from pullback.deploy.cmake.build import build_cmake
from pullback.deploy.cmake.index_loops import IndexedOperator
from pullback.deploy.cmake.index_tables import write_tables
from pullback.deploy.cmake.project import Project
from pullback.diagnostic import PullbackError

pytestmark = pytest.mark.compiler


def add(text: str, **parts: Any) -> pb.Operator:
    return pb.operator(f"refuselib::{text}", **parts)


def refused(operators: list[pb.Operator], folder: Path) -> str:
    with pytest.raises(PullbackError) as caught:
        build_cmake(shipped.collect(operators), folder)
    assert list(folder.iterdir()) == [], "something was written"
    return str(caught.value)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 2


INLINE = "template <class T> void copy(T* y, const T* x, long n) { while (n--) y[n] = x[n]; }"
COPY: dict[str, Any] = {"cpu": pb.source(INLINE, call="copy(y, x, numel(y))")}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"python": lambda x: x + 1}, "its python= runs in Python"),
        ({"function": Doubled}, "its function= runs in Python"),
        ({**COPY, "backward": lambda grad: grad}, "its backward= runs in Python"),
        ({**COPY, "backward": {"x": "grad"}, "jvp": lambda tangent_x: tangent_x}, "its jvp= runs"),
    ],
    ids=["python", "function", "backward", "jvp"],
)
def test_a_part_that_only_python_can_run_is_named(
    parts: dict[str, Any], message: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    text = refused([add(f"by_{name}(x[...]) -> y[...]", **parts)], tmp_path)
    assert f"needs-python [PB733]: refuselib::by_{name} cannot be" in text
    assert message in text
    assert "--as wheel" in text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("halves(x[n]: int64, k[m]: int64) -> y[n]: int64 = sum[m](x//k)", "whole numbers are"),
        (
            "front(x[i, j, k]) -> y[i, j, k] = x + pad(y[i - 1, j, k]) + pad(y[i, j - 1, k]) "
            "+ pad(y[i, j, k - 1])",
            "its fronts are not those of two indices",
        ),
        (
            "picked(x[t], i[t]: int64) -> y[t] = x[i[t]] + pad(y[t - 1])",
            "data says what its steps read",
        ),
    ],
)
def test_index_notation_without_loops_is_refused_with_the_reason(
    line: str, reason: str, tmp_path: Path
) -> None:
    text = refused([add(line)], tmp_path)
    assert f"needs-python [PB733]: refuselib::{line.partition('(')[0]} cannot be" in text
    assert f"reason: {reason}" in text
    assert "--as wheel" in text


def test_loops_for_gpus_are_refused_where_there_are_none() -> None:
    quotients = add("quotients(x[n]: int64, k[m]: int64) -> y[n]: int64 = sum[m](x//k)")
    [one] = shipped.collect([quotients], orders=0)
    with pytest.raises(PullbackError, match=r"PB733.*it has no loops there for GPUs") as caught:
        Project([one], ("sm_80",), devices=("cuda",)).indexed  # noqa: B018
    assert "reason: whole numbers are divided" in str(caught.value)
    assert "leave --arch out" in str(caught.value)


def test_loops_for_gpus_are_launched_with_what_they_keep_and_without() -> None:
    """A row may be too long for the memory of a block; nothing asks PyTorch's operations then."""
    rows = add("rows(x[n, k]) -> y[n, k] = exp(x - max[j](x[n, j]))")
    [one] = shipped.collect([rows], orders=0)
    operator = IndexedOperator(one, (), "cuda")
    halves = [choice for choice in operator.choices if choice.dtype == "float16"]
    assert [choice.keeps_rows for choice in halves] == [True, False]
    [(file, unit), *_] = operator.units()
    assert file.endswith(".cu")
    tables = write_tables(operator)
    for own in operator.owns:
        for step in own.steps:
            name = operator.symbol(own.target, step.kernel.text)
            assert f"PULLBACK_INDEX_LAUNCHER({name}, " in "".join(u for _, u in operator.units())
            assert f".launcher = {name}," in tables
    assert "shared_memory" in tables
    assert "__global__" in unit or "PULLBACK_INDEX_KERNEL" in unit


def test_a_product_of_matrices_has_loops_where_nothing_else_is() -> None:
    product = add("product(a[n, k], b[k, m]) -> c[n, m] = sum[k](a[n, k]*b[k, m])")
    [one] = shipped.collect([product], orders=0)
    operator = IndexedOperator(one, ())
    wanted = {(choice.wanted, choice.present) for choice in operator.choices}
    assert wanted == {(1, 3)}
    assert {own.outputs for own in operator.owns} == {(0,)}


def test_what_an_author_gives_the_linker_is_given_to_it(tmp_path: Path) -> None:
    flags = ["-DN=1", "-fopenmp", "-Wl,--as-needed", "-lm"]
    kernel = pb.source(INLINE, call="copy(y, x, numel(y))", flags=flags)
    linked = shipped.collect([add("linked(x[...]) -> y[...]", cpu=kernel)])
    project = Project(linked, ())
    assert project.sources.libraries() == flags[1:]


def test_an_operator_that_was_taken_over_stays_where_it_is(tmp_path: Path) -> None:
    library = torch.library.Library("refusedothers", "FRAGMENT")
    library.define("plain(Tensor x) -> Tensor")
    library.impl("plain", lambda x: x + 1, "CompositeExplicitAutograd")
    taken = pb.operator("refusedothers::plain(x[...]) -> y[...]", backward={"x": "grad"})
    assert "PB733" in refused([taken], tmp_path)


def test_two_operators_of_one_base_name_are_one_too_many(tmp_path: Path) -> None:
    one = pb.operator("refuselib::twin(x[...]) -> y[...] = x*2")
    other = pb.operator("refuselibtoo::twin(x[...]) -> y[...] = x*3")
    text = refused([one, other], tmp_path)
    assert "same-base-name [PB736]: refuselib::twin and refuselibtoo::twin" in text


def test_without_cmake_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = pb.operator("refuselib::lonely(x[...]) -> y[...] = x*2")
    monkeypatch.setattr(build, "find_program", lambda _: None)
    text = refused([operator], tmp_path)
    assert "no-cmake [PB734]" in text
    assert "apt install cmake" in text
    monkeypatch.setattr(
        build, "find_program", lambda program: program if program == "cmake" else None
    )
    assert "neither ninja nor make" in refused([operator], tmp_path)


def test_what_cmake_says_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(x NONE)\nfind_package(Nonsense REQUIRED)\n"
    )
    with pytest.raises(PullbackError, match=r"cmake-stopped \[PB735\]") as caught:
        build.run("x", tmp_path, build.find_tools())
    assert "CMakeLists.txt:3" in str(caught.value)
    assert 'By not providing "FindNonsense.cmake"' in str(caught.value)
    assert not (tmp_path / "lib").exists()


def test_a_kernel_that_does_not_compile_there_is_shown(tmp_path: Path) -> None:
    error = build.build_failure(
        f"[ 50%] Building\n{tmp_path}/kernels/source/add.cpp:3:7: error: 'x' was not declared\n",
        tmp_path,
    )
    assert "kernels/source/add.cpp:3:7" in str(error)
    assert "'x' was not declared" in str(error)


@pytest.mark.thorough
def test_a_process_has_the_library_or_the_definitions(library: Path, tmp_path: Path) -> None:
    code = f"""
import sys, torch
sys.path.insert(0, {str(Path(__file__).parent / "author")!r})
import pullback as pb
pb.operator("shiplib::multiply(a[...], b[...]) -> c[...] = a*b")
try:
    torch.ops.load_library({str(library)!r})
except OSError as error:
    print(error.__cause__)
assert not hasattr(torch.ops.shiplib, "repeat"), "half of it was registered"
"""
    ran = command("-c", code, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "defined-already [PB730]: this library registers shiplib::multiply" in ran.stdout


@pytest.mark.thorough
def test_a_definition_after_the_library_is_refused(library: Path, tmp_path: Path) -> None:
    code = f"""
import torch
torch.ops.load_library({str(library)!r})
import pullback as pb
pb.operator("shiplib::multiply(a[...], b[...]) -> c[...] = a*b")
"""
    ran = command("-c", code, folder=tmp_path)
    assert "foreign-operator [PB354]" in ran.stderr


@pytest.mark.thorough
def test_a_cpu_that_lacks_instructions_is_told_so(library: Path, tmp_path: Path) -> None:
    # First comes the list of what is needed, then what it is compared with.
    newer = library.read_bytes().replace(b"\0bmi2\0", b"\0bmi9\0", 1)
    (tmp_path / "newer.so").write_bytes(newer)
    ran = command("-c", "import torch; torch.ops.load_library('./newer.so')", folder=tmp_path)
    assert "instructions-missing [PB737]" in ran.stderr
    assert "bmi9" in ran.stderr
