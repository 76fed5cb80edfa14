"""Operators that have a CUDA kernel only, on CPU tensors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import on_cpu, register
from pullback.kernels.cuda_on_cpu import library
from pullback.kernels.cuda_on_cpu.mode import Check, Mode

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings("ignore::pullback.bind.on_cpu.CudaOnCpuNotice"),
]

SCALE = """
template <class T> __global__ void scale_kernel(T* y, const T* x, T k, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = k * x[i];
}
template <class T> void scale(T* y, const T* x, double k, long n, cudaStream_t stream) {
  if (n) scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(y, x, T(k), n);
}
"""
# Right in forward order of the threads and in no other.
TURNED = """
__global__ void turn(float* y, const float* x, int n) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  REPAIR
  y[t] = s[t ? t - 1 : 0];
}
void launch_turn(float* y, const float* x, int n) { turn<<<1, n>>>(y, x, n); }
"""


@pytest.fixture(scope="module")
def scale() -> pb.Operator:
    return pb.operator(
        "on_cpu::scale(x[...], k: float) -> y[...]",
        cuda=pb.source(SCALE, call="scale(y, x, k, numel(x), stream)"),
        backward={"x": "on_cpu::scale(grad, k)"},
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 1025)], ids=str)
def test_it_is_the_reference(scale: pb.Operator, dtype: torch.dtype, shape: tuple[int]) -> None:
    x = torch.randn(shape, dtype=dtype)
    assert torch.equal(scale(x, 2.5), 2.5 * x)


def test_it_has_a_gradient_and_works_under_transforms_and_compile(scale: pb.Operator) -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scale(x, 3.0), (x,))
    assert torch.autograd.gradgradcheck(lambda x: scale(x, 3.0), (x,))
    assert torch.equal(torch.func.vmap(lambda x: scale(x, 2.0))(x), 2 * x)
    compiled = torch.compile(lambda x: scale(x, 2.0), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), 2 * x)


def test_half_and_bfloat16_are_cudas() -> None:
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + SCALE
    made = pb.operator(
        "on_cpu::scale_half(x[...], k: float) -> y[...]",
        cuda=pb.source(
            text, call="scale(y, x, k, numel(x), stream)", dtypes=["float16", "bfloat16"]
        ),
    )
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(1000).to(dtype)
        assert torch.equal(made(x, 3.0), 3 * x)


def test_one_notice_says_what_runs() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            pb.operator(
                "on_cpu::noticed(x[...], k: float) -> y[...]",
                cuda=pb.source(SCALE, call="scale(y, x, k, numel(x), stream)"),
            )
    texts = [str(each.message) for each in seen if each.category is on_cpu.CudaOnCpuNotice]
    assert texts == [
        "on_cpu::noticed: its CUDA kernel runs on the CPU; cpu= gives it a kernel in C++"
    ]


def test_a_launch_in_a_header_of_another_folder_is_translated(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "scale.cuh").write_text(SCALE)
    (tmp_path / "scale.cu").write_text("#include <scale.cuh>\n")
    made = pb.operator(
        "on_cpu::from_header(x[...], k: float) -> y[...]",
        cuda=pb.source(
            tmp_path / "scale.cu",
            call="scale(y, x, k, numel(x), stream)",
            flags=[f"-I{tmp_path / 'there'}"],
        ),
    )
    assert made(torch.ones(3), 2.0).tolist() == [2.0, 2.0, 2.0]


def test_a_thread_that_waits_has_the_stack_that_the_page_says() -> None:
    text = """
        __device__ __noinline__ float total(const float* x, int n) {
          volatile float own[40000];  // 160 KB of the 256
          for (int i = 0; i < 40000; ++i) own[i] = x[i % n];
          __syncthreads();
          float sum = 0;
          for (int i = 0; i < n; ++i) sum += own[i];
          return sum;
        }
        __global__ void k(float* y, const float* x, int n) { y[threadIdx.x] = total(x, n); }
        void f(float* y, const float* x, int n) { k<<<1, n>>>(y, x, n); }
    """
    made = pb.operator("on_cpu::deep(x[n]) -> y[n]", cuda=pb.source(text, call="f(y, x, n)"))
    with on_cpu.entered(Mode()):
        assert made(torch.ones(4)).tolist() == [4.0] * 4


def test_a_check_does_without_the_runtime_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    genuine = library.runtime

    def runtime(check: Check, *rest: Any) -> Path:
        asked.append(check)
        return genuine(check, *rest)

    monkeypatch.setattr(library, "runtime", runtime)
    monkeypatch.setattr(register, "operators", {})
    with on_cpu.entered(Mode(check="race")):
        pass
    assert set(asked) == {"race"}


def test_an_edited_kernel_is_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    made = pb.operator(
        "on_cpu::edited(x[...], k: float) -> y[...]",
        cuda=pb.source(file, call="scale(y, x, k, numel(x), stream)"),
    )
    file.write_text(SCALE.replace("k * x[i]", "k * x[i] + 1"))
    made.reload()
    assert made(torch.ones(3), 2.0).tolist() == [3.0, 3.0, 3.0]


def turned(name: str, repair: str) -> pb.Operator:
    return pb.operator(
        f"on_cpu::{name}(x[n]) -> y[n]",
        cuda=pb.source(TURNED.replace("REPAIR", repair), call="launch_turn(y, x, n)"),
    )


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x[:1], x[:-1]])


@pytest.fixture(scope="module")
def racing() -> pb.Operator:
    return turned("racing", "")


@pytest.fixture(scope="module")
def repaired() -> pb.Operator:
    return turned("repaired", "__syncthreads();")


@pytest.mark.parametrize("order", ["forward", "reverse", "random:3", "all"])
@pytest.mark.parametrize("check", ["none", "race"])
def test_a_kernel_with_its_barrier_is_right_in_every_mode(
    repaired: pb.Operator, order: str, check: Check
) -> None:
    x = torch.randn(100)
    with on_cpu.entered(Mode(check=check, order=order)):
        assert torch.equal(repaired(x), shifted(x))


def test_a_kernel_without_it_hangs_on_the_order_of_its_threads(racing: pb.Operator) -> None:
    x = torch.randn(100)
    assert torch.equal(racing(x), shifted(x))
    with (
        on_cpu.entered(Mode(order="all")),
        pytest.raises(pb.PullbackError, match="PB232") as raised,
    ):
        racing(x)
    assert "'y' depends on the order" in str(raised.value)
    assert torch.equal(racing(x), shifted(x))  # as before


def test_the_race_check_names_both_lines_and_both_threads(racing: pb.Operator) -> None:
    with (
        on_cpu.entered(Mode(check="race")),
        pytest.raises(pb.PullbackError, match="PB221") as raised,
    ):
        racing(torch.randn(100))
    found = raised.value.finding
    assert "on_cpu::racing" in found.message
    assert "source of on_cpu::racing:5" in str(found)
    assert "source of on_cpu::racing:7" in str(found)
    assert "thread" in str(found)


def test_a_fault_is_an_error_and_the_next_call_works(scale: pb.Operator) -> None:
    bad = pb.operator(
        "on_cpu::null(x[n]) -> y[n]",
        cuda=pb.source(
            "__global__ void k(float* y, float* p, int n) { y[threadIdx.x] = p[threadIdx.x]; }\n"
            "void launch(float* y, int n) { k<<<1, n>>>(y, nullptr, n); }",
            call="launch(y, n)",
        ),
    )
    for _ in range(3):
        with pytest.raises(pb.PullbackError, match="PB225"):
            bad(torch.randn(4))
        assert scale(torch.ones(2), 2.0).tolist() == [2.0, 2.0]


def test_a_launch_over_the_limits_is_an_error() -> None:
    bad = pb.operator(
        "on_cpu::wide(x[n]) -> y[n]",
        cuda=pb.source(
            "__global__ void k(float* y) { y[0] = 1; }\n"
            "void launch(float* y, int n) { k<<<1, 1025>>>(y); }",
            call="launch(y, n)",
        ),
    )
    with pytest.raises(RuntimeError, match="invalid configuration argument"):
        bad(torch.randn(4))


def test_what_does_not_compile_names_the_authors_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.cu"
    file.write_text(
        "\n\n__global__ void k(float* y) { y[0] = oops; }\nvoid f(float* y) { k<<<1, 1>>>(y); }"
    )
    with pytest.raises(pb.PullbackError, match="PB202") as raised:
        pb.operator("on_cpu::wrong(x[n]) -> y[n]", cuda=pb.source(file, call="f(y)"))
    assert "wrong.cu:3" in str(raised.value)
    assert "oops" in str(raised.value)


def test_what_cannot_be_translated_names_the_authors_line(tmp_path: Path) -> None:
    file = tmp_path / "braces.cu"
    file.write_text("__global__ void k(int2 p) {}\nvoid f() { k<<<1, 1>>>({1, 2}); }\n")
    with pytest.raises(pb.PullbackError, match="PB234") as raised:
        pb.operator("on_cpu::braces(x[n]) -> y[n]", cuda=pb.source(file, call="f()"))
    assert "braces.cu:2" in str(raised.value)


def test_floats_may_be_read_as_other_types_as_under_nvcc() -> None:
    text = """
        __global__ void k(float* y, const float* x, int n) {
          int i = 4 * threadIdx.x;
          float v[4];
          *(int4*)v = *(const int4*)(x + i);
          for (int j = 0; j < 4; ++j) {
            float one = v[j];
            int bits = *(int*)&one;
            *(int*)&one = bits ^ int(0x80000000u);
            v[j] = one;
          }
          *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<float4*>(v);
        }
        void f(float* y, const float* x, int n) { k<<<1, n / 4>>>(y, x, n); }
    """
    made = pb.operator("on_cpu::negated(x[n]) -> y[n]", cuda=pb.source(text, call="f(y, x, n)"))
    x = torch.randn(256)
    assert torch.equal(made(x), -x)


def test_a_mode_is_entered_though_an_operators_file_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "gone.cu"
    file.write_text(SCALE)
    made = pb.operator(
        "on_cpu::gone(x[...], k: float) -> y[...]",
        cuda=pb.source(file, call="scale(y, x, k, numel(x), stream)"),
    )
    file.unlink()
    with (
        pytest.warns(on_cpu.CudaOnCpuNotice, match="on_cpu::gone stays as it was: source-missing"),
        on_cpu.entered(Mode(check="race")),
    ):
        assert made(torch.ones(3), 2.0).tolist() == [2.0, 2.0, 2.0]
    file.write_text(SCALE)
