"""On which systems what was built will load: `pullback build --check`."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from pullback.cli import app
from pullback.deploy import audit, elf
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain

pytestmark = pytest.mark.compiler
HAS_NVCC = any(
    isinstance(seen, toolchain.Compiler) and seen.language == "cuda" for seen in toolchain.survey()
)


def compiled(folder: Path, text: str, *flags: str) -> Path:
    """Return a library of some code."""
    (folder / "code.cpp").write_text(text)
    library = folder / "made.so"
    command = ["g++", "-shared", "-fPIC", str(folder / "code.cpp"), "-o", str(library), *flags]
    subprocess.run(command, check=True)
    return library


def codes(path: Path) -> list[str]:
    return [finding.code for finding in audit.audit(path).findings]


@pytest.mark.thorough
def test_a_kernel_loads_with_any_pytorch_and_python(wheel: Path) -> None:
    rows = {row.library: row for row in audit.audit(wheel).rows}
    kernel = rows["sample-scale-cpu-baseline.so"]
    assert (kernel.torch, kernel.python, kernel.gpu) == ("any", "any", "none needed")
    assert "glibc" in kernel.system


@pytest.mark.thorough
def test_the_runtime_is_tied_to_one_pytorch_and_one_python(wheel: Path) -> None:
    report = audit.audit(wheel)
    (row,) = (row for row in report.rows if row.library.startswith("runtime-"))
    release = torch.__version__.partition("+")[0]
    assert row.torch.startswith(f"{release}: ")
    assert row.python.startswith("cpython-3")
    assert report.summary
    assert f"without a compiler: torch {release} cpython-3" in report.summary


@pytest.mark.thorough
def test_nothing_is_wrong_with_the_wheel(wheel: Path) -> None:
    assert codes(wheel) == []


@pytest.mark.thorough
def test_the_command_prints_a_table(wheel: Path) -> None:
    answer = CliRunner().invoke(app, ["build", str(wheel), "--check"])
    assert answer.exit_code == 0, answer.stderr
    head, *rows = [line.split("  ")[0] for line in answer.stdout.splitlines()]
    assert head == "library"
    assert "sample-scale-cpu-x86-64-v3.so" in rows


@pytest.mark.thorough
def test_vector_functions_are_those_of_any_pytorch(wheel: Path) -> None:
    binary_rows = {row.torch for row in audit.audit(wheel).rows if "bell" in row.library}
    assert binary_rows <= {"any", "any: its vector functions"}


def test_a_library_tied_to_pytorch_and_python_by_its_symbols(tmp_path: Path) -> None:
    text = """
    namespace c10 { void of_torch(int); }
    extern "C" void* PyLong_FromLong(long);
    extern "C" void* aoti_torch_stable();
    void f() { c10::of_torch(1); PyLong_FromLong(1); aoti_torch_stable(); }
    """
    (row,) = audit.audit(compiled(tmp_path, text)).rows
    assert row.torch == "the one it was compiled with: 1 C++ symbols"
    assert row.python == "the one it was compiled with: 1 symbols"


@pytest.mark.parametrize(
    "flag", ["-Wl,-rpath,/opt/mine", "-Wl,--disable-new-dtags,-rpath,/opt/mine"]
)
def test_a_search_path_is_found(tmp_path: Path, flag: str) -> None:
    library = compiled(tmp_path, "void f() {}", flag)
    assert codes(library) == ["PB718"]
    answer = CliRunner().invoke(app, ["build", str(library), "--check"])
    assert answer.exit_code == 1
    assert "search-path [PB718]" in answer.stdout


def test_a_search_path_beside_the_library_is_none(tmp_path: Path) -> None:
    assert codes(compiled(tmp_path, "void f() {}", "-Wl,-rpath,$ORIGIN/../lib")) == []


def test_a_folder_of_this_machine_in_its_texts_is_found(tmp_path: Path) -> None:
    text = 'const char* where() { return "/home/someone/project/table.bin"; }'
    assert codes(compiled(tmp_path, text)) == ["PB719"]


def test_another_library_that_it_needs_is_named(tmp_path: Path) -> None:
    (row,) = audit.audit(compiled(tmp_path, "void f() {}", "-Wl,--no-as-needed", "-lz")).rows
    assert row.system.endswith("with libz.so.1")


def test_versions_of_glibc_are_numbers() -> None:
    versions = ("GLIBC_2.4", "GLIBC_2.34", "GLIBCXX_3.4.30", "GLIBC_2.2.5")
    fields = dict.fromkeys(("needed", "missing", "defined", "search", "folders", "gpus"), ())
    assert elf.Binary(**fields, versions=versions, machine="x86_64").glibc == (2, 34)


def test_usual_gpus_without_code_are_named_once_for_libraries_that_are_alike() -> None:
    one, other = ("sm_90", "compute_90"), ("sm_75", "sm_80", "sm_90", "compute_90")
    found = list(audit.find_uncovered({"a.so": one, "b.so": one, "c.so": other}))
    assert [finding.code for finding in found] == ["PB720"]
    assert "a.so and 1 more" in found[0].message
    assert dict(found[0].evidence)["missing"] == "sm_75, sm_80, sm_86"


@pytest.mark.nvcc
@pytest.mark.thorough
@pytest.mark.skipif(not HAS_NVCC, reason="no CUDA toolkit here")
def test_code_for_gpus_is_read_from_the_library(tmp_path: Path) -> None:
    (tmp_path / "code.cu").write_text("__global__ void f(float* x) { *x = 1; }")
    nvcc = toolchain.find("cuda")
    library = tmp_path / "gpu.so"
    flags = ["-shared", "-Xcompiler", "-fPIC", "-gencode"]
    flags += ["arch=compute_90,code=[sm_90,compute_90]"]
    words = [*nvcc.command, *flags, str(tmp_path / "code.cu"), "-o", str(library)]
    subprocess.run(words, check=True)
    assert set(elf.read(library).gpus) == {"sm_90", "compute_90"}
    report = audit.audit(library)
    assert [finding.code for finding in report.findings] == ["PB720"]
    assert dict(report.findings[0].evidence)["missing"] == "sm_75, sm_80, sm_86"


@pytest.mark.thorough
def test_a_manifest_that_lists_more_than_there_is(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path / "wheel", format="zip")
    (manifest,) = tmp_path.rglob("manifest.json")
    rows = json.loads(manifest.read_text())
    rows["libraries"][0]["architectures"] = ["sm_80"]
    manifest.write_text(json.dumps(rows))
    assert codes(tmp_path / "wheel") == ["PB721"]


@pytest.mark.parametrize("name", ["text.so", "text.whl"])
def test_what_is_no_library(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text")
    with pytest.raises(PullbackError, match="not-a-library") as caught:
        audit.audit(tmp_path / name)
    assert caught.value.finding.code == "PB717"


def test_a_folder_without_libraries(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match="has no library in it"):
        audit.audit(tmp_path)


def test_without_pyelftools_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    library = compiled(tmp_path, "void f() {}")
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PullbackError, match="pip install") as caught:
        elf.read(library)
    assert caught.value.finding.code == "PB716"
