"""Recurrences on a GPU. CUDA on the CPU rehearses the tests where there is none."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.math import execute, recur
from tests.bind.gpu_ways import (
    GPU,
    both_ways,
    child,
    on_a_gpu,
    rehearsed_thoroughly,
    require_close,
    require_same_each_time,
    way,
)
from tests.bind.recurrences import LRU, RECURRENCES, Recurrence, differentiate, on

__all__ = ["way"]

pytestmark = pytest.mark.compiler

ROUNDING = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}


@functools.cache
def operator(name: str) -> pb.Operator:
    return pb.operator(f"recurrence_gpu::{name}{RECURRENCES[name].line}")


def draw(own: Recurrence, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    return [tensor.to("cuda") for tensor in own.draw(dtype, seed)]


def require_right(name: str, own: Recurrence, dtype: torch.dtype, orders: int) -> None:
    """Stop unless loops compute the states, and values and gradients are those in float64."""
    given = draw(own, dtype)
    plan = operator(name).plan(*given, *on(given[0].device, own.numbers))
    states = [step for step in plan.steps if "recurrence" in step.way or "step by step" in step.way]
    assert states
    assert all(step.way == "own loop, recurrence" for step in states), plan
    found = differentiate(operator(name), given, own.numbers, orders)
    doubles = [tensor.double().cpu() for tensor in given]
    wanted = differentiate(own.loop, doubles, own.numbers, orders)
    rounding = ROUNDING[str(dtype).removeprefix("torch.")]
    for value, want in zip(found, wanted, strict=True):
        require_close(value, want, (8 if dtype.itemsize == 2 else 400) * rounding)


@rehearsed_thoroughly
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", RECURRENCES)
def test_every_recurrence_and_its_gradients_are_loops_in_python(
    name: str, dtype: str, way: str
) -> None:
    # A tie that rounding breaks has another gradient.
    orders = 0 if name == "edit" else 2 if dtype == "float64" and name != "soft_dtw" else 1
    require_right(name, RECURRENCES[name], getattr(torch, dtype), orders)


LARGE = {
    "lru": ((33, 200, 1001), (33, 200, 1001), (33, 1001)),
    "heat": ((5000,), (5000,)),
    "rnn": ((20, 50, 200), (200, 200)),
    "soft_dtw": ((5, 60, 70),),
    "gae": ((3000, 40), (3000, 40)),
}


@on_a_gpu
@pytest.mark.parametrize("name", LARGE)
def test_states_that_are_larger_than_a_block(name: str, way: str) -> None:
    require_right(name, RECURRENCES[name]._replace(shapes=LARGE[name]), torch.float32, 1)


@both_ways
@pytest.mark.parametrize("name", ["heat", pytest.param("soft_dtw", marks=pytest.mark.thorough)])
def test_threads_that_meet_give_the_same_bits_each_time(name: str, way: str) -> None:
    own = RECURRENCES[name]
    given = draw(own)
    given += on(given[0].device, own.numbers)
    require_same_each_time(lambda: operator(name)(*given), 1000 if way == GPU else 2)


@on_a_gpu
def test_a_warm_call_and_its_backward_are_captured_and_replayed(way: str) -> None:
    own = RECURRENCES["lru"]
    leaves = [tensor.requires_grad_() for tensor in draw(own)]

    def step() -> list[Tensor]:
        h = operator("lru")(*leaves)
        return [h, *torch.autograd.grad(h.square().sum(), leaves)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for seed in range(1, 20):
        with torch.no_grad():
            for leaf, new in zip(leaves, draw(own, seed=seed), strict=True):
                leaf.copy_(new)
        graph.replay()
        doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
        h = own.loop(*doubles)
        wanted = [h, *torch.autograd.grad(h.square().sum(), doubles)]
        for value, want in zip(found, wanted, strict=True):
            require_close(value, want.detach(), 1e-5)


FIRST_IN_CAPTURE = """
import torch
import pullback as pb
from tests.bind.recurrences import LRU, RECURRENCES
own = RECURRENCES["lru"]
operator = pb.operator("recurrence_gpu::first" + LRU)
given = [tensor.to("cuda") for tensor in own.draw(torch.float32)]
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    h = operator(*given)
graph.replay()
torch.testing.assert_close(h, own.loop(*given))
assert "own loop" in str(operator.plan(*given))
torch.testing.assert_close(operator(*given), own.loop(*given))
print("captured, and loops after it")
"""


@on_a_gpu
def test_a_first_call_inside_of_a_capture_goes_step_by_step(way: str, tmp_path: Path) -> None:
    done = child(FIRST_IN_CAPTURE, tmp_path)
    assert "captured, and loops after it" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("captured", [True, False])
def test_a_call_that_is_captured_compiles_nothing(
    captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it what later calls are."""
    own = pb.operator(f"recurrence_gpu::captured{captured:d}{LRU}")
    given = RECURRENCES["lru"].draw()
    monkeypatch.setattr(recur, "FEW", 0)
    monkeypatch.setattr(execute, "is_captured", lambda _: captured)
    compiled: list[object] = []
    find = recur.RecurrentCall.scan
    monkeypatch.setattr(
        recur.RecurrentCall, "scan", lambda *given: compiled.append(given) or find(*given)
    )
    torch.testing.assert_close(own(*given), RECURRENCES["lru"].loop(*given))
    assert bool(compiled) is not captured
