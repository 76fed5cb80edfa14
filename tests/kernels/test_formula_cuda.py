"""What nvcc and NVRTC make of a formula. No GPU is needed: nothing is launched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch

from pullback.bind.dense import elements
from pullback.bind.loops import compiled, gpu
from pullback.define.math.functions import HIDDEN, TABLE
from pullback.define.parse import parse
from pullback.diagnostic import PullbackError
from pullback.kernels import compile as compilation
from pullback.kernels import toolchain
from pullback.kernels.loops import pointwise_cuda
from pullback.kernels.loops.pointwise import Loop
from pullback.kernels.toolchain import Compiler
from tests.kernels.launches import HAVE, Number, answer, launch_of, loop_of

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif("c++" not in HAVE, reason="no C++ compiler here"),
]
NVRTC = gpu.find_nvrtc()
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="no NVRTC here")
no_nvcc = pytest.mark.skipif("cuda" not in HAVE, reason="no CUDA toolkit here")
ARCHITECTURE = "sm_90"

CODE = {name: row for name, row in TABLE.items() if not row.defined}
EVERY = sorted(CODE.keys() - {"where", "clamp", "polygamma", *HIDDEN})
# CUDA reduces a large angle in double arithmetic, where it takes a branch of its own.
ANGLES = {"sin", "cos", "tan", "sinc", "digamma", "lgamma"}


def sum_of(names: Sequence[str], arguments: str = "xy") -> str:
    """Return a formula that calls every function once."""
    terms = []
    for name in names:
        row = TABLE[name]
        call = f"{name}({', '.join(arguments[: len(row.parameters)])})"
        if row.kind == "logic":
            call = f"{name}({', '.join(['x < y', 'y < x'][: len(row.parameters)])})"
        terms.append(f"float({call})" if row.kind in ("test", "logic") else call)
    return " + ".join(terms)


LINE = "demo::every(x[...], y[...]) -> z[...] = "
ALL = LINE + f"{sum_of(EVERY)} + polygamma(2, x) + mish(x) + clamp(x, -1, y)"
CHEAP = [name for name in EVERY if name not in ANGLES]
NO_ANGLE = f"demo::cheap(x[...], y[...]) -> z[...] = {sum_of(CHEAP)} + mish(x) + clamp(x, -1, y)"
WHOLE = (
    "demo::whole(x[...], i[...]: int64, s[...]: int8, b[...]: bool, k: int, a: float) -> "
    "(y[...], v[...]: int64, c[...]: bool) = y = a * x + float(i // k) + float(b); "
    "v = i ** 3 % 7 + abs(s) * k; c = (i > 0) or b and not (x < inf)"
)


def ptx(loop: Loop, folder: Path) -> str:
    """Return what nvcc makes of a loop."""
    compiler = toolchain.find("cuda")
    (folder / "loop.cu").write_text(pointwise_cuda.generate_nvcc(loop))
    flags = [
        f"-arch={ARCHITECTURE}",
        "-std=c++20",
        "-O3",
        gpu.NOT_CONTRACTED,
        "-Werror=all-warnings",
    ]
    command = [*compiler.command, *flags, "-ptx", "loop.cu", "-o", "loop.ptx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "loop.ptx").read_text()


@pytest.mark.nvcc
@no_nvcc
def test_a_float_kernel_moves_vectors_and_has_no_double_arithmetic(tmp_path: Path) -> None:
    text = ptx(loop_of(NO_ANGLE), tmp_path)
    dense = text[text.index("pullback_dense(") : text.index("pullback_strided(")]
    assert len(re.findall(r"ld\.global\.v4", dense)) == 2
    assert len(re.findall(r"st\.global\.v4", dense)) == 1
    assert ".f64" not in text
    assert ".local" not in text


HALF = "demo::half(x[...], y[...]) -> z[...] = tanh(x) * y + sigmoid(x * y)"


@pytest.mark.nvcc
@no_nvcc
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.thorough)])
def test_a_backward_of_halves_moves_eight_at_once(dtype: str, tmp_path: Path) -> None:
    loop = loop_of(HALF, dtype, backward=True)
    assert len(loop.outputs) == 2
    text = ptx(loop, tmp_path)
    dense = text[text.index("pullback_dense(") : text.index("pullback_strided(")]
    assert len(re.findall(r"ld\.global\.v4\.[ub]32", dense)) >= len(loop.inputs)
    assert len(re.findall(r"st\.global\.v4\.[ub]32", dense)) >= 2
    assert ".f64" not in text


@pytest.mark.nvcc
@no_nvcc
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (HALF, "float32"),
        pytest.param(WHOLE, "float32", marks=pytest.mark.thorough),
        pytest.param(ALL, "float64", marks=pytest.mark.thorough),
    ],
)
def test_nvcc_makes_a_library_that_says_why_it_cannot_launch(text: str, dtype: str) -> None:
    loop = loop_of(text, dtype)
    compiled = gpu.compile_unit(gpu.unit_of(loop), ARCHITECTURE, toolchain.find("cuda"))
    if not torch.cuda.is_available():
        assert launched_nowhere(compiled, loop).startswith("2: CUDA: ")


@needs_nvrtc
@pytest.mark.parametrize(
    ("text", "dtype"),
    [(WHOLE, "float16"), pytest.param(ALL, "float32", marks=pytest.mark.thorough)],
)
def test_nvrtc_makes_a_library_that_says_why_it_cannot_launch(text: str, dtype: str) -> None:
    assert NVRTC
    loop = loop_of(text, dtype)
    compiled = gpu.compile_unit(gpu.unit_of(loop), ARCHITECTURE, NVRTC)
    assert gpu.compile_unit(gpu.unit_of(loop), ARCHITECTURE, NVRTC) == compiled
    if not torch.cuda.is_available():
        assert launched_nowhere(compiled, loop).startswith("2: CUDA: the NVIDIA driver is missing")


@needs_nvrtc
def test_what_nvrtc_refuses_is_told_in_its_words() -> None:
    assert NVRTC
    with pytest.raises(PullbackError, match="PB202") as caught:
        NVRTC.compile("demo-f-cuda", "__global__ void f(int* x) { *x = y; }", ARCHITECTURE)
    assert "demo-f-cuda.cu:1" in str(caught.value)
    assert 'identifier "y" is undefined' in str(caught.value)


def launched_nowhere(path: Path, loop: Loop) -> str:
    """Call a launcher where there is no GPU; return what it says."""
    x = torch.zeros(4, dtype=torch.float64)
    operands = len(loop.inputs) + len(loop.outputs)
    launch = launch_of([x] * operands, x.shape, [Number(real=1.0)] * 4)
    return answer(compilation.open_library(path), launch)


def test_nvrtc_sees_no_header_but_ours() -> None:
    """What NVRTC reads includes nothing of the system's: it has no such headers."""
    seen, left = (
        set[Path](),
        [pointwise_cuda.FOLDER / "formula.cuh", pointwise_cuda.FOLDER / "kernels.cuh"],
    )
    while left:
        path = left.pop()
        seen.add(path)
        text = re.sub(
            r"#if defined\(__CUDACC_RTC__\)(?s:.*?)#else(?s:.*?)#endif", "", path.read_text()
        )
        assert "#include <" not in text
        left += [path.parent / name for name in re.findall(r'#include "(.+)"', text)]
    assert {path.name for path in seen} >= {"numbers.cuh", "functions.cuh", "storage.cuh"}


