"""Recurrences in CUDA, run by CUDA on the CPU: values, races, bounds, planted faults; plans."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.kinds.recurrent import Recurrent
from pullback.bind.loops import gpu, scans
from pullback.kernels.cuda_on_cpu import runtimes
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.loops.cuda import Cuda
from tests.bind.cuda_modes import alone, run_watched
from tests.bind.recurrences import HEAT, RECURRENCES, SDTW, differentiate
from tests.telling import telling

pytestmark = pytest.mark.compiler

NAMES = {name: name for name in RECURRENCES}
DTYPE = ("lru", "bfloat16")
ROUNDING = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}


@functools.cache
def operator(name: str) -> pb.Operator:
    return pb.operator(f"recurrence_cuda::{name}{RECURRENCES[name].line}")


def require_loops(name: str, given: list[Tensor]) -> None:
    """Stop unless loops compute the states of a recurrence and of its gradients."""
    plan = operator(name).plan(*given, *RECURRENCES[name].numbers)
    states = [step for step in plan.steps if "recurrence" in step.way or "step by step" in step.way]
    assert len(states) >= 2
    assert all(step.way == "own loop, recurrence" for step in states), plan


@pytest.mark.parametrize("name", telling(NAMES, ("soft_dtw",)))
def test_loops_in_cuda_are_loops_in_python(name: str) -> None:
    """And so are their first and their second gradients."""
    own, given = RECURRENCES[name], RECURRENCES[name].draw()
    orders = 1 if name in {"soft_dtw", "edit"} else 2
    wanted = differentiate(own.loop, given, own.numbers, orders)
    before = runtimes.count_launches()
    with pb.cuda.on_cpu():
        found = differentiate(operator(name), given, own.numbers, orders)
        assert runtimes.count_launches() > before
        require_loops(name, given)
    for value, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(value, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[] if (name, dtype) == DTYPE else [pytest.mark.thorough])
        for name in NAMES
        for dtype in ROUNDING
    ],
)
def test_every_dtype_is_computed_in_float32_and_rounded_once(name: str, dtype: str) -> None:
    """Gradients are sums of a hundred terms; what arrives of a half is rounded first."""
    own = RECURRENCES[name]
    given = own.draw(getattr(torch, dtype))
    # A tie that rounding breaks has another gradient.
    orders = 0 if name == "edit" else 1
    wanted = differentiate(own.loop, [tensor.double() for tensor in given], own.numbers, orders)
    with pb.cuda.on_cpu():
        require_loops(name, given)
        found = differentiate(operator(name), given, own.numbers, orders)
    for value, want in zip(found, wanted, strict=True):
        assert value.dtype == given[0].dtype
        within = (100 if dtype == "float32" else 8) * ROUNDING[dtype]
        torch.testing.assert_close(
            value.double(), want, rtol=within, atol=within * want.abs().max().item()
        )


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_no_recurrence_has_a_race_in_any_order_of_threads(name: str) -> None:
    own, given = RECURRENCES[name], RECURRENCES[name].draw(torch.float32)
    found: list[list[Tensor]] = []
    for order in ("forward", "reverse", "random:3"):
        with alone(operator(name), Mode(check="race", order=order)):
            found.append(differentiate(operator(name), given, own.numbers))
    for other in found[1:]:
        for value, first in zip(other, found[0], strict=True):
            assert torch.equal(value, first)


LAGS = (
    "(a[t, d], x[t, d], h0[d]) -> h[t, d] = a*h[t - 1, d] + x[0, d]*pad(x[t - 3, d]); h[-1, d] = h0"
)


def walk_lags(a: Tensor, x: Tensor, h0: Tensor) -> Tensor:
    """The same, step by step."""
    states = [h0]
    for t in range(len(a)):
        late = x[t - 3] if t >= 3 else torch.zeros_like(x[0])
        states.append(a[t] * states[-1] + x[0] * late)
    return torch.stack(states[1:]) if len(a) else x


@pytest.mark.thorough
def test_blocks_of_steps_read_nothing_beyond_the_last_one() -> None:
    """Inputs are read for 16 steps at a time; where there is no step, x[0] is not there either."""
    op = pb.operator(f"recurrence_cuda::lags{LAGS}")
    generator = torch.Generator().manual_seed(5)
    for steps in (0, 1, 2, 15, 16, 17, 33):
        given = [
            torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for shape in ((steps, 5), (steps, 5), (5,))
        ]
        grad = torch.randn(steps, 5, generator=generator, dtype=torch.float64)
        want = torch.autograd.grad(walk_lags(*given), given, grad, materialize_grads=True)
        with alone(op, Mode(check="race")):
            found = torch.autograd.grad(op(*given), given, grad)
        torch.testing.assert_close(found, want)


# --- faults


def leave_out_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "write_meeting", lambda _: "")


def keep_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    right = scans.find_rings

    def halve(*given: Any) -> dict[str, int]:
        return {name: max(1, many // 2) for name, many in right(*given).items()}

    monkeypatch.setattr(scans, "find_rings", halve)


FAULTS = {
    "a stencil without barriers": (HEAT, leave_out_barriers),
    "a wavefront without barriers": (SDTW, leave_out_barriers),
    "a stencil whose ring is too small": (HEAT, keep_fewer_steps),
    "a wavefront whose ring is too small": (SDTW, keep_fewer_steps),
}


@pytest.mark.parametrize(
    "name", telling({name: name for name in FAULTS}, ("a wavefront without barriers",))
)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line, plant = FAULTS[name]
    plant(monkeypatch)
    own = pb.operator(f"recurrence_cuda::{name.replace(' ', '_')}{line}")
    [case] = [each for each in RECURRENCES.values() if each.line == line]
    with (
        alone(own, Mode(check="race")),
        pytest.raises(PullbackError, match=r"race|PB147"),
    ):
        differentiate(own, case.draw(torch.float32), case.numbers)


MEMORY = """
import sys
import torch
from tests.bind.test_recurrence_cuda import NAMES, operator
from tests.bind.recurrences import RECURRENCES, differentiate
for name in sys.argv[1:]:
    own = RECURRENCES[name]
    differentiate(operator(name), own.draw(torch.float32), own.numbers)
