"""Gathers over sizes: embedding bags and sums or maxima over neighbours, one thread and two.

Index notation beside `F.embedding_bag`, and beside `index_add` or `scatter_reduce`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import pullback as pb
from benchmarks.formula import Turn
from benchmarks.index_cases import Case, Function, bag, neighbours
from benchmarks.measure import keep_memory, show

OURS, PEER = "pullback", "peer"
THREADS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A case of one size.

    Attributes:
        case: its line, its inputs and its peers.
        peer: the one that counts.
        dtype: of what is not an index.
        index: the dtype of indices.
    """

    case: Case
    peer: Function
    dtype: torch.dtype = torch.float32
    index: torch.dtype = torch.int64

    @property
    def name(self) -> str:
        """Its name, with the dtypes that are not the usual ones."""
        others = [str(d).removeprefix("torch.") for d in (self.dtype, self.index)]
        return " ".join([self.case.name, *(d for d in others if d not in ("float32", "int64"))])

    @property
    def line(self) -> str:
        """Its line."""
        return self.case.line.replace("int64", str(self.index).removeprefix("torch."))

    def inputs(self) -> tuple[Tensor, ...]:
        """Return its inputs, in its dtypes."""
        made = self.case.inputs()
        return tuple(t.to(self.dtype if t.is_floating_point() else self.index) for t in made)


def bag_of(rows: int, width: int, count: int, picked: int, *dtypes: torch.dtype) -> Sized:
    """Return an embedding bag, beside PyTorch's."""
    case = bag(rows, width, count, picked)
    assert case.fused
    return Sized(case=case, peer=case.fused, **dict(zip(("dtype", "index"), dtypes, strict=False)))


def graph_of(kind: str, nodes: int, width: int, degree: int) -> Sized:
    """Return a sum or maximum over neighbours, beside the scatter that libraries of graphs use."""
    case = neighbours(kind, nodes, width, degree)
    return Sized(case=case, peer=case.eager)


SIZES = (
    *(bag_of(50_000, 64, 4096, picked) for picked in (4, 16, 32, 128)),
    *(bag_of(50_000, width, 4096, 32) for width in (1, 4, 7, 16, 32, 100, 128, 200, 256, 300, 768)),
    *(bag_of(rows, 64, 20_000, 16) for rows in (1000, 10_000, 1_000_000)),
    *(bag_of(1000, width, 1000, 4) for width in (1, 8, 64)),
    bag_of(1_000_000, 1, 100_000, 32),
    bag_of(1_000_000, 16, 100_000, 16),
    bag_of(50_000, 64, 4096, 32, torch.float32, torch.int32),
    *(bag_of(50_000, width, 4096, 32, torch.bfloat16) for width in (1, 7, 64, 128)),
    *(graph_of(kind, 20_000, width, 16) for kind in ("sum", "max") for width in (1, 7, 64, 128)),
    *(graph_of(kind, 100_000, width, 8) for kind in ("sum", "max") for width in (1, 32)),
)


def measure(sized: Sized, operator: Function, budget: float) -> Mapping[str, dict[str, float]]:
    """Return the seconds of forward, of backward alone and of both, by direction and candidate."""
    inputs = sized.inputs()
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    wrt = [leaf for leaf in leaves if leaf.requires_grad]
    functions = {OURS: operator, PEER: sized.peer}
    results = {name: function(*leaves) for name, function in functions.items()}
    room = 1e-4 if sized.dtype == torch.float32 else 5e-2
    torch.testing.assert_close(results[OURS], results[PEER], rtol=room, atol=room)
    grad = torch.randn_like(results[OURS])

    def forward(function: Function) -> Turn:
        return lambda: inputs, lambda given: function(*given)

    def backward(function: Function) -> Turn:
        return lambda: function(*leaves), lambda y: torch.autograd.grad(y, wrt, grad)

    def both(function: Function) -> Turn:
        return lambda: leaves, lambda given: torch.autograd.grad(function(*given), wrt, grad)

    return {
        way.__name__: fastest({name: way(f) for name, f in functions.items()}, budget)
        for way in (forward, backward, both)
    }


def fastest(turns: Mapping[str, Turn], budget: float) -> dict[str, float]:
    """Return the least seconds of each candidate's calls, a few together and all by turns.

    One thread is timed by its own clock, which stands still while other programs run; of a single
    call that takes microseconds it says too little, and of the first ones after another candidate
    that this one's memory is elsewhere by now.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    least = dict.fromkeys(turns, math.inf)
    end, rounds = time.perf_counter() + budget, 0
    while rounds < 3 or time.perf_counter() < end:
        rounds += 1
        for name, (before, run) in turns.items():
            run(before())  # it has to find its own memory again
            several = [before() for _ in range(max(1, min(200, int(0.01 / least[name]))))]
            begin = clock()
            for given in several:
                run(given)
            least[name] = min(least[name], (clock() - begin) / len(several))
    return least


def show_threads(threads: int, sizes: Sequence[Sized], *, budget: float) -> list[float]:
    """Print the table for some threads; return how many times faster forward is, by size."""
    torch.set_num_threads(threads)
    rows: list[list[str]] = []
    ratios: list[float] = []
    operators: dict[str, Function] = {}
    for sized in sizes:
        if sized.line not in operators:
            name = f"bench::bags{threads}_{len(operators)}"
            operators[sized.line] = pb.operator(f"{name}{sized.line}")
        found = measure(sized, operators[sized.line], budget)
        times = {way: seconds[PEER] / seconds[OURS] for way, seconds in found.items()}
        ratios.append(times["forward"])
        milliseconds = [f"{1e3 * found['forward'][name]:.3f}" for name in (OURS, PEER)]
        rows.append([sized.name, *milliseconds, *(f"{ratio:.2f} x" for ratio in times.values())])
    show(
        f"Gathers, {threads} thread{'s' * (threads > 1)}: ms forward; × the peer's speed",
        ["", OURS, PEER, "forward", "backward", "both"],
        rows,
        ["bag: beside F.embedding_bag; neighbours: beside index_add or scatter_reduce"],
    )
    return ratios


def main(only: Iterable[str] = (), *, budget: float = 0.5) -> None:
    """Print a table for each number of threads.

    Args:
        only: the beginnings of the names of the sizes; all without one.
        budget: seconds for each measurement.
    """
    keep_memory()
    chosen = [sized for sized in SIZES if sized.name.startswith(tuple(only) or "")]
    for threads in THREADS:
        show_threads(threads, chosen, budget=budget)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
