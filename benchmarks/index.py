"""Index notation: seconds, errors and memory, forward and backward, beside PyTorch and KeOps."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch._inductor.exc import InductorError

import pullback as pb
from benchmarks.formula import Turn, fastest
from benchmarks.index_cases import CASES, Case, Function
from benchmarks.measure import show

OURS, EAGER, COMPILED, FUSED, KEOPS = "pullback", "eager", "compile", "fused", "KeOps"
DIRECTIONS = ("forward", "backward")
PYTORCH = (EAGER, COMPILED, FUSED)
# What Linux counts of this process, and where it begins anew to count the most.
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(kw_only=True)
class Row:
    """What was measured of one operator, by direction and candidate.

    Attributes:
        seconds: of a call; backward alone, of a graph recorded before.
        errors: the largest error beside float64, relative to the largest value.
        memory: the most that was held at once beyond what was there before, in bytes; of forward,
            and of forward and backward together.
        build: seconds from definition to the first results, forward and backward.
    """

    case: Case
    functions: dict[str, Function]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    errors: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    memory: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    build: float = 0.0

    def ratio(self, direction: str, peers: Iterable[str]) -> float:
        """Return how many times faster we are than the best of some peers; NaN without one."""
        seconds = self.seconds[direction]
        others = [seconds[name] for name in peers if name in seconds]
        return min(others) / seconds[OURS] if others else math.nan


def candidates(case: Case, name: str, *, quick: bool) -> dict[str, Function]:
    """Return what computes a case."""
    found: dict[str, Function] = {OURS: pb.operator(f"bench::{name}{case.line}"), EAGER: case.eager}
    if case.fused:
        found[FUSED] = case.fused
    if not quick:
        torch._dynamo.reset()
        found[COMPILED] = torch.compile(case.eager, dynamic=False, fullgraph=True)
        if case.keops and (keops := keops_of(case)):
            found[KEOPS] = keops
    return found


def keops_of(case: Case) -> Function | None:
    """Return a case by KeOps, if that is installed."""
    try:
        from pykeops.torch import LazyTensor  # noqa: PLC0415  (optional)
    except ImportError:
        return None
    keops = case.keops
    assert keops
    return lambda *inputs: keops(LazyTensor, *inputs)


def measure(case: Case, name: str, *, quick: bool, budget: float) -> Row:
    """Measure one case."""
    begin = time.perf_counter()
    functions = candidates(case, name, quick=quick)
    row = Row(case=case, functions=functions)
    inputs = case.inputs()
    leaves, wrt = leaves_of(inputs)
    output = functions[OURS](*leaves)
    grad = grad_of(output)
    torch.autograd.grad(output, wrt, grad)
    row.build = time.perf_counter() - begin
    if not quick and not compiles(functions[COMPILED], inputs, leaves, wrt):
        del functions[COMPILED]

    def forward(function: Function) -> Turn:
        return lambda: inputs, lambda given: function(*given)

    def backward(function: Function) -> Turn:
        return lambda: function(*leaves), lambda y: torch.autograd.grad(y, wrt, grad)

    doubles = [t.double().requires_grad_() if t.is_floating_point() else t for t in inputs]
    exact = case.eager(*doubles)
    wanted: dict[str, Sequence[Tensor]] = {
        "forward": [exact.detach()],
        "backward": torch.autograd.grad(
            exact, [t for t in doubles if t.requires_grad], grad.double()
        ),
    }
    for direction, turn_of in (("forward", forward), ("backward", backward)):
        turns = {who: turn_of(function) for who, function in functions.items()}
        row.errors[direction] = {}
        for who, (before, run) in turns.items():
            got = run(before())
            values = [got] if isinstance(got, Tensor) else got
            row.errors[direction][who] = worst(values, wanted[direction])
        row.seconds[direction] = fastest(turns, "cpu", budget=budget)
    return row


def compiles(
    function: Function, inputs: Sequence[Tensor], leaves: Sequence[Tensor], wrt: Sequence[Tensor]
) -> bool:
    """Return whether `torch.compile` has code for both directions, which it has not everywhere.

    It stops at one assertion of its own for processors with AVX-512.
    """
    try:
        function(*inputs)
        output = function(*leaves)
        torch.autograd.grad(output, wrt, grad_of(output))
    except InductorError as error:
        print(f"torch.compile is left out: {str(error).splitlines()[0]}")
        return False
    return True


def leaves_of(inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return inputs that are differentiated by, and those of them that have a gradient."""
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    return leaves, [t for t in leaves if t.requires_grad]


def grad_of(output: Tensor) -> Tensor:
    """Return a gradient to begin with."""
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(1))


def weigh(row: Row) -> None:
    """Measure the memory of one case."""
    torch._dynamo.reset()  # cases share code, of which it compiles so many versions at most
    inputs = row.case.inputs()
    leaves, wrt = leaves_of(inputs)
    grad = grad_of(row.functions[EAGER](*inputs))
    for direction in DIRECTIONS:
        row.memory[direction] = {}
        for name, function in row.functions.items():

            def run(function: Function = function, direction: str = direction) -> object:
                if direction == "forward":
                    return function(*inputs)
                return torch.autograd.grad(function(*leaves), wrt, grad)

            row.memory[direction][name] = peak(run)


