"""Recurrences over two indices by loops along their fronts, against loops in Python."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.math import recur

DOUBLE = torch.float64
# What is read, by what is added to i and j; and where fronts lie.
READS = {
    "both fall": ((-1, -1), (-1, 0), (0, -1)),
    "both rise": ((1, 1), (0, 1), (1, 0)),
    "one rises": ((-1, 1), (0, 1), (-1, 0)),
    "steep": ((0, -1), (-1, 1)),
    "flat": ((-1, 0), (1, -1)),
    "steeper, backwards": ((0, 1), (1, -2)),
}


@pytest.fixture(autouse=True)
def looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loops compiled for the smallest calls."""
    monkeypatch.setattr(recur, "FEW", 0)


def line_of(reads: tuple[tuple[int, int], ...], *, hidden: bool) -> str:
    """Return a line in which an element depends on some others."""
    terms = [f"{0.3 * k + 0.4}*pad(R[b, i + {p}, j + {q}])" for k, (p, q) in enumerate(reads)]
    step = f"x + w*tanh({' + '.join(terms)})"
    if hidden:
        return f"(x[b, i, j], w[j]) -> y[b, j] = R[b, i, j] = {step}; y = sum[i](R[b, i, j]*x)"
    return f"(x[b, i, j], w[j]) -> (R[b, i, j], twice[b, i, j]) = R = {step}; twice = R*R + w"


def compute(reads: tuple[tuple[int, int], ...], x: Tensor, w: Tensor) -> Tensor:
    """Return the elements, one by one."""
    _, rows, columns = x.shape

    @cache
    def element(i: int, j: int) -> Tensor:
        if not (0 <= i < rows and 0 <= j < columns):
            return torch.zeros_like(x[:, 0, 0])
        parts = [(0.3 * k + 0.4) * element(i + p, j + q) for k, (p, q) in enumerate(reads)]
        return x[:, i, j] + w[j] * sum(parts, torch.zeros(())).tanh()

    return torch.stack(
        [torch.stack([element(i, j) for j in range(columns)], -1) for i in range(rows)], 1
    )


CASES = [(name, hidden) for name in READS for hidden in (False, True)]


@pytest.mark.parametrize(
    ("name", "hidden"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.thorough) for case in CASES[1:])],
)
def test_values_and_gradients_are_those_of_a_loop(name: str, *, hidden: bool) -> None:
    """Fronts shorter and longer than vectors, of one row, of one column, of one element."""
    reads = READS[name]
    title = "".join(filter(str.isalpha, name))
    own = pb.operator(f"fronts::{title}{hidden:d}{line_of(reads, hidden=hidden)}")
    generator = torch.Generator().manual_seed(0)
    for size in ((2, 1, 1), (2, 2, 19), (2, 19, 2), (2, 21, 18)):
        x = torch.randn(size, dtype=DOUBLE, generator=generator)
        leaves = [x.requires_grad_(), torch.rand(size[2], dtype=DOUBLE, generator=generator)]
        leaves[1].requires_grad_()
        table = compute(reads, *leaves)
        wanted = [(table * x).sum(1)] if hidden else [table, table * table + leaves[1]]
        found = own(*leaves)
        found = [found] if hidden else list(found)
        torch.testing.assert_close(found, wanted)
        gradients = (
            torch.autograd.grad([v.sin().sum() for v in several], leaves)
            for several in (found, wanted)
        )
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.thorough
def test_coupled_states_with_a_free_dimension_are_those_of_a_loop() -> None:
    """The alignment of two sequences with a price for opening a gap and for each step of it."""
    own = pb.operator(
        "fronts::gotoh(s[i, j, d], open: float, go: float) -> M[i, j, d] = "
        "E[i, j, d] = maximum(pad(M[i, j - 1, d], -inf) - open, pad(E[i, j - 1, d], -inf) - go); "
        "F[i, j, d] = maximum(pad(M[i - 1, j, d], -inf) - open, pad(F[i - 1, j, d], -inf) - go); "
        "M = maximum(s + where(i == 0 or j == 0, 0.0, M[i - 1, j - 1, d]), maximum(E, F))"
    )
    generator = torch.Generator().manual_seed(1)
    for sizes in ((9, 20, 3), (20, 5, 17)):
        s = torch.randn(sizes, dtype=DOUBLE, generator=generator, requires_grad=True)
        rows, columns, width = sizes
        never = torch.full((width,), -torch.inf, dtype=DOUBLE)
        best: dict[tuple[int, int], Tensor] = {}
        gaps: tuple[dict[tuple[int, int], Tensor], ...] = ({}, {})
        for i in range(rows):
            for j in range(columns):
                for gap, before in zip(gaps, ((i, j - 1), (i - 1, j)), strict=True):
                    opened, longer = best.get(before, never) - 1.5, gap.get(before, never) - 0.25
                    gap[i, j] = torch.maximum(opened, longer)
                start = best[i - 1, j - 1] if i and j else torch.zeros(width, dtype=DOUBLE)
                either = torch.maximum(gaps[0][i, j], gaps[1][i, j])
                best[i, j] = torch.maximum(s[i, j] + start, either)
        wanted = torch.stack(
            [torch.stack([best[i, j] for j in range(columns)]) for i in range(rows)]
        )
        found = own(s, 1.5, 0.25)
        torch.testing.assert_close(found, wanted)
        last = (value[-1, -1].sum() for value in (found, wanted))
        torch.testing.assert_close(*(torch.autograd.grad(value, s)[0] for value in last))
    plan = str(own.plan(s, 1.5, 0.25))
    assert "E, F, M: own loop, recurrence (fronts of i and j in order" in plan


