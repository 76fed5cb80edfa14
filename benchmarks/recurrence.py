"""Recurrences over sizes: beside a loop in Python, and beside SciPy or PyTorch's own function."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy import signal
from torch import Tensor

import pullback as pb
from benchmarks.bags import fastest
from benchmarks.formula import Turn
from benchmarks.index import give_back_at_once, peak
from benchmarks.index_cases import Function
from benchmarks.measure import show
from benchmarks.recurrence_lines import (
    BIQUAD,
    DTW,
    GAE,
    GRU,
    HEAT,
    LRU,
    LSTM,
    SCAN,
    biquad_loop,
    dtw_loop,
    gae_loop,
    gru_loop,
    heat_loop,
    lru_loop,
    lstm_loop,
    scan_loop,
)
from pullback.bind.math import recur

OURS, LOOP, OTHER = "pullback", "Python loop", "other"
ALL_KEPT = "all states kept"
THREADS = (1, 2)
# Of a linear recurrence: batch, steps, width. The last one is so short that its first calls have no
# loop; what is printed is a call after these.
SIZES = ((8, 1000, 256), (8, 100, 256), (1, 1000, 16), (64, 500, 7), (1, 10, 8))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recurrence at one size.

    Attributes:
        name: with its size.
        line: of the operator.
        inputs: makes its tensors.
        loop: the same in Python; None where that is hopeless.
        other: what people call instead; `is_forward`: it has no backward.
    """

    name: str
    line: str
    inputs: Callable[[], Sequence[Tensor]]
    loop: Function | None
    other: Function | None = None
    is_forward: bool = False


