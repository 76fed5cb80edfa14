"""Operators that have a CUDA kernel only, on CPU tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind import on_cpu
from pullback.kernels.cuda_on_cpu import library
from pullback.kernels.cuda_on_cpu.mode import Check, Mode
from tests.bind.cuda_modes import alone

pytestmark = pytest.mark.compiler

SCALE = """
template <class T> __global__ void scale_kernel(T* y, const T* x, T k, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = k * x[i];
}
template <class T> void scale(T* y, const T* x, double k, long n, cudaStream_t stream) {
  if (n) scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(y, x, T(k), n);
}
"""
OF_FLOATS = SCALE.replace("template <class T> ", "").replace("T", "float")
CALL = "scale(y, x, k, numel(x), stream)"
HALVES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
DTYPES = ["float32", "float64", "float16", "bfloat16"]
# Without its barrier right in forward order of the threads and in no other.
TURN = """
__global__ void turn(float* y, const float* x, int n, int wait) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  if (wait) __syncthreads();
  y[t] = s[t ? t - 1 : 0];
}
void launch_turn(float* y, const float* x, int n, int wait) { turn<<<1, n>>>(y, x, n, wait); }
"""


@pytest.fixture(scope="session")
def scale() -> pb.Operator:
    return pb.operator(
        "on_cpu::scale(x[...], k: float) -> y[...]",
        cuda=pb.source(HALVES + SCALE, call=CALL, dtypes=DTYPES),
        backward={"x": "on_cpu::scale(grad, k)"},
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 1025)], ids=str)
def test_it_is_the_reference(scale: pb.Operator, dtype: str, shape: tuple[int]) -> None:
    x = torch.randn(shape).to(getattr(torch, dtype))
    assert torch.equal(scale(x, 2.5), 2.5 * x)


def test_it_has_a_gradient_and_works_under_transforms_and_compile(scale: pb.Operator) -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scale(x, 3.0), (x,))
    assert torch.autograd.gradgradcheck(lambda x: scale(x, 3.0), (x,))
    assert torch.equal(torch.func.vmap(lambda x: scale(x, 2.0))(x), 2 * x)
    compiled = torch.compile(lambda x: scale(x, 2.0), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), 2 * x)


def test_one_notice_says_what_runs(scale: pb.Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu, "_announced", set[str]())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            scale.reload()
    texts = [str(each.message) for each in seen if each.category is on_cpu.CudaOnCpuNotice]
    assert texts == [
        "on_cpu::scale: its CUDA kernel runs on the CPU; cpu= gives it a kernel in C++"
    ]


@pytest.fixture(scope="session")
def of_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[pb.Operator, Path]:
    """An operator whose launch is in a header of another folder, and its folder."""
    folder = tmp_path_factory.mktemp("kernel")
    write(folder)
    source = pb.source(folder / "scale.cu", call=CALL, flags=[f"-I{folder / 'there'}"])
    return pb.operator("on_cpu::written(x[...], k: float) -> y[...]", cuda=source), folder


@pytest.fixture
def written(of_files: tuple[pb.Operator, Path]) -> Iterator[tuple[pb.Operator, Path]]:
    yield of_files
    operator, folder = of_files
    write(folder)
    operator.reload()


def write(folder: Path) -> None:
    (folder / "there").mkdir(exist_ok=True)
    (folder / "there" / "scale.cuh").write_text(OF_FLOATS)
    (folder / "scale.cu").write_text("#include <scale.cuh>\n")


def test_a_launch_in_a_header_of_another_folder_is_translated(
    written: tuple[pb.Operator, Path],
) -> None:
    assert written[0](torch.ones(3), 2.0).tolist() == [2.0, 2.0, 2.0]


def test_an_edited_header_is_noticed(written: tuple[pb.Operator, Path]) -> None:
    scale, folder = written
    (folder / "there" / "scale.cuh").write_text(OF_FLOATS.replace("k * x[i]", "k * x[i] + 1"))
    scale.reload()
    assert scale(torch.ones(3), 2.0).tolist() == [3.0, 3.0, 3.0]


@pytest.mark.thorough
def test_a_mode_is_entered_though_an_operators_file_is_gone(
    written: tuple[pb.Operator, Path],
) -> None:
    scale, folder = written
    (folder / "scale.cu").unlink()
    said = "on_cpu::written stays as it was: source-missing"
    with pytest.warns(on_cpu.CudaOnCpuNotice, match=said), alone(scale, Mode(check="race")):
        assert scale(torch.ones(3), 2.0).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.ci
def test_a_check_does_without_the_runtime_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    genuine = library.runtime

    def runtime(check: Check, *rest: Any) -> Path:
        asked.append(check)
        return genuine(check, *rest)

    monkeypatch.setattr(library, "runtime", runtime)
    monkeypatch.setattr(on_cpu, "operators", {})
    with on_cpu.set_mode_everywhere(Mode(check="race")):
        pass
    assert set(asked) == {"race"}


@pytest.fixture(scope="session")
def turn() -> pb.Operator:
    return pb.operator(
        "on_cpu::turn(x[n], wait: bool) -> y[n]",
        cuda=pb.source(TURN, call="launch_turn(y, x, n, wait)"),
    )


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x[:1], x[:-1]])


@pytest.mark.parametrize(
    ("check", "order"),
    [
        *(("none", order) for order in ("forward", "reverse", "random:3", "all")),
        *(("race", order) for order in ("forward", "reverse", "random:3")),
        pytest.param("race", "all", marks=pytest.mark.thorough),
    ],
)
def test_a_kernel_with_its_barrier_is_right_in_every_mode(
    turn: pb.Operator, order: str, check: Check
) -> None:
    x = torch.randn(100)
    with alone(turn, Mode(check=check, order=order)):
        assert torch.equal(turn(x, wait=True), shifted(x))


def test_a_kernel_without_it_hangs_on_the_order_of_its_threads(turn: pb.Operator) -> None:
    x = torch.randn(100)
    assert torch.equal(turn(x, wait=False), shifted(x))
    with (
        alone(turn, Mode(order="all")),
        pytest.raises(pb.PullbackError, match="PB232") as raised,
    ):
        turn(x, wait=False)
    assert "'y' depends on the order" in str(raised.value)
    assert torch.equal(turn(x, wait=False), shifted(x))  # as before


def test_the_race_check_names_both_lines_and_both_threads(turn: pb.Operator) -> None:
    with (
        alone(turn, Mode(check="race")),
        pytest.raises(pb.PullbackError, match="PB221") as raised,
    ):
        turn(torch.randn(100), wait=False)
    found = raised.value.finding
    assert "on_cpu::turn" in found.message
    assert "source of on_cpu::turn:5" in str(found)
    assert "source of on_cpu::turn:7" in str(found)
    assert "thread" in str(found)


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
