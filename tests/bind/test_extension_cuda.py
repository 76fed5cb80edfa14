"""Whole extensions in CUDA, built for the CPU: `pb.source` without `call=`."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import pullback as pb
from pullback.bind import extension_cuda, extension_cuda_headers
from pullback.bind.build import Build
from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.kernels import cache
from pullback.kernels.cuda_on_cpu.mode import Mode

pytestmark = pytest.mark.compiler
HERE = Path(__file__).parent / "cuda_extension"
fresh = itertools.count()

# Operators for both devices: of these the CUDA ones are to answer.
REGISTERED = """#include <torch/library.h>
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>

__global__ void shift_kernel(const float* x, float* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}}
at::Tensor shift_cuda(const at::Tensor& x) {{
  at::Tensor y = at::empty_like(x);
  shift_kernel<<<2, 32>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}}
at::Tensor shift_cpu(const at::Tensor& x) {{ return x + 100; }}

TORCH_LIBRARY({namespace}, m) {{ m.def("shift(Tensor x) -> Tensor"); }}
TORCH_LIBRARY_IMPL({namespace}, CUDA, m) {{ m.impl("shift", &shift_cuda); }}
TORCH_LIBRARY_IMPL({namespace}, CPU, m) {{ m.impl("shift", &shift_cpu); }}
"""


@pytest.fixture(scope="module")
def ops() -> Any:
    """The extension beside this file. The first of a session precompiles PyTorch's headers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CudaOnCpuNotice)
        module = pb.source(
            HERE / "bindings.cpp", HERE / "kernels.cu", flags=[f"-I{HERE / 'include'}"]
        )
    said = [str(each.message) for each in caught if each.category is CudaOnCpuNotice]
    assert said == ["bindings: its CUDA kernels run on the CPU, for want of a GPU"]
    return module


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


def test_the_same_files_give_the_same_module(ops: Any) -> None:
    files = (HERE / "bindings.cpp", HERE / "kernels.cu")
    assert pb.source(*files, flags=["-I", str(HERE / "include")]) is not None
    assert pb.source(*files, flags=[f"-I{HERE / 'include'}"]) is ops


def test_operators_registered_for_both_devices_are_those_for_cuda(tmp_path: Path) -> None:
    namespace = f"extension_cuda_{os.getpid()}_{next(fresh)}"
    file = tmp_path / "ops.cu"
    file.write_text(REGISTERED.format(namespace=namespace))
    with pytest.warns(CudaOnCpuNotice, match="ops: its CUDA kernels"):
        found = pb.source(file)
    assert found.operators == (f"{namespace}::shift",)
    assert torch.equal(getattr(torch.ops, namespace).shift(torch.zeros(40)), torch.ones(40))
    # A mistake is shown in the author's file.
    file.write_text(file.read_text().replace("x[i] + 1", "x[j] + 1"))
    with pytest.raises(pb.PullbackError, match="'j' was not declared") as caught:
        pb.source(file)
    assert caught.value.finding.code == "PB202"
    assert dict(caught.value.finding.evidence)["at"].startswith(f"{file}:7:")


def plan(*flags: str, **linking: Any) -> Any:
    files = (HERE / "bindings.cpp", HERE / "kernels.cu")
    build = Build(name="a.b", files=files, folder="/", compiling=flags, **linking)
    return extension_cuda.plan_on_cpu(build, Mode())


def test_extensions_share_a_precompiled_header(ops: Any) -> None:
    one = extension_cuda_headers.made(plan("-I/opt/a", "-DWITH_CUDA", "-O3", "-std=c++17"))
    other = extension_cuda_headers.made(
        plan("-I", "/opt/b", "-DN=4", "--use_fast_math", "-lineinfo")
    )
    assert one == other
    assert {header.name for header in one.values()} == {"precompiled.h"}
    assert cache.folder() in next(iter(one.values())).parents


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