Place = tuple[int, int]
# What runs in each run.
ALWAYS = (("window", "loops"), ("front", "steps"), ("front", "cuda"))
# Of two states in turn: how many earlier ones the second reads of the first, from which step on.
IN_TURN: dict[str, tuple[str, tuple[Place, ...], tuple[tuple[float, Place], ...]]] = {
    # A window of another state has that of this step.
    "window": (
        "(x[i, j]) -> Q[i, j] = R[i, j] = tanh(x + pad(Q[i - 1, j])); "
        "Q = x + sum[k < 3](0.3*pad(R[i - k, j]))",
        ((-1, 0),),
        ((0.3, (0, 0)), (0.3, (-1, 0)), (0.3, (-2, 0))),
    ),
    "window across lanes": (
        "(x[i, j]) -> Q[i, j] = R[i, j] = tanh(x + pad(Q[i - 1, j])); "
        "Q = x + sum[k < 3](0.3*pad(R[i - k, j + 1 - k]))",
        ((-1, 0),),
        ((0.3, (0, 1)), (0.3, (-1, 0)), (0.3, (-2, -1))),
    ),
    "front": (
        "(x[i, j]) -> Q[i, j] = R[i, j] = tanh(x + pad(Q[i - 1, j - 1])); "
        "Q = x + 0.3*pad(R[i + 1, j - 1]) + 0.4*pad(Q[i - 1, j])",
        ((-1, -1),),
        ((0.3, (1, -1)),),
    ),
    "front, backwards": (
        "(x[i, j]) -> Q[i, j] = R[i, j] = tanh(x + pad(Q[i + 1, j + 1])); "
        "Q = x + 0.3*pad(R[i + 1, j - 1]) + 0.4*pad(Q[i + 1, j])",
        ((1, 1),),
        ((0.3, (1, -1)),),
    ),
}


def compute_in_turn(kind: str, x: Tensor) -> Tensor:
    """Return the second state, element by element."""
    _, of_second, of_first = IN_TURN[kind]
    own = {"front": (-1, 0), "front, backwards": (1, 0)}.get(kind)

    @cache
    def element(second: bool, i: int, j: int) -> Tensor:
        if not (0 <= i < x.shape[0] and 0 <= j < x.shape[1]):
            return x.new_zeros(())
        if not second:
            return (x[i, j] + sum(element(True, i + p, j + q) for p, q in of_second)).tanh()
        value = x[i, j] + sum(c * element(False, i + p, j + q) for c, (p, q) in of_first)
        return value + 0.4 * element(True, i + own[0], j + own[1]) if own else value

    rows, columns = (range(extent) for extent in x.shape)
    return torch.stack([torch.stack([element(True, i, j) for j in columns]) for i in rows])


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        pytest.param(kind, way, marks=[] if (kind, way) in ALWAYS else [pytest.mark.thorough])
        for kind in IN_TURN
        for way in ("loops", "steps", "cuda")
    ],
)
def test_a_state_may_read_others_elsewhere_in_its_own_step(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if way == "steps":
        monkeypatch.setattr(recur, "FEW", 2**60)
    own = pb.operator(f"fronts::turn_{''.join(filter(str.isalpha, kind + way))}{IN_TURN[kind][0]}")
    generator = torch.Generator().manual_seed(seed)
    for size in ((4, 3),) if way == "cuda" else ((4, 3), (5, 19)):
        x = torch.randn(size, dtype=DOUBLE, generator=generator).requires_grad_()
        wanted = compute_in_turn(kind, x)
        with pb.cuda.on_cpu() if way == "cuda" else nullcontext():
            found = own(x)
            got = torch.autograd.grad(found.sin().sum(), x)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(got, torch.autograd.grad(wanted.sin().sum(), x))
