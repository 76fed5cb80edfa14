"""Loops over indices in CUDA, run by CUDA on the CPU: values, races, bounds; and who calls them."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.backends import CpuBackend, CudaBackend, CudaOnCpuBackend, unit_of
from pullback.bind.loops.nests import Own
from pullback.bind.loops.own_call import prepare_call
from pullback.bind.loops.specialise import USUAL
from pullback.bind.math import samples, verify
from pullback.define import parse
from pullback.define.math import derived, notation
from pullback.define.math.formula import Formula
from pullback.diagnostic import PullbackError
from pullback.kernels import prebuilt
from pullback.kernels.cuda_on_cpu import runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.loops import cuda, pointwise_cuda
from pullback.kernels.loops.pointwise import CSRC
from pullback.kernels.loops.target import NAME
from tests.bind.test_index_loops import (
    FORMULAS,
    NAMES,
    arguments,
    expected,
    formula,
    sizes_for,
)
from tests.kernels.launches import on_host
from tests.telling import telling

pytestmark = pytest.mark.compiler

# Of each family: a pass or several over a row, rows that are kept, totals in chunks, a place that a
# maximum gives, borders, whole numbers, scalars, kernels one after the other.
FEW = ("softmax", "rowmax", "scaled", "centered", "gauss", "pair", "correlate", "counted", "spread")
# In each run; a unit takes half a second to compile, and a formula has a dozen of them.
ALWAYS = ("softmax",)
# Sizes of a call that is small, and of one whose last dimensions fit registers.
SMALL = {"d": 3, "p": 3, "q": 3}


def loops_of(name: str, mode: Mode, dtype: torch.dtype) -> Iterator[tuple[Own, frozenset[str]]]:
    """Yield the loops of a formula, of its gradient and of the gradient's gradient."""
    indexed: Formula | None = formula(name)
    for _ in range(3):
        assert indexed
        case = next(samples.draw_cases(indexed, dtype, {}, frozenset()))
        present = frozenset(case.arguments)
        for sizes in (case.sizes, {name: SMALL.get(name, 300) for name in case.sizes}):
            for group in nests.group_outputs(indexed, range(len(indexed.nodes)), sizes):
                backend = CudaOnCpuBackend("sm_80", mode=mode)
                own = nests.find(indexed, dtype, group, present, sizes, backend)
                on_cpu = nests.find(indexed, dtype, group, present, sizes)
                # Whatever has a loop on the CPU has one on a GPU.
                assert isinstance(own, Own) or not isinstance(on_cpu, Own), own
                if isinstance(own, Own):
                    yield own, present
        backward = derived.backward(indexed)
        indexed = backward and backward.formula
        if indexed is None:
            return


def compare(name: str, mode: Mode, dtype: torch.dtype = torch.float32) -> int:
    found = list(loops_of(name, mode, dtype))
    for own, present in found:
        assert verify.compare(own, present), (own.indexed, own.specialised)
    return len(found)


@pytest.mark.parametrize("name", telling(NAMES, ALWAYS))
def test_a_loop_in_cuda_computes_what_pytorch_does(name: str) -> None:
    assert compare(name, Mode())


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEW)
def test_a_loop_in_cuda_computes_what_pytorch_does_in_double(name: str) -> None:
    assert compare(name, Mode(), torch.float64)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FEW)
def test_no_loop_has_a_race_in_any_order_of_threads(name: str) -> None:
    for order in ("reverse", "random:3"):
        assert compare(name, Mode(check="race", order=order))


LONG = {
    "a sum of all": ("total", {"n": 70_001}),
    "a sum of pairs": ("pair", {"n": 530}),
    "for a few rows": ("logsumexp", {"n": 9_001, "...": 2}),
    "for a few places": ("gauss", {"n": 70, "m": 5_003, "d": 3}),
    "around a few columns": ("counted", {"n": 3, "m": 16_000}),
}


CUT = {f"{device}-{case}": (device, case) for device in ("cpu", "cuda") for case in LONG}


