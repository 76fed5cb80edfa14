"""`pb.source` without `call=`: C++ that includes PyTorch's headers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

import pullback as pb
from pullback.bind import extension, runtime
from pullback.bind.build import build_of
from pullback.kernels import cache, precompile, toolchain

pytestmark = pytest.mark.compiler
fresh = itertools.count()

# All compile with these, so that they share a precompiled header.
QUICK = ["-O0"]
# Of PyTorch's headers the one that is read in the least time.
LIBRARY = """#include <torch/library.h>
#include "shift.h"

at::Tensor shift(const at::Tensor& x) {{ return x.add(SHIFT); }}

TORCH_LIBRARY({namespace}, m) {{
  m.def("shift(Tensor x) -> Tensor", &shift);
}}
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
COUNTER = """#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("number", [] {{ return {}; }}); }}
"""
# What another process runs.
OTHER = """\
import pullback as pb, torch
extension = pb.source({file!r}, flags=["-O0"])
print(*extension.operators, torch.ops.{namespace}.shift(torch.zeros(1)).item())
"""


def write(path: Path, text: str) -> Path:
    """Write a source as it most often is: older than the build."""
    path.write_text(text)
    past = time.time() - 10
    os.utime(path, (past, past))
    return path


def library_in(folder: Path, text: str = LIBRARY) -> tuple[Path, str]:
    """Write an extension of a namespace that no other test has."""
    namespace = f"extension_{os.getpid()}_{next(fresh)}"
    write(folder / "shift.h", "#define SHIFT 1\n")
    return write(folder / "ops.cpp", text.format(namespace=namespace)), namespace


def in_another_process(file: Path, namespace: str) -> tuple[str, bool]:
    """Return what the extension gives in another process, and whether it was compiled there."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER.format(file=str(file), namespace=namespace)],
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip(), "compiling" in done.stderr


def code_of(*files: str | Path, **options: Any) -> str:
    with pytest.raises(pb.PullbackError) as caught:
        pb.source(*files, **{"flags": QUICK, **options})
    return caught.value.finding.code


def written_by_compilers() -> set[Path]:
    """Return files beside PyTorch's headers that are no headers."""
    return {path for path in (runtime.ROOT / "include").rglob("*.[gp]ch")}


def test_an_extension_registers_its_operators_and_is_loaded_once(tmp_path: Path) -> None:
    before = written_by_compilers()
    file, namespace = library_in(tmp_path)
    ops = pb.source(file, flags=QUICK)
    assert ops.operators == (f"{namespace}::shift",)
    assert repr(ops) == f"<extension {namespace}::shift>"
    x = torch.zeros(2, requires_grad=True)
    getattr(torch.ops, namespace).shift(x).sum().backward()
    assert x.grad is not None
    assert pb.source(file, flags=QUICK) is ops
    assert in_another_process(file, namespace) == (f"{namespace}::shift 1.0", False)
    # Its header is in the cache, and PyTorch's folder is as it was.
    assert list(cache.folder().glob("*/precompiled.h.gch"))
    assert written_by_compilers() == before


@pytest.mark.parametrize("changed", ["ops.cpp", "shift.h"])
def test_a_change_is_noticed_and_needs_a_new_process(tmp_path: Path, changed: str) -> None:
    file, namespace = library_in(tmp_path)
    ops = pb.source(file, flags=QUICK)
    old = (tmp_path / changed).read_text()
    write(tmp_path / changed, old.replace("SHIFT)", "SHIFT + 1)").replace("SHIFT 1", "SHIFT 2"))
    with pytest.raises(pb.PullbackError, match="restart it") as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB214"
    assert dict(caught.value.finding.evidence)["first_at"] == f"{file}:6"
    # The first one is still here, and another process has the new one without compiling.
    assert getattr(torch.ops, namespace).shift(torch.zeros(1)) == 1
    assert in_another_process(file, namespace) == (f"{namespace}::shift 2.0", False)
    write(tmp_path / changed, old)
    assert pb.source(file, flags=QUICK) is ops


def test_a_mistake_in_a_schema_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    file, _ = library_in(tmp_path, LIBRARY.replace("x) -> Tensor", "x -> Tensor"))
    with pytest.raises(pb.PullbackError, match="expected") as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB215"


def test_a_mistake_is_shown_at_the_authors_line(tmp_path: Path) -> None:
    file, _ = library_in(tmp_path, LIBRARY.replace("x.add", "x.ad"))
    with pytest.raises(pb.PullbackError) as caught:
        pb.source(file, flags=QUICK)
    assert caught.value.finding.code == "PB202"
    assert dict(caught.value.finding.evidence)["at"].startswith(f"{file}:4:")


