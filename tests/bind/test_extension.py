"""`pb.source` without `call=`: C++ that includes PyTorch's headers."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

import pullback as pb
from pullback.bind import extension, runtime
from pullback.bind.build import build_of
from pullback.kernels import cache, toolchain
from tests.forked import in_fork

pytestmark = pytest.mark.compiler
fresh = itertools.count()

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
# All compile with these, so that they share a precompiled header.
QUICK = ["-O0"]
# The first is read in a second and is not precompiled. Line 6 registers an operator.
LIBRARIES = {
    "torch/csrc/stable/library.h": """#include <torch/csrc/stable/library.h>
#include "shift.h"

void shift(StableIValue* stack, uint64_t, uint64_t) {{ stack[0] += SHIFT; }}

STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{
  m.def("shift(int x) -> int");
  m.impl("shift", &shift);
}}
""",
    "torch/library.h": """#include <torch/library.h>
#include "shift.h"

int64_t shift(int64_t x) {{ return x + SHIFT; }}

TORCH_LIBRARY({namespace}, m) {{
  m.def("shift(int x) -> int", &shift);
}}
""",
}
LIGHT, FULL = LIBRARIES
# A Python module by Python's own header alone. Line 6 makes it.
COUNTER = """#include <Python.h>
#include "number.h"

static PyModuleDef about = {PyModuleDef_HEAD_INIT, "counter", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_counter() {
  PyObject* made = PyModule_Create(&about);
  PyModule_AddIntConstant(made, "number", NUMBER);
  return made;
}
"""
# As in PyTorch's own example, without the macro of Python that makes it visible.
BY_HAND = COUNTER.replace(
    "PyMODINIT_FUNC PyInit_counter()", 'extern "C" PyObject *PyInit_counter(void)'
)
OF_PYBIND11 = """#include <pybind11/pybind11.h>
#include "number.h"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.attr("number") = NUMBER; }
"""
MODULE = """#include <torch/library.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>

struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grad) {
    return {2 * grad[0] * ctx->get_saved_variables()[0]};
  }
};

at::Tensor square(const at::Tensor& x) { return Square::apply(x); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("square", &square); }
"""


def write(path: Path, text: str) -> Path:
    """Write a source as it most often is: older than the build."""
    path.write_text(text)
    past = time.time() - 10
    os.utime(path, (past, past))
    return path


def library_in(folder: Path, header: str) -> tuple[Path, str]:
    """Write an extension of a namespace that no other test has."""
    namespace = f"extension_{os.getpid()}_{next(fresh)}"
    write(folder / "shift.h", "#define SHIFT 1\n")
    return write(folder / "ops.cpp", LIBRARIES[header].format(namespace=namespace)), namespace


def counter_in(folder: Path, text: str = COUNTER) -> Path:
    """Write an extension that is a Python module."""
    write(folder / "number.h", "#define NUMBER 1\n")
    return write(folder / "counter.cpp", text)


def shifted(namespace: str) -> int:
    """Return what an operator makes of 0."""
    return getattr(torch.ops, namespace).shift(0)


def elsewhere(file: Path, namespace: str) -> tuple[int, bool]:
    """Return what the extension gives in another process, and whether it was compiled there."""

    def load() -> None:
        assert pb.source(file, flags=QUICK).operators == (f"{namespace}::shift",)
        print(shifted(namespace))  # noqa: T201

    done = in_fork(load, folder=file.parent)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), "compiling" in done.stderr


def code_of(*files: str | Path, **options: Any) -> str:
    with pytest.raises(pb.PullbackError) as caught:
        pb.source(*files, **{"flags": QUICK, **options})
    return caught.value.finding.code


@pytest.fixture(scope="module", params=[LIGHT, pytest.param(FULL, marks=pytest.mark.thorough)])
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """An extension that another process has compiled, and its namespace."""
    made = library_in(tmp_path_factory.mktemp("library"), request.param)
    assert elsewhere(*made) == (1, True)
    return made


def test_an_extension_is_compiled_once_and_registers_its_operators(
    library: tuple[Path, str],
) -> None:
    file, namespace = library

    def load() -> None:
        ops = pb.source(file, flags=QUICK)
        assert ops.operators == (f"{namespace}::shift",)
        assert repr(ops) == f"<extension {namespace}::shift>"
        assert shifted(namespace) == 1
        assert pb.source(file, flags=QUICK) is ops

    done = in_fork(load, folder=file.parent)
    assert (done.returncode, done.stderr) == (0, "")
    plan = extension.plan_of(build_of([file], str(file.parent), QUICK))
    assert bool(extension.precompile_headers(plan)) == (FULL in file.read_text())


def test_a_change_is_noticed_and_needs_a_new_process(library: tuple[Path, str]) -> None:
    file, namespace = library
    full = FULL in file.read_text()
    if not full and RELEASE < (2, 13):
        pytest.skip("this PyTorch has no word of what is wrong")
    header = file.with_name("shift.h")
    old, new = header.read_text(), "#define SHIFT 2\n"

    def change() -> None:
        ops = pb.source(file, flags=QUICK)
        write(header, new)
        with pytest.raises(pb.PullbackError, match="restart it") as caught:
            pb.source(file, flags=QUICK)
        assert caught.value.finding.code == "PB214"
        if full:
            assert dict(caught.value.finding.evidence)["first_at"] == f"{file}:6"
        # The first one is still here.
        assert shifted(namespace) == 1
        write(header, old)
        assert pb.source(file, flags=QUICK) is ops

    done = in_fork(change, folder=file.parent)
    assert done.returncode == 0, done.stderr
    write(header, new)
    assert elsewhere(file, namespace) == (2, False)
    write(header, old)


@pytest.mark.thorough
def test_a_mistake_in_a_schema_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    file, _ = library_in(tmp_path, FULL)
    write(file, file.read_text().replace("x) -> int", "x -> int"))
    with pytest.raises(pb.PullbackError, match="expected") as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB215"


def test_what_a_library_throws_while_it_is_loaded_ends_nothing(tmp_path: Path) -> None:
    file = counter_in(tmp_path)
    thrown = '#include <stdexcept>\nint now = (throw std::runtime_error("not today"), 1);\n'
    write(file, file.read_text() + thrown)
    with pytest.raises(pb.PullbackError, match="reason: not today") as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB215"


def test_a_mistake_is_shown_at_the_authors_line(tmp_path: Path) -> None:
    file = counter_in(tmp_path)
    write(file, file.read_text().replace("(&about)", "(&abut)"))
    with pytest.raises(pb.PullbackError) as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB202"
    assert dict(caught.value.finding.evidence)["at"].startswith(f"{file}:6:")


def test_text_and_files_make_one_library(tmp_path: Path) -> None:
    file = counter_in(tmp_path)
    write(tmp_path / "number.h", "int number();\n#define NUMBER number()\n")
    assert code_of(file) == "PB206"
    assert (
        pb.source("#include <Python.h>\nint number() { return 7; }", file, flags=QUICK).number == 7
    )


@pytest.mark.parametrize(
    "text", [COUNTER, BY_HAND, pytest.param(OF_PYBIND11, marks=pytest.mark.thorough)]
)
def test_a_changed_python_module_is_loaded_beside_the_old_one(tmp_path: Path, text: str) -> None:
    file = counter_in(tmp_path, text)
    first = pb.source(file, flags=QUICK)
    assert pb.source(file, flags=QUICK) is first
    write(tmp_path / "number.h", "#define NUMBER 2\n")
    assert pb.source(file, flags=QUICK).number == 2
    assert first.number == 1


def written_by_compilers() -> set[Path]:
    """Return files beside PyTorch's headers that are no headers."""
    return {path for path in (runtime.ROOT / "include").rglob("*.[gp]ch")}


