"""Edit to result: change one line of a kernel, call it again."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

import pullback as pb
from benchmarks.measure import Figure, figure, show
from pullback.define.parse import parse
from pullback.kernels import compile as compilation
from pullback.kernels import glue

CPP = """
void scale(float* y, const float* x, long n) {{
  for (long i = 0; i < n; ++i) y[i] = {k} * x[i];
}}
"""
CUDA = """
__global__ void scale_kernel(float* y, const float* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = {k} * x[i];
}}
void scale(float* y, const float* x, int n) {{ scale_kernel<<<(n + 255) / 256, 256>>>(y, x, n); }}
"""
TORCH = """
#include <torch/extension.h>
{kernel}
at::Tensor call(const at::Tensor& x) {{
  auto y = at::empty_like(x);
  scale(y.mutable_data_ptr<float>(), x.const_data_ptr<float>(), x.numel());
  return y;
}}
"""
EXTENSION = TORCH + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("call", &call); }}\n'
TVM = """
{kernel}
void call(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {{
  scale(static_cast<float*>(y.data_ptr()), static_cast<float*>(x.data_ptr()), x.shape()[0]);
}}
"""
LINE = "bench::scale(x[n]) -> y[n]"
CALL = "scale(y, x, n)"
# Never a constant that an earlier run has compiled: every edit is new to every cache.
numbers = itertools.count(int(time.time()) % 100_000)
x = torch.ones(16)

Edit = Callable[[int], torch.Tensor]
Candidate = tuple[Callable[[], Edit], bool, int]  # how to start, whether it runs here, how often


def with_pullback(folder: Path) -> Edit:
    """Edit the file and reload."""
    file = folder / "scale.cpp"
    file.write_text(CPP.format(k=1))
    operator = pb.operator(LINE, cpu=pb.source(file, call=CALL))

    def edit(k: int) -> torch.Tensor:
        file.write_text(CPP.format(k=k))
        operator.reload()
        return operator(x)

    return edit


def with_extension(folder: Path) -> Edit:
    """The same source as cpp_extension's: what is edited includes PyTorch's headers."""
    file = folder / "extension.cpp"

    def edit(k: int) -> torch.Tensor:
        file.write_text(EXTENSION.replace("{kernel}", CPP).format(k=k))
        return pb.source(file).call(x)

    return edit


def compile_cuda(folder: Path) -> Edit:
    """What pullback does with a .cu where there is no GPU: compile and load."""
    file = folder / "scale.cu"

    def edit(k: int) -> torch.Tensor:
        file.write_text(CUDA.format(k=k))
        plan = glue.plan_of(parse(LINE), pb.source(file, call=CALL), "cuda", "sm_90")
        compilation.open_library(compilation.compile(plan))
        return x

    return edit


def cuda_on_cpu(folder: Path) -> Edit:
    """A .cu where there is no GPU: compiled for the CPU, and called."""
    file = folder / "on_cpu.cu"
    file.write_text(CUDA.format(k=1))
    operator = pb.operator("bench::on_cpu(x[n]) -> y[n]", cuda=pb.source(file, call=CALL))

    def edit(k: int) -> torch.Tensor:
        file.write_text(CUDA.format(k=k))
        operator.reload()
        return operator(x)

    return edit


def cuda_extension_on_cpu(folder: Path) -> Edit:
    """The same in a file that includes PyTorch's headers."""
    file = folder / "extension.cu"

    def edit(k: int) -> torch.Tensor:
        file.write_text(EXTENSION.replace("{kernel}", CUDA).format(k=k))
        return pb.source(file).call(x)

    return edit


def with_torch(*, precompiled: bool) -> Edit:
    """cpp_extension.load_inline, with a precompiled header or without."""

    def edit(k: int) -> torch.Tensor:
        source = TORCH.format(kernel=CPP.format(k=k))
        options: dict[str, Any] = {"use_pch": True} if precompiled else {}
        name = f"pullback_bench_scale_{k}"
        module: Any = cpp_extension.load_inline(name, source, functions=["call"], **options)
        shutil.rmtree(cpp_extension._get_build_directory(name, verbose=False))
        return module.call(x)

    return edit


def with_tvm(kernel: str, argument: str) -> Edit:
    """tvm_ffi.cpp.load_inline; a CUDA source is compiled, and not run without a GPU."""
    import tvm_ffi.cpp  # noqa: PLC0415  (optional)

    # Without a GPU tvm-ffi cannot ask it; the same as pullback compiles for here.
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0")

    def edit(k: int) -> torch.Tensor:
        source = TVM.format(kernel=kernel.format(k=k))
        sources = {argument: source}
        module: Any = tvm_ffi.cpp.load_inline(f"scale_{k}", functions=["call"], **sources)
        y = torch.empty_like(x)
        if argument == "cpp_sources":
            module.call(x, y)
        return y

    return edit


def remove_precompiled_header() -> None:
    """Remove what `use_pch` writes into PyTorch's own folder."""
    for include in cpp_extension.include_paths():
        Path(include, "torch", "extension.h.gch").unlink(missing_ok=True)


def seconds(edit: Edit, *, times: int, check: bool) -> Figure:
    """Time edits; the first one, which may warm something up, is not counted."""
    values: list[float] = []
    for _ in range(times + 1):
        k = next(numbers)
        start = time.perf_counter()
        y = edit(k)
        values.append(time.perf_counter() - start)
        if check:
            assert torch.equal(y, k * x)
    return figure(values[1:])


def candidates(folder: Path) -> dict[str, Candidate]:
    """Return what is measured."""
    return {
        "pullback, C++": (lambda: with_pullback(folder), True, 9),
        "tvm_ffi.cpp.load_inline, C++": (lambda: with_tvm(CPP, "cpp_sources"), True, 3),
        # Without the precompiled header first: the other one leaves it beside PyTorch's headers.
        "cpp_extension.load_inline": (lambda: with_torch(precompiled=False), True, 1),
        "cpp_extension.load_inline, precompiled header": (
            lambda: with_torch(precompiled=True),
            True,
            1,
        ),
        "pullback, a source that includes torch/extension.h": (
            lambda: with_extension(folder),
            True,
            1,
        ),
        "pullback, CUDA on the CPU": (lambda: cuda_on_cpu(folder), True, 5),
        "pullback, CUDA on the CPU, with torch/extension.h": (
            lambda: cuda_extension_on_cpu(folder),
            True,
            2,
        ),
        "pullback, CUDA, compiled only": (lambda: compile_cuda(folder), False, 5),
        "tvm_ffi.cpp.load_inline, CUDA, compiled only": (
            lambda: with_tvm(CUDA, "cuda_sources"),
            False,
            1,
        ),
    }


def main(only: str = "") -> dict[str, Figure]:
    """Print the table; return the figures in seconds.

    Args:
        only: measure the candidates whose names have this in them.
    """
    folder = Path(tempfile.mkdtemp(prefix="pullback-bench-"))
    figures: dict[str, Figure] = {}
    absent: dict[str, str] = {}
    for name, (make, check, times) in candidates(folder).items():
        if only not in name:
            continue
        try:
            figures[name] = seconds(make(), times=times, check=check)
        except Exception as error:  # a peer that is missing must not end the others' run
            absent[name] = str(error).strip().splitlines()[0][:90]
    shutil.rmtree(folder)
    remove_precompiled_header()
    base = figures["pullback, C++"].median
    show(
        "Edit to result: one line of a kernel changed, the call's new result",
        ["", "seconds", "× pullback, C++"],
        [[name, str(f), f"{f.median / base:.1f}"] for name, f in figures.items()]
        + [[name, "absent", ""] for name in absent],
        [
            f"aim: C++ ≤ 0.4 s: {base:.2f}",
            "cpp_extension cannot build CUDA with a PyTorch that is built without it",
            *(f"absent: {name}: {reason}" for name, reason in absent.items()),
        ],
    )
    return figures


if __name__ == "__main__":
    main()