"""
TOO_FAR = """
from pullback.kernels.loops import scan
right = scan.ScanWriter.ends
def ends(self, index):
    begin, end = right(self, index)
    return begin, end + (" + 1" if self.nest.fronts and index == self.nest.fronts.along else "")
scan.ScanWriter.ends = ends
"""


@pytest.mark.thorough
def test_no_recurrence_leaves_its_tensors(tmp_path: Path) -> None:
    done = run_watched(MEMORY, tmp_path, *NAMES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no fault found" in done.stdout + done.stderr


@pytest.mark.thorough
def test_a_front_that_is_too_long_is_an_access_out_of_bounds(tmp_path: Path) -> None:
    done = run_watched(TOO_FAR + MEMORY, tmp_path, "soft_dtw")
    assert done.returncode != 0
    assert "PB223" in done.stdout + done.stderr


# --- plans


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nvcc compile nothing to count registers."""
    monkeypatch.setattr(gpu, "count_registers", lambda *_: None)


@pytest.mark.usefixtures("uncounted")
def test_a_plan_says_on_any_machine_what_a_gpu_would_do() -> None:
    lru = operator("lru").plan(
        *(torch.rand(8, 50, 256) for _ in range(2)), torch.rand(8, 256), device="cuda"
    )
    first = lru.steps[0]
    assert first.way == "own loop, recurrence"
    assert "threads share ..., blocks of d, lanes along d; 64 tasks of 32 threads" in first.reason
    heat = str(operator("heat").plan(torch.rand(300), torch.rand(300), 9, device="cuda"))
    assert "lanes along x, which meet at each step; 1 task of 512 threads" in heat
    fronts = str(operator("soft_dtw").plan(torch.rand(8, 100, 120), device="cuda"))
    assert "fronts of i and j in order, threads share b, lanes along j, which meet" in fronts
    assert "8 tasks of 128 threads" in fronts


@pytest.mark.usefixtures("uncounted")
def test_a_plan_says_why_a_gpu_has_no_loops() -> None:
    own = pb.operator(
        "recurrence_cuda::cube(x[i, j, k]) -> y[i, j, k] = "
        "x + pad(y[i - 1, j, k]) + pad(y[i, j - 1, k]) + pad(y[i, j, k - 1])"
    )
    x = torch.rand(3, 4, 5)
    assert "y: PyTorch, step by step (its fronts are not" in str(own.plan(x, device="cuda"))
    assert isinstance(own.kind, Recurrent)
    with pb.cuda.on_cpu():
        torch.testing.assert_close(own(x), own.kind.in_pytorch()(x))


@pytest.mark.usefixtures("uncounted")
def test_few_sums_are_pytorchs_on_a_gpu_and_many_are_loops() -> None:
    """Its cumulative functions cut the steps into parts; a loop has a thread for each column."""
    own = pb.operator("recurrence_cuda::summed(x[t, d]) -> y[t, d] = x + pad(y[t - 1, d])")
    few = str(own.plan(torch.rand(300, 64), device="cuda"))
    many = str(own.plan(torch.empty(2, 2**14), device="cuda"))
    assert "y: PyTorch (torch.cumsum along 't')" in few
    assert "y: own loop, recurrence" in many