@pytest.mark.parametrize(
    "of", telling(CUT, {"cuda-for a few places", *(f"cpu-{case}" for case in LONG)})
)
def test_a_long_sum_is_cut_into_chunks(of: tuple[str, str]) -> None:
    device, case = of
    name, dims = LONG[case]
    indexed = formula(name)
    sizes = sizes_for(indexed, {"...": 1, **dims})
    given = arguments(indexed, sizes, torch.float32)
    backend = CudaOnCpuBackend("sm_80") if device == "cuda" else CpuBackend()
    own = nests.find(indexed, torch.float32, (0,), frozenset(given), sizes, backend)
    assert isinstance(own, Own)
    totals = [total for kernel in own.prepared(sizes).kernels for total in kernel.totals]
    if device == "cuda":
        assert any(total.shape[total.summed] > 1 for total in totals) == ("logsumexp" not in name)
    (got,) = own.run(given, sizes, [torch.float32])
    assert_near(got, expected(indexed, given, sizes)[0])


def assert_near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)


# --- rows that are kept in shared memory

SOFTMAX = "(x[k, n]) -> y[k, n] = exp(x - max[m](x[k, m]))/sum[m](exp(x[k, m] - max[l](x[k, l])))"
# Kilobytes of a row, and how often it is read; what is beyond its end takes up to 4 more.
MOST_DOUBLES = 24_576
LENGTHS = {"47": (47, 1), "49": (49, 1), "100": (100, 1), "220": (220, 1), "228": (228, 3)}


WITHIN = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}


@pytest.mark.ci
@pytest.mark.parametrize("length", telling(LENGTHS, ("49",)))
@pytest.mark.parametrize("dtype", telling({str(d): d for d in WITHIN}, ("torch.float32",)))
def test_a_row_is_read_once_where_it_fits_shared_memory(
    length: tuple[int, int], dtype: torch.dtype
) -> None:
    kilobytes, reads = length
    op = pb.operator(f"on_cpu::long{kilobytes}{str(dtype)[6:]}{SOFTMAX}")
    columns = kilobytes * 1024 // (8 if dtype == torch.float64 else 4)
    if dtype == torch.float64 and reads == 1:
        columns = min(columns, MOST_DOUBLES)
    x = torch.randn(20, columns, generator=torch.Generator().manual_seed(3)).to(dtype)
    reason = op.plan(x, device="cuda").steps[0].reason
    assert ("rows read once" if reads == 1 else f"rows read {reads} times") in reason
    assert ("KB shared" in reason) == (reads == 1)
    with pb.cuda.on_cpu():
        found, some = launches(lambda: op(x))
    assert some
    torch.testing.assert_close(found.double(), x.double().softmax(-1), rtol=WITHIN[dtype], atol=0)


def test_loops_of_a_package_are_taken_where_their_rows_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    indexed = notation.parse(parse.parse(f"on_cpu::brought{SOFTMAX}"))
    backend = CudaOnCpuBackend("sm_80")

    def is_brought(_: object, own: Own) -> Own | None:
        return own if own.target.lanes == 128 and own.steps[0].kernel.rows else None

    def find(rows: int, columns: int) -> Own:
        sizes = {"k": rows, "n": columns}
        own = nests.find(indexed, torch.float32, (0,), frozenset("x"), sizes, backend)
        assert isinstance(own, Own)
        return own

    monkeypatch.setattr(prebuilt, "find_sizes", lambda _: [{}])
    monkeypatch.setattr(CudaOnCpuBackend, "can_compile", lambda _: False)
    monkeypatch.setattr(CudaOnCpuBackend, "find_brought", is_brought)
    usual = find(USUAL, USUAL)
    assert usual.brought
    assert find(2000, 20_000) is usual
    assert not find(2000, 100_000).is_available