@pytest.fixture
def precompiled(monkeypatch: pytest.MonkeyPatch) -> str:
    """A small header that stands for those that are precompiled."""
    name = "torch/headeronly/macros/Macros.h"
    monkeypatch.setattr(extension, "PRECOMPILED", (*extension.PRECOMPILED, name))
    return name


def test_the_precompiled_header_is_what_the_compiler_reads(
    tmp_path: Path, precompiled: str
) -> None:
    before = written_by_compilers()
    file = counter_in(tmp_path, f"#include <{precompiled}>\n{COUNTER}")
    assert pb.source(file, flags=QUICK).number == 1
    plan = extension.plan_of(build_of([file], str(tmp_path), QUICK))
    (made,) = extension.precompile_headers(plan).values()
    text = made.read_text()
    assert text == f"#include <{precompiled}>\n"
    assert cache.folder() in made.parents
    # Who reads the text instead of what was made of it stops here.
    made.write_text("#error read as text\n")
    try:
        write(tmp_path / "number.h", "#define NUMBER 2\n")
        assert pb.source(file, flags=QUICK).number == 2
    finally:
        made.write_text(text)
    # PyTorch's folder is as it was.
    assert written_by_compilers() == before


def test_without_a_precompiled_header_it_compiles_all_the_same(
    tmp_path: Path, precompiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, notes = tmp_path / "fails-g++", tmp_path / "notes"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *c++-header*) echo x >> {notes}; exit 1;; esac\n'
        f'exec {toolchain.find("c++").path} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    file = counter_in(tmp_path, f"#include <{precompiled}>\n{COUNTER}")
    assert pb.source(file, flags=QUICK).number == 1
    # It is not tried again with each edit.
    assert (
        extension.precompile_headers(extension.plan_of(build_of([file], str(tmp_path), QUICK)))
        == {}
    )
    assert notes.read_text() == "x\n"


def test_what_cannot_be_an_extension_is_refused(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.cpp", "void f(float* y) {}")
    cuda = write(tmp_path / "f.cu", "#include <torch/extension.h>")
    assert code_of(tmp_path / "missing.cpp") == "PB203"
    assert code_of(plain) == "PB211"
    assert code_of(cuda, dtypes=["float32"]) == "PB211"
    assert code_of("") == "PB203"
    assert code_of(plain, plain, call="f(y)") == "PB212"


def test_folders_in_flags_are_the_callers_and_libraries_follow_the_objects(tmp_path: Path) -> None:
    file = write(tmp_path / "a.cpp", "#include <torch/library.h>")
    given = ["-Iinclude", "-I", "/opt/include", "-DX", "-Llib", "-lm", "-Wl,-rpath,/opt"]
    plan = extension.plan_of(build_of([file], str(tmp_path), given))
    compiling = ["-I", str(tmp_path / "include"), "-I", "/opt/include", "-DX"]
    assert list(plan.flags[-6:-1]) == compiling
    assert list(plan.link[-4:]) == ["-L", str(tmp_path / "lib"), "-lm", "-Wl,-rpath,/opt"]


@pytest.mark.thorough
def test_a_function_of_autograd_in_a_python_module(tmp_path: Path) -> None:
    # Not torch/extension.h: precompiling that takes half a minute and 800 MB.
    file = write(tmp_path / "square.cpp", MODULE)
    module = pb.source(file, flags=QUICK)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(module.square(x), x * x)
    assert gradcheck(module.square, (x,))
