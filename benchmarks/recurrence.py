"""Recurrences over sizes: beside a loop in Python, and beside SciPy or PyTorch's own function."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

import pullback as pb
from benchmarks.bags import fastest
from benchmarks.formula import Turn
from benchmarks.index import give_back_at_once, peak
from benchmarks.index_cases import Function
from benchmarks.measure import keep_memory, show
from benchmarks.recurrence_cases import CASES, FIRST, HELD, NETWORKS, Case, draw
from benchmarks.recurrence_lines import GRU, LSTM
from benchmarks.recurrence_peers import compile_by_numba, lru_scan
from pullback.bind.math import recur

OURS, LOOP, OTHER = "pullback", "Python loop", "other"
NUMBA, SCAN = "numba", "associative_scan"
ALL_KEPT = "all states kept"
THREADS = (1, 2)


def leaves_of(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of which those that are real have gradients."""
    return [tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in inputs]


def measure(
    case: Case, operator: Function, budget: float, peers: Mapping[str, Function] | None = None
) -> Mapping[str, dict[str, float]]:
    """Return the seconds of forward and of both directions, by candidate."""
    inputs = case.inputs()
    leaves = leaves_of(inputs)
    wrt = [leaf for leaf in leaves if leaf.requires_grad]
    candidates = {OURS: operator, LOOP: case.loop, OTHER: case.other, **(peers or {})}
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
            function(*given), wrt, grad, allow_unused=True
        )

    found = {"forward": fastest({name: forward(f) for name, f in functions.items()}, budget)}
    if case.is_forward or peers:
        # They have no backward.
        functions = {n: f for n, f in functions.items() if n not in {OTHER, NUMBA}}
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


def show_peers(cases: Sequence[Case], *, budget: float) -> None:
    """Print forward beside loops that numba compiles, and both beside `associative_scan`."""
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    for k, case in enumerate(cases):
        kind = case.name.split()[0]
        found = {NUMBA: compile_by_numba(kind), SCAN: lru_scan if kind == "lru" else None}
        peers = {name: function for name, function in found.items() if function}
        if not peers:
            continue
        operator = pb.operator(f"bench::peers{k}_{case.line}")
        seconds = measure(replace(case, loop=None, other=None), operator, budget, peers)
        row = [case.name]
        for direction, names in (("forward", (NUMBA, SCAN)), ("both", (SCAN,))):
            each = seconds[direction]
            row.append(f"{1e3 * each[OURS]:.3g}")
            row += [f"{each[name] / each[OURS]:.2g} x" if name in each else "" for name in names]
        rows.append(row)
    if rows:
        show(
            "Recurrences beside what else they are written with, 1 thread: ms; × their time",
            ["", "forward", NUMBA, SCAN, "both", SCAN],
            rows,
            [f"{NUMBA}: loops by hand, if it is installed; {SCAN}: eager"],
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


def show_first(cases: Sequence[Case]) -> None:
    """Print what the first call of each line takes, with nothing in the cache."""
    torch.set_num_threads(1)
    rows: list[list[str]] = []
    usual = os.environ.get("PULLBACK_CACHE")
    for k, case in enumerate(cases):
        operator = pb.operator(f"bench::first{k}_{case.line}")
        leaves = leaves_of(case.inputs())
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


def show_held(cases: Sequence[Case], *, budget: float) -> None:
    """Print what forward and backward hold at once, and how long they take."""
    torch.set_num_threads(1)
    give_back_at_once()
    rows: list[list[str]] = []
    for k, case in enumerate(cases):
        leaves = leaves_of(case.inputs())
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
    wrt = [leaf for leaf in leaves if leaf.requires_grad]
    return torch.autograd.grad(function(*leaves).sum(), wrt, allow_unused=True)


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
    keep_memory()
    for threads in THREADS if chosen else ():
        show_threads(threads, chosen, budget=budget)
    show_peers(chosen, budget=budget)
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
