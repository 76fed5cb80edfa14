"""Formulas: how fast, how near to the bandwidth of memory, how exact, and how soon there."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import edit, start
from benchmarks.formula_peers import CASES, COMPILED, JITERATOR, OURS, Case, Function, candidates
from benchmarks.formula_tables import COPY, Row, Setting, print_means, print_rows
from benchmarks.measure import Figure, figure
from pullback.kernels import cache

SIZES = {"cpu": (2**22, 2**12), "cuda": (2**26, 2**22, 2**12)}
GELU = "0.5*x*(1 + {tanh}(0.7978845608028654*(x + 0.044715{k}*x**3)))"
FIRST = """
import os, time, torch
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["PULLBACK_CACHE"]
x, start = torch.ones(16), time.perf_counter()
{define}
operator(x)
print(time.perf_counter() - start)
"""
DEFINE = (
    'import pullback as pb\noperator = pb.operator("bench::first(x[...]) -> y[...] = {formula}")'
)
COMPILE = "operator = torch.compile(lambda x: {formula}, dynamic=False, fullgraph=True)"


Turn = tuple[Callable[[], Any], Callable[[Any], object]]  # what comes before, and what is timed


def fastest(turns: dict[str, Turn], device: str, *, budget: float) -> dict[str, float]:
    """Return the least seconds of each candidate's calls, a few a round and all by turns.

    The first call of a turn is not counted: a candidate has to find its own memory again.

    Args:
        turns: the candidates.
        device: whose clock to use.
        budget: after how many seconds no further round starts; there are three at least.
    """
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    calls = dict.fromkeys(turns, 1)
    end = time.perf_counter() + budget
    for count in itertools.count():
        if count >= 3 and time.perf_counter() > end:
            break
        for name, (before, run) in turns.items():
            measured = [timed(run, before(), device) for _ in range(calls[name] + 1)][1:]
            seconds[name] += measured
            calls[name] = max(1, min(200, int(0.005 / min(measured))))
    return {name: min(values) for name, values in seconds.items()}


def timed(run: Callable[[Any], object], given: object, device: str) -> float:
    if device == "cpu":
        begin = time.perf_counter()
        run(given)
        return time.perf_counter() - begin
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run(given)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3


def copying(moved: int, device: str) -> Turn:
    """Return a copy that reads half of some bytes and writes the others."""
    x, y = (torch.zeros(moved // 2, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: y, lambda to: to.copy_(x)


def ulps(values: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return the largest error, in the distance of float32's numbers at the exact value."""
    worst = 0.0
    for value, want in zip(values, exact, strict=True):
        torch.testing.assert_close(value, want.float(), rtol=1e-3, atol=1e-4)
        exponent = torch.frexp(want).exponent.clamp(min=-125)
        error = torch.ldexp((value.double() - want).abs(), 24 - exponent)
        worst = max(worst, error.max().item())
    return worst


def measure(case: Case, setting: Setting, *, quick: bool, budget: float) -> list[Row]:
    """Measure forward without gradients, and backward alone, of a graph recorded before."""
    inputs = case.tensors(setting.size, setting.device)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    grad = torch.randn(setting.size, generator=torch.Generator().manual_seed(1)).to(setting.device)

    def forward(function: Function) -> Turn:
        return lambda: inputs, lambda given: function(*given)

    def backward(function: Function) -> Turn:
        return lambda: function(*leaves), lambda y: torch.autograd.grad(y, leaves, grad)

    doubles = [tensor.double().requires_grad_() for tensor in inputs]
    result = case.torch(*doubles)
    exact = {
        "forward": [result.detach()],
        "backward": torch.autograd.grad(result, doubles, grad.double()),
    }
    functions = candidates(case, setting.device, quick=quick)
    rows: list[Row] = []
    for direction, turn_of in (("forward", forward), ("backward", backward)):
        # Jiterator's kernels have no derivative.
        turns = {
            name: turn_of(function)
            for name, function in functions.items()
            if direction == "forward" or name != JITERATOR
        }
        errors: dict[str, float] = {}
        for name, (before, run) in turns.items():
            values: Any = run(before())
            errors[name] = ulps([values] if direction == "forward" else values, exact[direction])
        moved = case.bytes[direction] * setting.size
        turns[COPY] = copying(moved, setting.device)
        began = work_done()
        seconds = fastest(turns, setting.device, budget=budget)
        rows.append(
            Row(
                setting=setting,
                case=case,
                direction=direction,
                seconds=seconds,
                errors=errors,
                busy=busy_since(began),
            )
        )
    return rows


def settings(sizes: Iterable[int] | None, threads: Iterable[int]) -> list[Setting]:
    """Return where to measure, for each device of the machine."""
    return [
        Setting(device=device, size=size, threads=count)
        for device in (("cpu", "cuda") if torch.cuda.is_available() else ("cpu",))
        for count in (threads if device == "cpu" else (1,))
        for size in sizes or SIZES[device]
    ]


def first_results(*, quick: bool) -> dict[str, Figure]:
    """Return the seconds from definition to first result in fresh processes.

    Pullback's runtime is there, the formula is new to every cache; Inductor's cache is empty.
    """
    formula = GELU.format(tanh="tanh", k="{k}")

    def ours() -> float:
        define = DEFINE.format(formula=formula.format(k=next(edit.numbers)))
        return start.run(FIRST.format(define=define), str(cache.folder()))

    figures = {OURS: figure([ours() for _ in range(1 if quick else 5)])}
    if not quick:
        define = COMPILE.format(formula=GELU.format(tanh="torch.tanh", k=""))
        with tempfile.TemporaryDirectory() as empty:
            figures[COMPILED] = figure([start.run(FIRST.format(define=define), empty)])
    return figures


def work_done() -> tuple[float, float, float]:
    """Return the seconds that passed, that all processors worked, and that we worked."""
    ours = sum(os.times()[:4])
    statistics = Path("/proc/stat")
    if not statistics.exists():
        return time.time(), ours, ours
    user, nice, system, _idle, _wait, *interrupts_and_stolen = map(
        int, statistics.read_text().split()[1:9]
    )
    worked = user + nice + system + sum(interrupts_and_stolen)
    return time.time(), worked / os.sysconf("SC_CLK_TCK"), ours


def busy_since(began: tuple[float, float, float]) -> float:
    """Return how many processors other programs kept busy."""
    passed, all_worked, we_worked = (
        now - then for now, then in zip(work_done(), began, strict=True)
    )
    return max(0.0, all_worked - we_worked) / passed


def main(
    sizes: Iterable[int] | None = None,
    threads: Iterable[int] = (1, 2),
    *,
    quick: bool = False,
    budget: float = 0.7,
) -> tuple[list[Row], dict[str, Figure]]:
    """Print the tables; return their rows and the seconds to the first result.

    Args:
        sizes: numbers of elements; those of each device if not given.
        threads: on the CPU.
        quick: leave out what takes time to build: torch.compile, and ours at 1 ulp.
        budget: for how many seconds the candidates of a row take turns.
    """
    before = torch.get_num_threads()
    rows: list[Row] = []
    for setting in settings(sizes, threads):
        torch.set_num_threads(setting.threads)
        some = [row for case in CASES for row in measure(case, setting, quick=quick, budget=budget)]
        print_rows(setting, some)
        rows += some
    torch.set_num_threads(before)
    first = first_results(quick=quick)
    if not quick:
        print_means(rows, first)
    return rows, first


if __name__ == "__main__":
    main()
