"""Whole extensions in CUDA, built for the CPU: `pb.source` without `call=`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import pullback as pb
from pullback.bind import extension_cuda, extension_cuda_headers
from pullback.bind.build import Build
from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.kernels import cache, precompile
from pullback.kernels import compile as compilation
from pullback.kernels.cuda_on_cpu import library, mode
from pullback.kernels.cuda_on_cpu.mode import Check, Mode

pytestmark = pytest.mark.compiler
HERE = Path(__file__).parent / "cuda_extension"

FILES = {
    # Read in a few seconds, and without a precompiled header.
    "operators": (HERE / "operators.cu", HERE / "shift.cu"),
    # The first of a session precompiles <torch/extension.h>, which takes half a minute.
    "bindings": (HERE / "bindings.cpp", HERE / "kernels.cu"),
}


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=pytest.mark.thorough) for name in FILES],
)
def ops(request: pytest.FixtureRequest) -> Any:
    """The extension beside this file: operators, or a Python module."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CudaOnCpuNotice)
        made = load(request.param)
    said = [str(each.message) for each in caught if each.category is CudaOnCpuNotice]
    assert said == [f"{request.param}: its CUDA kernels run on the CPU, for want of a GPU"]
    if request.param == "bindings":
        return made
    assert set(made.operators) == {f"cuda_extension::{name}" for name in OPERATORS}
    return torch.ops.cuda_extension


OPERATORS = ("lltm", "sum_rows", "count", "twice", "seed", "fault", "shift")


def load(name: str, *flags: str) -> Any:
    flags = flags or (f"-I{HERE / 'include'}",)
    return pb.source(*FILES[name], flags=flags, precompiled=name == "bindings")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_accessors_and_dispatch(ops: Any, seed: int, dtype: torch.dtype) -> None:
    gates, old_cell = torch.randn(3, 3, 70, dtype=dtype), torch.randn(3, 70, dtype=dtype)
    new_h, new_cell = ops.lltm(gates, old_cell)
    given, put_out, candidate = gates.unbind(1)
    expected = old_cell + candidate.tanh() * given.sigmoid()
    torch.testing.assert_close(new_cell, expected)
    torch.testing.assert_close(new_h, expected.tanh() * put_out.sigmoid())


def test_shared_memory_barriers_shuffles_and_streams(ops: Any, seed: int) -> None:
    x = torch.randn(5, 200)
    torch.testing.assert_close(ops.sum_rows(x), x.sum(1))


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    ],
)
def test_atomics_on_every_dtype(ops: Any, seed: int, dtype: torch.dtype) -> None:
    index = torch.randint(0, 7, (500,))
    counts = ops.count(index, torch.zeros(7, dtype=dtype))
    assert torch.equal(counts.long(), torch.bincount(index, minlength=7))


def test_half_of_cuda_is_half_of_pytorch(ops: Any, seed: int) -> None:
    x = torch.randn(40).half()
    assert torch.equal(ops.twice(x), x + x)


def test_random_seeds_follow_the_generator(ops: Any) -> None:
    torch.manual_seed(5)
    first, second = ops.seed().item(), ops.seed().item()
    assert first != second
    torch.manual_seed(5)
    assert ops.seed().item() == first
    own = torch.Generator().manual_seed(5)
    assert ops.seed(own).item() == first