def biquad_scipy(x: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """The filter by SciPy."""
    return torch.from_numpy(np.asarray(signal.lfilter(b.numpy(), a.numpy(), x.numpy())))


def draw(*shapes: tuple[int, ...]) -> Sequence[Tensor]:
    """Return small random tensors."""
    generator = torch.Generator().manual_seed(0)
    return [0.5 * torch.rand(shape, generator=generator) for shape in shapes]


def lru_of(b: int, t: int, d: int) -> Case:
    """Return a linear recurrence."""
    made = partial(draw, (b, t, d), (b, t, d), (b, d))
    return Case(name=f"lru {b}×{t}×{d}", line=LRU, inputs=made, loop=lru_loop)


def scan_of(b: int, t: int, d: int, s: int) -> Case:
    """Return a selective scan."""
    made = partial(draw, (b, t, d), (d, s), (b, t, s), (b, t, s), (b, t, d))
    return Case(name=f"scan {b}×{t}×{d}×{s}", line=SCAN, inputs=made, loop=scan_loop)


def biquad_of(b: int, t: int) -> Case:
    """Return a filter."""

    def made() -> Sequence[Tensor]:
        return [*draw((b, t)), torch.tensor([0.2, 0.3, 0.2]), torch.tensor([1.0, -0.6, 0.3])]

    return Case(
        name=f"biquad {b}×{t}",
        line=BIQUAD,
        inputs=made,
        loop=biquad_loop,
        other=biquad_scipy,
        is_forward=True,
    )


def cumulative(name: str, step: str, function: Function, b: int, t: int) -> Case:
    """Return a cumulative function, beside PyTorch's."""
    line = f"{name}(x[b, t]) -> y[b, t] = {step}"
    made = partial(draw, (b, t))
    return Case(name=f"{name} {b}×{t}", line=line, inputs=made, loop=None, other=function)


def plain(name: str, line: str, loop: Function | None, *shapes: tuple[int, ...]) -> Case:
    """Return a case without a peer of its own."""
    return Case(name=name, line=line, inputs=partial(draw, *shapes), loop=loop)


# Batch, steps and units of recurrent networks: in the last one nearly all are products of matrices.
NETWORKS = ((16, 100, 32), (16, 100, 128), (64, 30, 256))
CASES = (
    *(lru_of(*size) for size in SIZES),
    *(scan_of(*size) for size in ((2, 1000, 256, 16), (2, 200, 33, 5))),
    *(biquad_of(*size) for size in ((32, 4000), (1, 4000), (1, 16_000), (100, 300))),
    *(plain(f"gae {t}×{b}", GAE, gae_loop, (t, b), (t, b)) for t, b in ((2048, 64), (300, 5))),
    *(
        plain(f"heat {t}×{x}", HEAT, heat_loop, (x,), (x,), (t,))
        for t, x in ((2048, 1024), (500, 50))
    ),
    *(plain(f"gru {b}×{t}×{d}", GRU, gru_loop, (b, t, 3, d), (3, d, d)) for b, t, d in NETWORKS),
    *(plain(f"lstm {b}×{t}×{d}", LSTM, lstm_loop, (b, t, 4, d), (4, d, d)) for b, t, d in NETWORKS),
    plain("soft-DTW 8×64×64 (fronts)", DTW, dtw_loop, (8, 64, 64)),
    *(
        cumulative(*each, b, t)
        for b, t in ((64, 4096), (4, 100_000))
        for each in (
            ("cumsum", "x + pad(y[b, t - 1])", partial(torch.cumsum, dim=1)),
            ("cumprod", "x*pad(y[b, t - 1], 1)", partial(torch.cumprod, dim=1)),
            ("cumlse", "logaddexp(x, pad(y[b, t - 1], -inf))", partial(torch.logcumsumexp, dim=1)),
        )
    ),
)


def measure(case: Case, operator: Function, budget: float) -> Mapping[str, dict[str, float]]:
    """Return the seconds of forward and of both directions, by candidate."""
    inputs = case.inputs()
    leaves = [t.clone().requires_grad_() for t in inputs]
    candidates = {OURS: operator, LOOP: case.loop, OTHER: case.other}
    functions = {name: f for name, f in candidates.items() if f is not None}
    ours = operator(*inputs)
    for name, function in functions.items():
        if name != OURS:
            torch.testing.assert_close(function(*inputs), ours, rtol=1e-3, atol=1e-3)
    grad = torch.randn_like(ours)

    def forward(function: Function) -> Turn:
        return lambda: inputs, lambda given: function(*given)

    def both(function: Function) -> Turn:
        return lambda: leaves, lambda given: torch.autograd.grad(
            function(*given), leaves, grad, allow_unused=True
        )

    found = {"forward": fastest({name: forward(f) for name, f in functions.items()}, budget)}
    if case.is_forward:
        del functions[OTHER]
    found["both"] = fastest({name: both(f) for name, f in functions.items()}, budget)
    return found


def show_threads(threads: int, cases: Sequence[Case], *, budget: float) -> None:
    """Print the table for some threads."""
    torch.set_num_threads(threads)
    rows: list[list[str]] = []
    for k, case in enumerate(cases):
        operator = pb.operator(f"bench::recurrence{threads}_{k}_{case.line}")
        row = [case.name]
        for seconds in measure(case, operator, budget).values():
            row.append(f"{1e3 * seconds[OURS]:.3g}")
            row += [
                f"{seconds[name] / seconds[OURS]:.2g} x" if name in seconds else ""
                for name in (LOOP, OTHER)
            ]
        rows.append(row)
    show(
        f"Recurrences, {threads} thread{'s' * (threads > 1)}: ms; × how long the others take",
        ["", "forward", LOOP, OTHER, "both", LOOP, OTHER],
        rows,
        ["other: scipy.signal.lfilter for biquad, PyTorch's function for the last ones"],
    )


def products(b: int, t: int, gates: int, d: int) -> tuple[Turn, Turn]:
    """Return the matrix products that a GRU or an LSTM cannot do without, of both directions.

    Each step multiplies its states by the weights, and in backward what arrives at the gates; the
    gradient of the weights is one product for all steps.
    """
    h, w, g, all_h, all_g = draw(
        (b, d), (d, gates * d), (b, gates * d), (t * b, d), (t * b, gates * d)
    )
    turned, states = w.t().contiguous(), all_h.t().contiguous()

    def forward(_: object) -> None:
        for _ in range(t):
            torch.mm(h, w)

    def both(_: object) -> None:
        forward(_)
        for _ in range(t):
            torch.mm(g, turned)
        torch.mm(states, all_g)

    return (lambda: None, forward), (lambda: None, both)


GATED = {"gru": (3, GRU), "lstm": (4, LSTM)}


def show_products(only: Sequence[str], *, budget: float) -> None:
    """Print how near recurrent networks are to the matrix products that they consist of."""
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    for name, (gates, line) in GATED.items():
        for b, t, d in NETWORKS:
            if not name.startswith(tuple(only) or ""):
                continue
            operator = pb.operator(f"bench::products{d}_{line}")
            x, w = draw((b, t, gates, d), (gates, d, d))
            leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            grad = torch.randn_like(operator(x, w))
            forward, both = products(b, t, gates, d)
            ours = {
                "forward": (lambda: None, lambda _, op=operator, x=x, w=w: op(x, w)),
                "both": (
                    lambda: None,
                    lambda _, op=operator, own=leaves, g=grad: torch.autograd.grad(
                        op(*own), own, g
                    ),
                ),
            }
            row = [f"{name} {b}×{t}×{d}"]
            for alone, way in ((forward, "forward"), (both, "both")):
                seconds = fastest({OURS: ours[way], OTHER: alone}, budget)
                row += [f"{1e3 * seconds[each]:.3g}" for each in (OURS, OTHER)]
            rows.append(row)
    if rows:
        show(
            "Recurrent networks beside the products of their matrices alone, 1 thread: ms",
            ["", "forward", "products", "both", "products"],
            rows,
            ["products: torch.mm of each step, and for the gradient of all weights one more"],
        )


FIRST = (
    *(lru_of(8, t, 256) for t in (200, 4000)),
    *(biquad_of(32, t) for t in (200, 4000)),
    *(scan_of(2, t, 256, 16) for t in (200, 1000)),
    *(plain(f"heat {t}×1024", HEAT, heat_loop, (1024,), (1024,), (t,)) for t in (200, 2000)),
    *(plain(f"gru 16×{t}×32", GRU, gru_loop, (16, t, 3, 32), (3, 32, 32)) for t in (100, 400)),
    *(plain(f"soft-DTW 8×{t}×{t}", DTW, dtw_loop, (8, t, t)) for t in (64, 256)),
)


def show_first(cases: Sequence[Case]) -> None:
    """Print what the first call of each line takes, with nothing in the cache."""
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    usual = os.environ.get("PULLBACK_CACHE")
    for k, case in enumerate(cases):
        operator = pb.operator(f"bench::first{k}_{case.line}")
        leaves = [t.requires_grad_() for t in case.inputs()]
        with TemporaryDirectory() as empty:
            os.environ["PULLBACK_CACHE"] = empty
            try:
                before = used()
                differentiate(operator, leaves)
                python, compiler = (end - start for start, end in zip(before, used(), strict=True))
            finally:
                if usual is None:
                    del os.environ["PULLBACK_CACHE"]
                else:
                    os.environ["PULLBACK_CACHE"] = usual
        rows.append([case.name, f"{python + compiler:.2f}", f"{compiler:.2f}"])
    show(
        "The first call and its backward, nothing compiled before: s of the processor",
        ["", "all", "the compiler"],
        rows,
        ["with the comparison of loops and PyTorch's operations"],
    )


def used() -> tuple[float, float]:
    """Return the seconds of this process, and of those that it has started and that ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


HELD = (
    scan_of(2, 1000, 256, 16),
    scan_of(2, 8000, 256, 16),
    plain("soft-DTW 8×256×256 (fronts)", DTW, dtw_loop, (8, 256, 256)),
)


def show_held(cases: Sequence[Case], *, budget: float) -> None:
    """Print what forward and backward hold at once, and how long they take."""
    torch.set_num_threads(1)
    give_back_at_once()
    rows: list[list[str]] = []
    for k, case in enumerate(cases):
        leaves = [t.requires_grad_() for t in case.inputs()]
        functions: dict[str, Function] = {
            OURS: pb.operator(f"bench::held{k}_{case.line}"),
            ALL_KEPT: pb.operator(f"bench::all_held{k}_{case.line}"),
            **({LOOP: case.loop} if case.loop else {}),
        }
        with keeping_all():
            differentiate(functions[ALL_KEPT], leaves)
        runs = {
            name: partial(differentiate, function, leaves) for name, function in functions.items()
        }
        turns = {name: (lambda: None, lambda _, run=run: run()) for name, run in runs.items()}
        seconds = fastest(turns, budget)
        returned = sum(leaf.nbytes for leaf in leaves)
        held = {name: f"{max(0.0, peak(run) - returned) / 1e6:.3g}" for name, run in runs.items()}
        row = [[f"{1e3 * seconds[name]:.3g}", held[name]] for name in (OURS, ALL_KEPT, LOOP)]
        rows.append([case.name, *(cell for pair in row for cell in pair)])
    show(
        "Forward and backward, 1 thread: ms, and MB held at once beyond inputs and gradients",
        ["", OURS, "MB", ALL_KEPT, "MB", LOOP, "MB"],
        rows,
        [f"{ALL_KEPT}: without checkpoints, the states of both directions in memory"],
    )


def differentiate(function: Function, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of a function's sum."""
    return torch.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)


@contextmanager
def keeping_all() -> Generator[None]:
    """Have gradients keep all states in calls that are first made here."""
    usual, recur.LARGE = recur.LARGE, 2**62
    try:
        yield
    finally:
        recur.LARGE = usual


def main(only: Iterable[str] = (), *, budget: float = 2) -> None:
    """Print a table for each number of threads.

    Args:
        only: the beginnings of the names of the cases; all without one.
        budget: seconds for each measurement.
    """
    only = tuple(only)
    chosen = [case for case in CASES if case.name.startswith(tuple(only) or "")]
    for threads in THREADS if chosen else ():
        show_threads(threads, chosen, budget=budget)
    show_products(only, budget=budget)
    first = [case for case in FIRST if case.name.startswith(tuple(only) or "")]
    if first:
        show_first(first)
    held = [case for case in HELD if case.name.startswith(tuple(only) or "")]
    if held:
        show_held(held, budget=budget)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