def test_text_and_files_make_one_library(tmp_path: Path) -> None:
    file, namespace = library_in(tmp_path)
    write(file, file.read_text().replace("{ return x.add(SHIFT); }", ";"))
    assert code_of(file) == "PB206"
    rest = "#include <ATen/core/Tensor.h>\nat::Tensor shift(const at::Tensor& x) { return x; }"
    ops = pb.source(rest, file, flags=QUICK)
    assert ops.operators == (f"{namespace}::shift",)


def test_the_precompiled_header_is_what_the_compiler_reads(tmp_path: Path) -> None:
    file, _ = library_in(tmp_path)
    pb.source(file, flags=QUICK)
    plan = extension.plan_of(build_of([file], str(tmp_path), QUICK))
    (header,) = extension.headers(plan).values()
    text = header.read_text()
    assert text == "#include <torch/library.h>\n"
    # Who reads the text instead of what was made of it stops here.
    header.write_text("#error read as text\n")
    try:
        write(file, file.read_text().replace("shift(Tensor", "shift2(Tensor"))
        assert code_of(file) == "PB214"
    finally:
        header.write_text(text)


def test_without_a_precompiled_header_it_compiles_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, notes = tmp_path / "fails-g++", tmp_path / "notes"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *c++-header*) echo x >> {notes}; exit 1;; esac\n'
        f'exec {toolchain.find("c++").path} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    file, namespace = library_in(tmp_path)
    assert pb.source(file, flags=QUICK).operators == (f"{namespace}::shift",)
    # It is not tried again with each edit.
    assert extension.headers(extension.plan_of(build_of([file], str(tmp_path), QUICK))) == {}
    assert notes.read_text() == "x\n"


def test_a_header_that_changed_is_precompiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "big.h", "#pragma once\n#define NUMBER 1\n")
    compiler = toolchain.find("c++")
    said: list[str] = []

    def announce(line: str) -> AbstractContextManager[None]:
        said.append(line)
        return nullcontext()

    plans = [
        precompile.plan_of(["big.h"], compiler, ["-I", str(tmp_path), f"-DN={n}"], "test")
        for n in range(precompile.MOST_KEPT + 1)
    ]
    first = precompile.header(plans[0], announce)
    assert precompile.header(plans[0], announce) == first
    assert len(said) == 1
    (tmp_path / "big.h").write_text("#pragma once\n#define NUMBER 22\n")
    assert precompile.header(plans[0], announce) == first
    assert len(said) == 2
    # The one that was used longest ago makes room.
    for plan in plans[1:]:
        precompile.header(plan, announce)
    made = {path.parent.name for path in cache.folder().glob("*/precompiled.h.gch")}
    assert made == {plan.key for plan in plans[1:]}


BEGINNINGS = {
    "#include <torch/library.h>": ["torch/library.h"],
    "// why\n#pragma once\n#include <cmath>\n#include <torch/torch.h>": ["torch/torch.h"],
    '#include "torch/torch.h"\n#include <ATen/ATen.h>': ["torch/torch.h", "ATen/ATen.h"],
    '#include "guarded.h"': ["torch/library.h"],
    "#include <torch/library.h>\n#define N 3\n#include <ATen/ATen.h>": ["torch/library.h"],
    "#define N 3\n#include <torch/library.h>": None,
    '#include "settings.h"\n#include <torch/library.h>': None,
    "#include <mine/settings.h>\n#include <torch/library.h>": None,
    "#if 1\n#include <torch/library.h>\n#endif": None,
    "#include <cmath>\nint three() { return 3; }": None,
}


@pytest.mark.parametrize("text", BEGINNINGS)
def test_only_what_stands_before_any_macro_is_precompiled(tmp_path: Path, text: str) -> None:
    guard = "#ifndef GUARDED_H\n#define GUARDED_H\n{}\n#endif\n"
    write(tmp_path / "guarded.h", guard.format("#include <torch/library.h>"))
    write(tmp_path / "settings.h", guard.format("#define NDEBUG"))
    found = precompile.leading(tmp_path / "a.cpp", text, extension.PRECOMPILED.__contains__)
    assert found == BEGINNINGS[text]


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


def test_a_changed_python_module_is_loaded_beside_the_old_one(tmp_path: Path) -> None:
    file = write(tmp_path / "counter.cpp", COUNTER.format(1))
    first = pb.source(file, flags=QUICK)
    assert pb.source(file, flags=QUICK) is first
    write(file, COUNTER.format(2))
    assert pb.source(file, flags=QUICK).number() == 2
    assert first.number() == 1


@pytest.mark.slow
def test_a_function_of_autograd_in_a_python_module(tmp_path: Path) -> None:
    # Not torch/extension.h: precompiling that takes half a minute and 800 MB.
    file = write(tmp_path / "square.cpp", MODULE)
    module = pb.source(file, flags=QUICK)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(module.square(x), x * x)
    assert gradcheck(module.square, (x,))
