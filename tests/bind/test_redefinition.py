"""An operator that one thread defines again while others call it: they get the one or the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.register import RedefinitionNotice

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.filterwarnings(
        f"ignore::{RedefinitionNotice.__module__}.{RedefinitionNotice.__name__}"
    ),
]
TIMES = """#include <cstdint>
inline void times(float* y, const float* x, int64_t n) {{ while (n--) y[n] = {} * x[n]; }}
"""


def times(factor: int) -> type[torch.autograd.Function]:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * factor

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore
            return grad * factor

    return Times


# What defines an operator that multiplies by a factor, under a name of its own.
KINDS: dict[str, Callable[[str, int], pb.Operator]] = {
    "C++": lambda name, factor: pb.operator(
        f"{name}(x[n]) -> y[n]",
        cpu=pb.source(TIMES.format(factor), call="times(y, x, numel(x))"),
        backward={"x": f"{factor}*grad"},
    ),
    "a formula": lambda name, factor: pb.operator(f"{name}(x[...]) -> y[...] = {factor}*x"),
    "index notation": lambda name, factor: pb.operator(f"{name}(x[n]) -> y[n] = {factor}*x[n]"),
    "Python": lambda name, factor: pb.operator(
        f"{name}(x[n]) -> y[n]",
        python=lambda x: factor * x,
        backward=lambda grad, x: factor * grad,
    ),
    "a Function": lambda name, factor: pb.operator(f"{name}(x[n]) -> y[n]", function=times(factor)),
}


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Let threads take turns all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_during_a_redefinition_runs_the_one_or_the_other(kind: str) -> None:
    name = f"pbredefined::op{list(KINDS).index(kind)}"
    define = KINDS[kind]
    first = define(name, 2)
    registered = getattr(torch.ops.pbredefined, name.partition("::")[2])
    wrong: list[object] = []
    done = threading.Event()

    def call(function: Callable[[Tensor], Tensor]) -> None:
        x = torch.ones(3, requires_grad=True)
        while not done.is_set():
            try:
                y = function(x)
                (grad,) = torch.autograd.grad(y.sum(), x)
                if not {float(y[0].detach()), float(grad[0])} <= {2.0, 3.0}:
                    wrong.append((y, grad))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=call, args=(f,)) for f in (first, registered)]
    for thread in threads:
        thread.start()
    for k in range(60):
        define(name, 2 + k % 2)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong, f"{len(wrong)} calls: {wrong[0]}"


@pytest.mark.parametrize("kind", KINDS)
def test_threads_may_define_the_same_operator_at_once(kind: str) -> None:
    wrong: list[object] = []

    def define(name: str, begin: threading.Barrier) -> None:
        begin.wait()
        try:
            y = KINDS[kind](name, 2)(torch.ones(3))
            if y.tolist() != [2, 2, 2]:
                wrong.append(y)
        except Exception as error:
            wrong.append(error)

    for turn in range(3):
        name = f"pbredefined::at_once{list(KINDS).index(kind)}_{turn}"
        arguments = name, threading.Barrier(4)
        threads = [threading.Thread(target=define, args=arguments) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, f"{len(wrong)} definitions: {wrong[0]}"
