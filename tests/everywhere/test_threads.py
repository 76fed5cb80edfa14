"""Several threads at once: forward, backward, transforms, an operator's very first call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from rows import FIRST, Row
from torch import func
from torch.autograd import Function
from ways import func_grad, gradients, on_tensors, same, vmap_grad

import pullback as pb
from tests.telling import telling

pytestmark = pytest.mark.compiler

COUNT = 6


def together(work: Callable[[int], Any]) -> list[Any]:
    """Return what several threads make of their numbers; all start at once."""
    start = threading.Barrier(COUNT)

    def run(index: int) -> Any:
        start.wait()
        return work(index)

    with ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(run, range(COUNT)))


# An extension compiles PyTorch's headers.
KINDS = {row.name: row for row in FIRST}
each_kind = pytest.mark.parametrize("row", telling(KINDS, KINDS.keys() - {"ext_product"}))


@each_kind
def test_threads_with_and_without_gradients(row: Row, seed: int) -> None:
    """Grad mode, transforms and inference mode are a thread's own."""

    def work(index: int) -> None:
        arguments = row.arguments(seed + index, grow=index)
        function, tensors = on_tensors(arguments, row.operator)
        reference, _ = on_tensors(arguments, row.reference)
        for turn in range(6):
            match (index + turn) % 3:
                case 0:
                    same(gradients(function, tensors), gradients(reference, tensors))
                case 1:
                    with torch.no_grad():
                        assert not function(*tensors)[0].requires_grad
                case _ if "foreign" not in row.limits:
                    same(func_grad(function, tensors), func_grad(reference, tensors))
                case _:
                    same(function(*tensors), reference(*tensors))

    together(work)


@each_kind
def test_threads_that_vmap(row: Row, seed: int) -> None:
    if "foreign" in row.limits:
        pytest.skip("C++ Functions refuse torch.func")

    def work(index: int) -> None:
        arguments = row.arguments(seed + index, grow=index)
        function, tensors = on_tensors(arguments, row.operator)
        reference, _ = on_tensors(arguments, row.reference)
        same(vmap_grad(function, tensors), vmap_grad(reference, tensors))

    together(work)


def test_an_operators_first_calls_come_from_several_threads() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            return 3 * grad * ctx.saved_tensors[0] ** 2

    for turn in range(5):
        operators = (
            pb.operator(f"everywhere::first_function{turn}(x[...]) -> y[...]", function=Cube),
            pb.operator(
                f"everywhere::first_python{turn}(x[...]) -> y[...]",
                python=lambda x: x**3,
                backward=lambda grad, x: 3 * grad * x**2,
            ),
        )

        def work(index: int) -> None:
            x = torch.rand(2 + index, dtype=torch.float64)
            for operator in operators:  # noqa: B023
                same(func.grad(lambda t: operator(t).sum())(x), 3 * x**2)  # noqa: B023
                other = x.clone().requires_grad_()
                same(torch.autograd.grad(operator(other).sum(), other)[0], 3 * x**2)

        together(work)


@each_kind
def test_backward_in_another_thread(row: Row, seed: int) -> None:
    """The graph is made here and its backward runs there, after the thread that made it is gone."""
    arguments = row.arguments(seed)
    function, tensors = on_tensors(arguments, row.operator)
    expected = gradients(on_tensors(arguments, row.reference)[0], tensors)

    def forward(index: int) -> Any:
        leaves = [t.clone().requires_grad_() for t in tensors]
        outputs = function(*leaves)
        return leaves, torch.stack([(i + 1) * (o**2).sum() for i, o in enumerate(outputs)]).sum()

    made = together(forward)
    found = together(lambda index: torch.autograd.grad(made[index][1], made[index][0]))
    for each in found:
        same(each, expected)
