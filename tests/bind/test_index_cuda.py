"""Loops over indices in CUDA, run by CUDA on the CPU: values, races, bounds; and who calls them."""

from __future__ import annotations

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
from pullback.bind.loops.backends import CpuBackend, CudaOnCpuBackend
from pullback.bind.loops.nests import Own
from pullback.bind.math import samples, verify
from pullback.define.math import derived
from pullback.define.math.formula import Formula
from pullback.diagnostic import PullbackError
from pullback.kernels.cuda_on_cpu import runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.loops import cuda
from pullback.kernels.loops.pointwise import CSRC
from tests.bind.test_index_loops import NAMES, arguments, expected, formula, sizes_for
from tests.telling import telling

pytestmark = pytest.mark.compiler

# Of each family: a pass or several over a row, rows that are kept, totals in chunks, a place that a
# maximum gives, borders, whole numbers, scalars.
FEW = ("softmax", "rowmax", "scaled", "gauss", "pair", "correlate", "counted", "spread")
# In each run; a unit takes half a second to compile, and a formula has a dozen of them.
ALWAYS, WATCHED = ("softmax", "counted", "spread"), ("softmax",)
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


@pytest.mark.parametrize("name", telling({name: name for name in FEW}, WATCHED))
def test_no_loop_has_a_race_in_any_order_of_threads(name: str) -> None:
    for order in ("reverse", "random:3"):
        assert compare(name, Mode(check="race", order=order))


LONG = {
    "a sum of all": ("total", {"n": 70_001}),
    "a sum of pairs": ("pair", {"n": 530}),
    "for a few rows": ("logsumexp", {"n": 9_001, "...": 2}),
    "for a few places": ("gauss", {"n": 70, "m": 5_003, "d": 3}),
    "around a few columns": ("counted", {"n": 3, "m": 9_000}),
}


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_long_sum_is_cut_into_chunks(case: str, device: str) -> None:
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


@pytest.mark.parametrize("fault", FAULTS)
def test_a_barrier_that_is_left_out_is_a_race(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its second sum over a row needs the memory of the first.
    indexed = formula("layernorm")
    sizes = sizes_for(indexed, {"n": 700, "...": 1})
    given = arguments(indexed, sizes, torch.float32)
    backend = CudaOnCpuBackend("sm_80", mode=Mode(check="race"))

    def run() -> None:
        present = frozenset(given)
        own = nests.generate(indexed, torch.float32, (0,), present, sizes, backend)
        assert isinstance(own, Own)
        own.run(given, sizes, [torch.float32])

    run()
    monkeypatch.setattr(cuda, "FOLDER", plant(*FAULTS[fault], tmp_path))
    with pytest.raises(PullbackError, match="race"):
        run()


def test_order_all_compares_what_each_order_of_threads_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = formula("layernorm")
    sizes = sizes_for(indexed, {"n": 700, "...": 1})
    given = arguments(indexed, sizes, torch.float32)
    backend = CudaOnCpuBackend("sm_80", mode=Mode(order="all"))

    def run() -> Tensor:
        own = nests.generate(indexed, torch.float32, (0,), frozenset(given), sizes, backend)
        assert isinstance(own, Own)
        return own.run(given, sizes, [torch.float32])[0]

    assert_near(run(), expected(indexed, given, sizes)[0])
    fault = FAULTS["no barrier before the room is read"]
    monkeypatch.setattr(cuda, "FOLDER", plant(*fault, tmp_path))
    with pytest.raises(PullbackError, match="PB232"):
        run()


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


def launches(run: Any) -> tuple[Any, int]:
    before = runtimes.count_launches()
    return run(), runtimes.count_launches() - before


def test_operators_run_their_cuda_where_cuda_runs_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    mish = pb.operator(f"on_cpu::mish{MISH}")
    gauss = pb.operator(f"on_cpu::gauss{GAUSS}")
    x, y, v = (torch.randn(s, generator=generator) for s in ((70, 3), (40, 3), (40,)))
    given = [t.requires_grad_() for t in (x, y, v)]

    def run() -> list[Tensor]:
        u = gauss(*given)
        grads = torch.autograd.grad(u.sin().sum(), given, create_graph=True)
        second = torch.autograd.grad([g.square().sum() for g in grads], given)
        return [u, *grads, *second, mish(x), *torch.autograd.grad(mish(x).sum(), x)]

    first, none = launches(run)
    with pb.cuda.on_cpu():
        on_gpu, some = launches(run)
        half, one = launches(lambda: mish(x.detach().half().t()))
        plan = str(gauss.plan(*given))
    again, after = launches(run)
    assert (none, after, one) == (0, 0, 1)
    assert some > 8
    assert "cuda" in plan
    assert "cuda" not in str(gauss.plan(*given))
    for a, b, c in zip(first, on_gpu, again, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert torch.equal(a, c)
    torch.testing.assert_close(half, mish(x.detach().half().t()), rtol=2e-3, atol=2e-3)


def test_what_a_loop_gives_does_not_depend_on_the_order_of_threads() -> None:
    op = pb.operator(f"on_cpu::ordered{GAUSS}")
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(s, generator=generator) for s in ((33, 3), (400, 3), (400,))]
    found: list[Tensor] = []
    for order in ("forward", "reverse", "random:5"):
        with pb.cuda.on_cpu(order=order, workers=2):
            found.append(op(*given))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_plan_says_on_any_machine_what_a_gpu_would_do() -> None:
    op = pb.operator(f"on_cpu::planned{GAUSS}")
    given = [torch.randn(100_000, 3), torch.randn(100_000, 3), torch.randn(100_000)]
    plan = op.plan(*given, device="cuda")
    assert len(plan.steps) == 3
    for step in plan.steps:
        assert step.way == "own loop, pairwise sum"
        assert re.search(r"^\d+ tasks of (8|32|128|512) threads", step.reason)
        assert re.search(r"[\d.]+ ms at least on .*, by its arithmetic$", step.reason)
    with pytest.raises(ValueError, match="'tpu'"):
        op.plan(*given, device="tpu")  # pyright: ignore[reportArgumentType]


@pytest.mark.nvcc
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no CUDA toolkit here")
def test_a_plan_says_how_many_registers_a_thread_has() -> None:
    op = pb.operator("on_cpu::rows(x[n, m]) -> y[n] = max[m](x[n, m]**2)")
    reason = op.plan(torch.randn(4096, 4096), device="cuda").steps[0].reason
    found = re.search(r"(\d+) registers", reason)
    assert found
    assert 16 <= int(found[1]) <= 255


def test_any_strides_will_do_on_a_gpu() -> None:
    op = pb.operator(f"on_cpu::strides{GAUSS}")
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(3, 40, generator=generator), torch.randn(1, 3, generator=generator)
    v = torch.randn(60, generator=generator)
    given = x.t(), y.expand(30, 3), v[::2]
    with pb.cuda.on_cpu():
        found = op(*given)
        turned = op(*(t.contiguous() for t in given))
    torch.testing.assert_close(found, op(*given), rtol=1e-5, atol=1e-5)
    assert torch.equal(found, turned)