DRIVER = """
#include <string.h>
#define STAND_IN extern "C" __attribute__((visibility("default")))
static int allowed = 0;
STAND_IN int cuGetErrorString(int code, const char** text) {
  *text = code == 2 ? "more shared memory than it was allowed" : "the stand-in fails";
  return 0;
}
STAND_IN int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*,
                               void**, unsigned) {
  *library = const_cast<void*>(code);
  return 0;
}
STAND_IN int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  *kernel = const_cast<char*>(name);
  return 0;
}
STAND_IN int cuCtxGetDevice(int* device) { *device = 5; return 0; }
STAND_IN int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  allowed = value;
  const bool right = attribute == 8 && device == 5 && strstr(static_cast<char*>(kernel), "_kernel");
  return value > 227 * 1024 || !right;
}
STAND_IN int cuCtxGetCurrent(void** context) { *context = &allowed; return 0; }
STAND_IN int cuCtxSetCurrent(void*) { return 1; }
STAND_IN int cuDevicePrimaryCtxRetain(void**, int) { return 1; }
STAND_IN int cuPointerGetAttribute(void*, int, unsigned long long) { return 1; }
STAND_IN int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned shared, void*, void**, void**) {
  const unsigned most = allowed ? unsigned(allowed) : 48 * 1024;
  return shared > most ? 2 : 0;
}
"""


class Given(ctypes.Structure):
    """`IndexLaunch` of kernel_abi.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "strides", "sizes", "scalars")),
        *(("tasks", ctypes.c_int64), ("scratch", ctypes.c_int64), ("stream", ctypes.c_void_p)),
    )


def test_the_driver_is_asked_for_more_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    indexed = notation.parse(parse.parse(f"on_cpu::asked{SOFTMAX}"))
    sizes = {"k": 64, "n": 40_000}
    backend = CudaBackend("sm_90")
    own = nests.find(indexed, torch.float32, (0,), frozenset("x"), sizes, backend)
    assert isinstance(own, Own)
    (call,) = prepare_call(own, sizes, [0]).kernels
    stand_in = '#include <stdlib.h>\n#define PULLBACK_DRIVER getenv("PULLBACK_TEST_DRIVER")\n'
    library = on_host(
        "cuda-asked",
        stand_in + pointwise_cuda.generate_cubin(b"cubin") + unit_of([own]).host + DRIVER,
    )
    monkeypatch.setenv("PULLBACK_TEST_DRIVER", library._name)
    numbers = (ctypes.c_int64 * 16)()
    message = ctypes.create_string_buffer(200)

    def launch(shared: int) -> str:
        given = Given(*[ctypes.addressof(numbers)] * 4, call.count, shared, None)
        entry = getattr(library, NAME.format(0))
        failed = entry(ctypes.byref(given), message, ctypes.c_uint64(len(message)))
        return message.value.decode() if failed else ""

    assert call.share > 150 * 1024
    assert not launch(1000)
    assert not launch(call.share)
    assert not launch(call.share - 50_000)
    assert not launch(call.share)
    assert launch(228 * 1024) == "CUDA: the stand-in fails"


# A product that a sum may fuse and a quotient that may be a product, each needed otherwise as well.
MIXED = {
    "products": "(x[k, n], w[k, n]) -> y[k] = sum[n](exp(x)*w) + sum[n](exp(exp(x)*w)) "
    "+ max[n](exp(x)*w)*sum[n](exp(x)*w - x)",
    "quotients": "(x[k, n]) -> y[k] = s[k] = sum[n](exp(x)); "
    "y = sum[n](tanh(exp(x)/s)) + max[n](exp(x)/s) + sum[n](exp(x)/s)",
}


KEEPING = ("softmax", "rownorm", "logsumexp", "layernorm", "chosen", "scaled")


@pytest.mark.parametrize(
    "line", telling({**MIXED, **{name: FORMULAS[name] for name in KEEPING}}, ())
)
def test_results_have_the_same_bits_however_much_shared_memory_there_is(line: str) -> None:
    indexed: Formula | None = notation.parse(parse.parse(f"on_cpu::limited{line}"))
    for _ in range(3):
        assert indexed
        labels = {i.rstrip("'") for t in indexed.line.tensors for i in t.labels}
        sizes = sizes_for(indexed, {k: SMALL.get(k, 70 if k == "..." else 300) for k in labels})
        given = arguments(indexed, sizes, torch.float32)
        for group in nests.group_outputs(indexed, range(len(indexed.nodes)), sizes):
            found: dict[str, list[Tensor]] = {}
            for shared in (cuda.LARGEST, 4096, cuda.ROOM):
                backend = CudaOnCpuBackend("sm_80", shared=shared)
                own = nests.find(indexed, torch.float32, group, frozenset(given), sizes, backend)
                if isinstance(own, Own):
                    text = "".join(step.kernel.text for step in own.steps)
                    if text not in found:
                        found[text] = own.run(given, sizes, [torch.float32] * len(group))
            for other in found.values():
                for a, b in zip(next(iter(found.values())), other, strict=True):
                    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        backward = derived.backward(indexed)
        indexed = backward and backward.formula
        if indexed is None:
            return


MEMORY = """
import sys
from tests.bind.test_index_cuda import compare
from pullback.kernels.cuda_on_cpu.mode import Mode
for name in sys.argv[1:]:
    compare(name, Mode(check="memory"))