CUDA_H = """
#define PULLBACK_COMPUTE float
#include <cuda.h>
#include "{folder}/formula.cuh"
namespace pullback::formula {{
struct Body {{ explicit Body(const Scalar*) {{}} void operator()(float& y) const {{ y = 0; }} }};
using Operands = Stored<Outputs<float>, Inputs<>>;
}}
static const unsigned char pullback_cubin[] = {{0}};
#include "{folder}/driver.h"
template <class... A, class... B>
constexpr bool alike(CUresult (*)(A...), int (*)(B...)) {{
  return sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...);
}}
using pullback::formula::Driver;
static_assert(alike(cuGetErrorString, (Driver::GetErrorString*)nullptr));
static_assert(alike(cuLibraryLoadData, (Driver::LibraryLoadData*)nullptr));
static_assert(alike(cuLibraryGetKernel, (Driver::LibraryGetKernel*)nullptr));
static_assert(alike(cuKernelSetAttribute, (Driver::KernelSetAttribute*)nullptr));
static_assert(Driver::most_dynamic_shared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(alike(cuCtxGetDevice, (Driver::CtxGetDevice*)nullptr));
static_assert(alike(cuCtxGetCurrent, (Driver::CtxGetCurrent*)nullptr));
static_assert(alike(cuCtxSetCurrent, (Driver::CtxSetCurrent*)nullptr));
static_assert(alike(cuPointerGetAttribute, (Driver::PointerGetAttribute*)nullptr));
static_assert(alike(cuDevicePrimaryCtxRetain, (Driver::DevicePrimaryCtxRetain*)nullptr));
static_assert(Driver::device_ordinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(alike(cuLaunchKernel, (Driver::LaunchKernel*)nullptr));
"""