def worst(values: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return the largest error, relative to the largest value of its tensor."""
    errors = [
        ((value.double() - want).abs().max() / want.abs().max()).item()
        for value, want in zip(values, exact, strict=True)
    ]
    assert max(errors) < 1e-3, errors
    return max(errors)


def peak(run: Callable[[], object]) -> float:
    """Return the most memory that a call holds at once beyond what is there, by Linux's count.

    It runs in a thread of its own: what others have freed lies in their heaps, which a call would
    fill and keep.
    """
    if not RESET.exists():
        return math.nan
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(peak_here, run).result()


def peak_here(run: Callable[[], object]) -> float:
    """Return the same, in this thread."""
    run()
    ctypes.CDLL(None).malloc_trim(0)
    RESET.write_text("5")
    before = held("VmRSS")
    kept = run()
    most = held("VmHWM")
    del kept
    return most - before


def give_back_at_once() -> None:
    """From here on give freed memory back at once, so that what is held can be seen."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 2**16)  # M_MMAP_MAX
    libc.mallopt(-3, 2**16)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 2**16)  # M_TRIM_THRESHOLD


def held(what: str) -> float:
    """Return one line of the kernel's account of this process, in bytes."""
    line = next(row for row in STATUS.read_text().splitlines() if row.startswith(what))
    return 1024.0 * int(line.split()[1])


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [math.log(value) for value in values if not math.isnan(value)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def shown(row: Row, direction: str) -> list[str]:
    """Return a row of the table of seconds."""
    seconds = row.seconds[direction]
    cells = [f"{1e3 * seconds[n]:.2f}" if n in seconds else "" for n in (OURS, *PYTORCH, KEOPS)]
    ratio = row.ratio(direction, PYTORCH)
    return [f"{row.case.name}, {direction}", *cells, f"{ratio:.2f} x"]


def print_tables(rows: Sequence[Row]) -> None:
    """Print seconds, memory and errors."""
    names = (OURS, *PYTORCH, KEOPS)
    own = [row for row in rows if row.case.family]
    ratios = [row.ratio(direction, (EAGER, COMPILED)) for row in own for direction in DIRECTIONS]
    others = [row.ratio(d, PYTORCH) for row in rows if not row.case.family for d in DIRECTIONS]
    keops = [row.ratio(d, (KEOPS,)) for row in rows for d in DIRECTIONS if KEOPS in row.seconds[d]]
    notes = ["the last column: how many times faster than the best of PyTorch"]
    if own:
        notes.append(
            f"own loops beside the best of eager and compile, geometric mean: {mean(ratios):.2f} x"
        )
    if others:
        notes.append(f"other rows beside the best of PyTorch: the slowest is {min(others):.2f} x")
    if keops:
        notes.append(f"beside KeOps: {min(keops):.1f} x at least")
    title = f"Index notation, float32, {torch.get_num_threads()} threads, ms"
    table = [shown(row, direction) for row in rows for direction in DIRECTIONS]
    show(title, ["operator", *names, "ours"], table, notes)
    print_by_name(rows, "Most memory held beyond what was there, MiB", "memory", 2.0**-20, ".0f")
    print_by_name(rows, "Largest error beside float64, relative", "errors", 1, ".1e")
    build = [[row.case.name, f"{row.build:.2f}"] for row in rows]
    show("From definition to first results, forward and backward, s", ["operator", ""], build, [])


def print_by_name(rows: Sequence[Row], title: str, what: str, unit: float, digits: str) -> None:
    """Print a table of one figure by candidate."""
    names = (OURS, *PYTORCH, KEOPS)
    table: list[list[str]] = []
    for row in rows:
        for direction in DIRECTIONS:
            values: Mapping[str, float] = getattr(row, what)[direction]
            cells = [format(values[n] * unit, digits) if n in values else "" for n in names]
            table.append([f"{row.case.name}, {direction}", *cells])
    show(title, ["operator", *names], table, [])


def main(only: Iterable[str] = (), *, quick: bool = False, budget: float = 0.5) -> list[Row]:
    """Print the tables; return their rows.

    Args:
        only: the beginnings of the names of the cases; all without one.
        quick: leave out what takes long to compile: `torch.compile` and KeOps.
        budget: seconds for each measurement.
    """
    chosen = [(k, case) for k, case in enumerate(CASES) if case.name.startswith(tuple(only) or "")]
    rows = [measure(case, f"c{k}", quick=quick, budget=budget) for k, case in chosen]
    give_back_at_once()
    for row in rows:
        weigh(row)
    print_tables(rows)
    return rows


if __name__ == "__main__":
    import sys

    main([word for word in sys.argv[1:] if word != "--quick"], quick="--quick" in sys.argv)