"""


@pytest.mark.thorough
def test_no_loop_leaves_its_tensors(tmp_path: Path) -> None:
    script = tmp_path / "watched.py"
    script.write_text(MEMORY)
    command = [sys.executable, "-m", "pullback", "cuda", "memory", str(script), *FEW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no fault found" in done.stdout + done.stderr


@pytest.mark.thorough
def test_nor_does_a_random_one() -> None:
    tests = Path(__file__).with_name("test_index_random.py")
    options = ["-q", "-n", "0", "--cuda-memory", "-k", "own_loops"]
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


ROOM = "if (threadIdx.x % 32 == 0) room"
FAULTS = {
    "no barrier before the room is used again": (f"__syncthreads();\n    {ROOM}", ROOM),
    "no barrier before the room is read": (
        "= x;\n    __syncthreads();\n    x = room[0];",
        "= x;\n    x = room[0];",
    ),
}


def run_layer_norm(mode: Mode) -> tuple[Tensor, Tensor]:
    """Return a long row's result and what it should be; its second sum needs the first's memory."""
    indexed = formula("layernorm")
    sizes = sizes_for(indexed, {"n": 700, "...": 1})
    given = arguments(indexed, sizes, torch.float32)
    backend = CudaOnCpuBackend("sm_80", mode=mode)
    own = nests.generate(indexed, torch.float32, (0,), frozenset(given), sizes, backend)
    assert isinstance(own, Own)
    (got,) = own.run(given, sizes, [torch.float32])
    return got, expected(indexed, given, sizes)[0]


@pytest.mark.ci
@pytest.mark.parametrize("fault", telling({name: name for name in FAULTS}, [*FAULTS][:1]))
def test_a_barrier_that_is_left_out_is_a_race(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = Mode(check="race")
    run_layer_norm(mode)
    monkeypatch.setattr(cuda, "FOLDER", plant(*FAULTS[fault], tmp_path))
    with pytest.raises(PullbackError, match="race"):
        run_layer_norm(mode)


@pytest.mark.ci
def test_order_all_compares_what_each_order_of_threads_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = Mode(order="all")
    loaded: list[str] = []
    load = runtimes.load

    def note(now: Mode) -> None:
        loaded.append(now.order)
        load(now)

    with monkeypatch.context() as patch:
        patch.setattr(runtimes, "load", note)
        assert_near(*run_layer_norm(mode))
    # Then kernels run as before.
    assert loaded[-4:] == ["forward", "reverse", "random:1", "all"]
    fault = FAULTS["no barrier before the room is read"]
    monkeypatch.setattr(cuda, "FOLDER", plant(*fault, tmp_path))
    with pytest.raises(PullbackError, match="PB232"):
        run_layer_norm(mode)


def plant(old: str, new: str, folder: Path) -> Path:
    """Return a folder of the headers of loops in which one has a fault."""
    for each in ("formula", "index"):
        shutil.copytree(CSRC / each, folder / each)
    shutil.copy(CSRC / "kernel_abi.h", folder)
    header = folder / "index" / "cuda" / "index.cuh"
    text = header.read_text()
    assert text.count(old) == 1, old
    header.write_text(text.replace(old, new))
    return header.parent


@pytest.mark.thorough
def test_a_lane_beyond_the_edge_is_an_access_out_of_bounds(tmp_path: Path) -> None:
    folder = plant("lane() * factor, size)", "lane() * factor, size + 1)", tmp_path)
    script = tmp_path / "watched.py"
    faulty = (
        f"from pullback.kernels.loops import cuda\ncuda.FOLDER = cuda.FOLDER / {str(folder)!r}\n"
    )
    script.write_text(faulty + MEMORY)
    command = [sys.executable, "-m", "pullback", "cuda", "memory", str(script), "rowmax"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "PB223" in done.stdout + done.stderr


# --- who calls them

MISH = "(x[...]) -> y[...] = x*tanh(log1p(exp(x)))"
GAUSS = "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])"


@functools.cache
def gauss() -> pb.Operator:
    """Return the operator that several tests call; its loops are compiled once."""
    return pb.operator(f"on_cpu::gauss{GAUSS}")


def launches(run: Any) -> tuple[Any, int]:
    before = runtimes.count_launches()
    return run(), runtimes.count_launches() - before


# A second derivative has a dozen kernels.
@pytest.mark.thorough
@pytest.mark.parametrize("orders", [1, 2])
def test_operators_run_their_cuda_where_cuda_runs_on_the_cpu(orders: int) -> None:
    generator = torch.Generator().manual_seed(0)
    mish = pb.operator(f"on_cpu::mish{orders}{MISH}")
    x, y, v = (torch.randn(s, generator=generator) for s in ((70, 3), (40, 3), (40,)))
    given = [t.requires_grad_() for t in (x, y, v)]

    def run() -> list[Tensor]:
        u = gauss()(*given)
        grads = torch.autograd.grad(u.sin().sum(), given, create_graph=orders == 2)
        found = [u, *grads, mish(x), *torch.autograd.grad(mish(x).sum(), x)]
        if orders == 2:
            found += torch.autograd.grad([g.square().sum() for g in grads], given)
        return found

    first, none = launches(run)
    with pb.cuda.on_cpu():
        on_gpu, some = launches(run)
        half, one = launches(lambda: mish(x.detach().half().t()))
        plan = str(gauss().plan(*given))
    again, after = launches(run)
    assert (none, after, one) == (0, 0, 1)
    assert some > 4 * orders
    assert "cuda" in plan
    assert "cuda" not in str(gauss().plan(*given))
    for a, b, c in zip(first, on_gpu, again, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert torch.equal(a, c)
    torch.testing.assert_close(half, mish(x.detach().half().t()), rtol=2e-3, atol=2e-3)


@pytest.mark.thorough
def test_what_a_loop_gives_does_not_depend_on_the_order_of_threads() -> None:
    op = gauss()
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(s, generator=generator) for s in ((33, 3), (400, 3), (400,))]
    found: list[Tensor] = []
    for order in ("forward", "reverse", "random:5"):
        with pb.cuda.on_cpu(order=order, workers=2):
            found.append(op(*given))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.ci
def test_a_plan_says_on_any_machine_what_a_gpu_would_do() -> None:
    op = gauss()
    given = [torch.randn(100_000, 3), torch.randn(100_000, 3), torch.randn(100_000)]
    plan = op.plan(*given, device="cuda")
    assert len(plan.steps) == 3
    for step in plan.steps:
        assert step.way == "own loop, pairwise sum"
        assert re.search(r"^\d+ tasks of (8|32|128|512) threads", step.reason)
        assert re.search(r"[\d.]+ ms at least on .*, by its arithmetic$", step.reason)
    with pytest.raises(ValueError, match="'tpu'"):
        op.plan(*given, device="tpu")  # pyright: ignore[reportArgumentType]


@pytest.mark.thorough
@pytest.mark.nvcc
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no CUDA toolkit here")
def test_a_plan_says_how_many_registers_a_thread_has() -> None:
    op = pb.operator("on_cpu::rows(x[n, m]) -> y[n] = max[m](x[n, m]**2)")
    reason = op.plan(torch.randn(4096, 4096), device="cuda").steps[0].reason
    found = re.search(r"(\d+) registers", reason)
    assert found
    assert 16 <= int(found[1]) <= 255


def test_any_strides_will_do_on_a_gpu() -> None:
    op = gauss()
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(3, 40, generator=generator), torch.randn(1, 3, generator=generator)
    v = torch.randn(60, generator=generator)
    given = x.t(), y.expand(30, 3), v[::2]
    with pb.cuda.on_cpu():
        found = op(*given)
        turned = op(*(t.contiguous() for t in given))
    torch.testing.assert_close(found, op(*given), rtol=1e-5, atol=1e-5)
    assert torch.equal(found, turned)