FAULTS = {
    0: (4, r"PB225.*fault_kernel"),
    1: (1, r"PB228.*ldmatrix"),
    2: (4, r"PB227.*threadIdx.x < 3"),
    3: (2048, r"invalid configuration argument"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_what_goes_wrong_in_a_kernel_raises_and_the_process_lives(ops: Any, kind: int) -> None:
    threads, said = FAULTS[kind]
    with pytest.raises(RuntimeError, match=f"(?s){said}"):
        ops.fault(kind, threads)
    x = torch.ones(2, 3)
    assert torch.equal(ops.sum_rows(x), x.sum(1))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_the_same_files_give_the_same_module(name: str) -> None:
    assert load(name) is load(name, "-I", str(HERE / "include"))


@pytest.mark.thorough
@pytest.mark.parametrize("ops", ["operators"], indirect=True)
def test_operators_registered_for_both_devices_are_those_for_cuda(ops: Any) -> None:
    assert torch.equal(ops.shift(torch.zeros(40)), torch.ones(40))


def test_a_mistake_is_shown_in_the_authors_file(tmp_path: Path) -> None:
    file = tmp_path / "ops.cu"
    file.write_text("#include <Python.h>\n\n__global__ void k(float* x) { x[j] = 1; }\n")
    with pytest.raises(pb.PullbackError, match="'j' was not declared") as caught:
        pb.source(file)
    assert caught.value.finding.code == "PB202"
    assert dict(caught.value.finding.evidence)["at"].startswith(f"{file}:3:")


def plan(*flags: str, **linking: Any) -> Any:
    files = (HERE / "bindings.cpp", HERE / "kernels.cu")
    build = Build(name="a.b", files=files, folder="/", compiling=flags, **linking)
    return extension_cuda.plan_on_cpu(build, Mode())


def test_extensions_share_a_precompiled_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "precompile_header", lambda plan, _: cache.folder() / plan.key)
    one = extension_cuda_headers.precompile_headers(
        plan("-I/opt/a", "-DWITH_CUDA", "-O3", "-std=c++17")
    )
    other = extension_cuda_headers.precompile_headers(
        plan("-I", "/opt/b", "-DN=4", "--use_fast_math", "-lineinfo")
    )
    assert one == other
    assert len(one) == 2  # for the C++ file and the CUDA file


@pytest.mark.parametrize("check", ["none", "race", "memory"])
def test_a_check_has_a_precompiled_header_that_it_watches(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(precompile, "precompile_header", lambda plan, _: asked.append(plan))
    monkeypatch.setattr(library, "runtime", lambda *_: Path("runtime.so"))
    monkeypatch.setattr(compilation, "compile", lambda plan, *, announce, ahead: ahead())
    build = Build(name="a", files=(HERE / "kernels.cu",), folder="/")
    with mode.set_mode(Mode(check=check)):
        extension_cuda.compile(build)
    (plan,) = asked
    assert set(library.SANITIZE[check]) <= set(plan.flags)
    assert ("-fsanitize=thread" in plan.flags) == (check == "race")


@pytest.mark.thorough
def test_the_precompiled_header_is_in_the_cache() -> None:
    (header,) = set(extension_cuda_headers.precompile_headers(plan()).values())
    assert header.name == "precompiled.h"
    assert cache.folder() in header.parents


def test_flags_of_nvcc_are_taken_where_they_mean_something() -> None:
    given = ["-gencode", "arch=compute_80,code=sm_80", "-Xcompiler", "-fopenmp", "-DA=1"]
    made = plan(*given, "-std=c++14", linking=("-lcudart", "-lm"))
    assert made.flags[-3:] == ("-fopenmp", "-DA=1", "-DTORCH_EXTENSION_NAME=b")
    assert "-lcudart" not in made.link
    assert made.link[-1] == "-lm"


BEGINNINGS = {
    "#include <cuda.h>\n#include <torch/extension.h>": True,
    '#include "own.h"\n': True,
    "#define THREADS 512\n#include <ATen/ATen.h>": True,
    "#define TORCH_ASSERT_NO_OPERATORS\n#include <ATen/ATen.h>": False,
    "#undef NDEBUG\n#include <torch/extension.h>": False,
    "// #include <torch/extension.h>\n#include <cuda.h>": None,
}


@pytest.mark.parametrize("text", BEGINNINGS)
def test_macros_that_pytorch_asks_for_keep_a_file_from_what_is_precompiled(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "own.h").write_text("#ifndef OWN_H\n#define OWN_H\n#include <torch/torch.h>")
    found = extension_cuda_headers.begins_with_torch(text, tmp_path, [], set())
    assert found == BEGINNINGS[text]
