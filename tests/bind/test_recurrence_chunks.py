"""Linear recurrences with few lanes: on a GPU chunks of their steps are computed at once.

The reference is a loop in Python in float64, differentiated by PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.loops import chunks as loops
from pullback.bind.loops import gpu
from pullback.define.math import chunks
from pullback.define.math.chunks import STEPS
from pullback.kernels.cuda_on_cpu.mode import Mode
from tests.bind import recurrences
from tests.bind.cuda_modes import alone
from tests.bind.recurrences import BIQUAD, GAE, LRU, differentiate

pytestmark = pytest.mark.compiler
LEAST = 8 * STEPS

SWING = (
    "(f[b, t], k[b]) -> (v[b, t], x[b, t]) = "
    "v = 0.9*pad(v[b, t - 1]) - k*pad(x[b, t - 1]) + f; x = pad(x[b, t - 1]) + v/8"
)
SOMETIMES = "(x[b, t]) -> y[b, t] = where(x > 0.15, pad(y[b, t - 1])/2, 3) - x"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have fewer steps cut than are worth it, of which the reference takes its time."""
    monkeypatch.setattr(loops, "LEAST", LEAST)


def swing(f: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    v, x = torch.zeros_like(f[:, 0]), torch.zeros_like(f[:, 0])
    found: list[tuple[Tensor, Tensor]] = []
    for given in f.unbind(1):
        v = 0.9 * v - k * x + given
        x = x + v / 8
        found.append((v, x))
    vs, xs = zip(*found, strict=True)
    return torch.stack(vs, 1), torch.stack(xs, 1)


def sometimes(x: Tensor) -> Tensor:
    y, found = torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in x.unbind(1):
        y = torch.where(given > 0.15, y / 2, 3) - given
        found.append(y)
    return torch.stack(found, 1)


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(shape, generator=generator, dtype=torch.float64) / 2 for shape in shapes]


@dataclass(frozen=True)
class Case:
    line: str
    loop: Callable[..., Any]
    draw: Callable[[int], list[Tensor]]


CASES = {
    "lru": Case(LRU, recurrences.lru, lambda t: draw((2, t, 3), (2, t, 3), (2, 3))),
    "gae": Case(GAE, recurrences.gae, lambda t: draw((3, t), (3, t))),
    "biquad": Case(BIQUAD, recurrences.biquad, lambda t: draw((1, t), (3,), (2,))),
    "swing": Case(SWING, swing, lambda t: draw((2, t), (2,))),
    "sometimes": Case(SOMETIMES, sometimes, lambda t: draw((2, t))),
}


@functools.cache
def operator(name: str) -> pb.Operator:
    return pb.operator(f"recurrence_chunks::{name}{CASES[name].line}")


def require_chunks(own: pb.Operator, given: list[Tensor]) -> None:
    """Stop unless loops in chunks compute the states of a recurrence."""
    plan = own.plan(*given)
    assert any("chunks of 32 steps at once" in step.reason for step in plan.steps), plan


@pytest.mark.parametrize(
    ("name", "steps", "orders"),
    [
        ("gae", 300, 1),
        *(pytest.param(n, t, 2, marks=pytest.mark.thorough) for n in CASES for t in (LEAST, 300)),
    ],
)
def test_chunks_are_the_steps_in_order(name: str, steps: int, orders: int) -> None:
    """And so are the chunks of their first and their second gradients."""
    case, given = CASES[name], CASES[name].draw(steps)
    wanted = differentiate(case.loop, given, (), orders)
    with pb.cuda.on_cpu():
        require_chunks(operator(name), given)
        found = differentiate(operator(name), given, (), orders)
    for value, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(value, want, rtol=1e-10, atol=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["lru", "gae", "biquad"])
def test_of_many_chunks_what_comes_into_them_is_cut_again(name: str) -> None:
    case, given = CASES[name], CASES[name].draw(STEPS * LEAST + 3)
    with pb.cuda.on_cpu():
        assert "again in chunks" in str(operator(name).plan(*given))
        found = operator(name)(*given)
    torch.testing.assert_close(found, case.loop(*given), rtol=1e-10, atol=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes_are_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    given = [tensor.to(dtype) for tensor in case.draw(301)]
    wanted = case.loop(*(tensor.double() for tensor in given))
    with pb.cuda.on_cpu():
        require_chunks(operator(name), given)
        found = operator(name)(*given)
    pairs = [(found, wanted)] if isinstance(found, Tensor) else zip(found, wanted, strict=True)
    bound = 2**-18 if dtype == torch.float32 else 2**-8
    for value, want in pairs:
        torch.testing.assert_close(value.double(), want, rtol=bound, atol=bound)


@pytest.mark.thorough
def test_no_chunk_reads_what_another_writes() -> None:
    given = CASES["biquad"].draw(3 * LEAST + 1)
    found: list[Tensor] = []
    for order in ("forward", "reverse", "random:5"):
        with alone(operator("biquad"), Mode(check="race", order=order)):
            found.append(operator("biquad")(*given))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.thorough
def test_nothing_comes_of_nothing_however_much_a_chunk_would_make_of_it() -> None:
    """The product of a chunk's factors overflows, and 0 times infinity is no number.

    Whether a step is the first one is asked of each that is side by side. Costs 3 s.
    """
    x = torch.zeros(1, 2 * LEAST, 1)
    x[0, -1] = 1
    given = torch.full_like(x, 1e3), x, torch.zeros(1, 1)
    with pb.cuda.on_cpu():
        require_chunks(operator("lru"), list(given))
        assert torch.equal(operator("lru")(*given), x)


@pytest.mark.parametrize(
    ("name", "line", "shapes"),
    [
        ("bent", "(x[b, t]) -> y[b, t] = tanh(pad(y[b, t - 1])) + x", [(2, 2 * LEAST)]),
        ("squared", "(x[b, t]) -> y[b, t] = pad(y[b, t - 1])**2 + x", [(2, 2 * LEAST)]),
        ("wide", LRU, [(1, LEAST, 5000), (1, LEAST, 5000), (1, 5000)]),
        ("short", LRU, [(2, 99, 3), (2, 99, 3), (2, 3)]),
    ],
)
def test_what_is_not_cut(
    name: str, line: str, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not linear, has many lanes, or few steps."""
    monkeypatch.setattr(gpu, "count_registers", lambda *_: None)
    own = pb.operator(f"recurrence_chunks::{name}{line}")
    given = [tensor.float().requires_grad_() for tensor in draw(*shapes)]
    forward, *backward = own.plan(*given, device="cuda").steps
    assert "chunks of" not in forward.reason
    # What arrives at a state is linear, whatever the state is.
    is_cut = any("chunks of" in step.reason for step in backward)
    assert is_cut is (name in {"bent", "squared"})


@pytest.mark.thorough
def test_a_fault_in_how_they_are_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chunks._combine

    def forget_a_factor(node: Any, parts: Any) -> Any:
        return {**parts[0], **parts[1]} if node.op == "mul" else right(node, parts)

    monkeypatch.setattr(chunks, "_combine", forget_a_factor)
    own = pb.operator("recurrence_chunks::wrong(x[b, t]) -> y[b, t] = x - 0.98*pad(y[b, t - 1])")
    with pb.cuda.on_cpu(), pytest.raises(PullbackError, match="PB147"):
        own(*draw((2, 2 * LEAST)))
