"""States read where data says, and sums that go where data says, beside loops in Python."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.loops.nests import NoLoops
from pullback.bind.loops.scan_call import ScanCall
from pullback.bind.loops.scans import Scan
from pullback.bind.math import recur, recurrent_call
from tests.telling import telling

pytestmark = pytest.mark.compiler
numbers = itertools.count()


@pytest.fixture(autouse=True)
def looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loops compiled for the smallest calls."""
    monkeypatch.setattr(recur, "FEW", 0)


def added(values: Tensor, to: Tensor) -> Tensor:
    return torch.zeros_like(values).index_add(-1, to, values)


def scattered(x: Tensor, p: Tensor, to: Tensor) -> tuple[Tensor, ...]:
    h, found = torch.zeros_like(x[0]), list[Tensor]()
    for given, weight in zip(x, p, strict=True):
        h = 0.5 * h + weight * added(given, to)
        found.append(h)
    return (torch.stack(found),)


def passed_on(x: Tensor, p: Tensor, to: Tensor) -> tuple[Tensor, ...]:
    h, found = torch.zeros_like(x[0]), list[Tensor]()
    for given, weight in zip(x, p, strict=True):
        h = given + weight * added(0.5 * h, to)
        found.append(h)
    return (torch.stack(found),)


def selected(x: Tensor, p: Tensor, to: Tensor) -> tuple[Tensor, ...]:
    found = [p[0] * x[0]]
    for given, weight in zip(x[1:], p[1:], strict=True):
        found.append((given + found[-1][to]) * weight)
    return (torch.stack(found),)


def crossed(x: Tensor, p: Tensor, to: Tensor) -> tuple[Tensor, ...]:
    c, found = torch.zeros_like(x[0]), list[tuple[Tensor, Tensor]]()
    for given, weight in zip(x, p, strict=True):
        h = (given + c[to]).tanh()
        c = weight + h[to] * c / 2
        found.append((h, c))
    return tuple(map(torch.stack, zip(*found, strict=True)))


class Case(NamedTuple):
    """A formula of `h`, and perhaps of `c`, from x, p and places; and its loop."""

    outputs: str
    formula: str
    loop: Callable[..., tuple[Tensor, ...]]


CASES = {
    "scattered": Case(
        "h[t, n]",
        "h = 0.5*pad(h[t - 1, n]) + p*sum[m](where(n == to[m], x[t, m], 0))",
        scattered,
    ),
    "passed on": Case(
        "h[t, n]",
        "h = x + p*sum[m](where(n == to[m], 0.5*pad(h[t - 1, m]), 0))",
        passed_on,
    ),
    "selected": Case("h[t, n]", "h = p*(x + where(t > 0, h[t - 1, to[n]], 0))", selected),
    "crossed": Case(
        "(h[t, n], c[t, n])",
        "h = tanh(x + pad(c[t - 1, to[n]])); c = p + h[t, to[n]]*pad(c[t - 1, n])/2",
        crossed,
    ),
}


def define(case: Case) -> pb.Operator:
    line = f"(x[t, n], p[t, n], to[n]: int64) -> {case.outputs} = {case.formula}"
    return pb.operator(f"places::f{next(numbers)}{line}")


def draw(steps: int, many: int) -> list[Tensor]:
    x, p = (torch.randn(steps, many, dtype=torch.float64).requires_grad_() for _ in range(2))
    return [x, p, torch.randint(many, (many,))]


@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", telling({n: n for n in CASES}, ("scattered", "crossed")))
def test_places_that_data_says_are_those_of_a_loop(name: str, on_gpu: bool, seed: int) -> None:
    """Each output's gradients alone, for others need none of what it does; and all together."""
    case, (x, p, to) = CASES[name], draw(9, 5)
    with pb.cuda.on_cpu() if on_gpu else contextlib.nullcontext():
        found = define(case)(x, p, to)
        found = found if isinstance(found, tuple) else (found,)
        wanted = case.loop(x, p, to)
        torch.testing.assert_close(found, wanted)
        every = [*range(len(found))]
        for kept in ([k] for k in every) if len(every) == 1 else ([0], [1], every):
            grads = [torch.randn_like(wanted[k]) for k in kept]
            several = (
                torch.autograd.grad([of[k] for k in kept], (x, p), grads, retain_graph=True)
                for of in (found, wanted)
            )
            torch.testing.assert_close(*several)


def test_the_work_of_gradients_grows_with_the_places(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What a state adds up is read by others of the same step, and not added up for each anew."""
    found: list[Scan] = []
    find = recurrent_call.find_scan

    def noted(asked: ScanCall) -> Scan | NoLoops:
        scan = find(asked)
        found.extend([scan] if isinstance(scan, Scan) else [])
        return scan

    monkeypatch.setattr(recurrent_call, "find_scan", noted)
    _ = define(CASES["crossed"]).plan(*draw(9, 40))
    for scan in found:
        entries = {str(k): 40 for k in scan.own.indexed.ranges.sizes}
        few, many = (scan.own.work({"t": 9, "n": n, **entries}) for n in (100, 10_000))
        assert many < 150 * few
    assert len(found) == 2