@pytest.mark.nvcc
@no_nvcc
def test_the_driver_is_declared_as_in_cuda_h(tmp_path: Path) -> None:
    """As far as two declarations of C can be compared: parameter by parameter, by size."""
    file = tmp_path / "driver.cpp"
    file.write_text(CUDA_H.format(folder=pointwise_cuda.FOLDER))
    # g++ compiles it; nvcc knows where cuda.h is.
    command = [*toolchain.find("cuda").command, "-std=c++20", "-c", str(file), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_gpu_compiler_pytorch_runs_formulas_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(language: str) -> Compiler:
        raise toolchain.CompilerMissing.error(f"no {language} compiler can be used")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find", missing)
    monkeypatch.setattr(gpu, "find_nvrtc", lambda: None)
    gpu.announce.cache_clear()
    line = parse("demo::every(x[...]) -> y[...]")
    with pytest.warns(elements.FormulaNotice, match="(?s)PB201.*pullback.cuda") as seen:
        assert compiled.devices(line) == compiled.devices(line) == ("cpu",)
    assert len(seen) == 1
    monkeypatch.setattr(gpu, "find_nvrtc", lambda: gpu.Nvrtc(None))
    assert compiled.devices(line) == ("cpu", "cuda")
    monkeypatch.setattr(torch.version, "cuda", None)  # a build for AMD's GPUs
    assert compiled.devices(line) == ("cpu",)


@pytest.mark.parametrize(
    ("nvrtc", "pytorchs", "is_taken"),
    [
        ("13.0", "12.8", True),
        ("13.5", "13.5", True),
        ("13.5", "13.0", False),
        ("12.8", None, False),
    ],
)
def test_nvrtc_comes_first_if_the_driver_knows_what_it_writes(
    nvrtc: str, pytorchs: str | None, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is neither PyTorch's nor nvcc's may be newer than the driver."""
    nvcc = Compiler(language="cuda", path=Path("nvcc"), version="13.0.88", identity="")
    found = mock.Mock(version=nvrtc)
    monkeypatch.setattr(toolchain, "find", lambda _: nvcc)
    monkeypatch.setattr(torch.version, "cuda", pytorchs)
    monkeypatch.setattr(gpu, "find_nvrtc", lambda: found)
    assert gpu.find_compiler() is (found if is_taken else nvcc)
    monkeypatch.setattr(gpu, "find_nvrtc", lambda: None)
    assert gpu.find_compiler() is nvcc
