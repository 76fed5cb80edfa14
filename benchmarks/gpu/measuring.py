"""One operator: ours and its peers, forward and backward, compared with float64 and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import pullback as pb
from benchmarks.gpu import clock, exact
from benchmarks.gpu.candidates import COMPILED, EAGER, LOOPS, define, peers, ways_of, with_loops
from benchmarks.gpu.cases import COPY, Case, Function
from benchmarks.gpu.clock import Turn
from benchmarks.gpu.exact import Exact
from benchmarks.gpu.place import Place, bytes_of
from benchmarks.gpu.rows import OURS, Timing

# What cannot be gone on from: the GPU takes no further work of this process.
LOST = ("CUDA error", "CUDA: an illegal", "CUDA: unspecified", "misaligned address")


class GpuLost(Exception):  # noqa: N818  (it is the GPU's state, and no mistake)
    """A kernel has failed, so that this process can do nothing more on the GPU."""


@dataclass
class Measuring:
    """One operator, its inputs and what float64 gives."""

    case: Case
    place: Place
    inputs: tuple[Tensor, ...] = ()
    grad: Tensor = field(default_factory=lambda: torch.empty(0))
    wanted: Exact | None = None
    compiling: float | None = None
    notes: list[str] = field(default_factory=list[str])

    def functions(self) -> dict[str, Function]:
        """Return ours and its peers, those that work."""
        begin = time.perf_counter()
        operator = define(self.case)
        self.inputs = self.case.inputs(small=self.place.rehearsal)
        found: dict[str, Function] = {}
        if ways := self.attempt("plan", lambda: ways_of(operator, self.inputs)):
            self.notes += ways
        output = self.attempt(OURS, lambda: operator(*self.inputs))
        self.notes.append(f"the first result took {time.perf_counter() - begin:.1f} s")
        shape = self.case.eager if output is None else None
        output = shape(*self.inputs) if shape else output
        self.grad = draw_gradient(output)
        self.wanted = exact.compute_exactly(self.case, self.inputs, self.grad)
        self.try_one(OURS, lambda: operator, found)
        if any(": PyTorch (measured" in way for way in ways or []):
            self.try_one(LOOPS, lambda: with_loops(self.case, self.run), found)
        for name, make in peers(self.case, self.place).items():
            if name != EAGER or self.case.fits(self.inputs, self.place.free()):
                begin = time.perf_counter()
                self.try_one(name, make, found)
                if name == COMPILED and name in found:
                    self.compiling = time.perf_counter() - begin
            else:
                self.notes.append(f"{name}: its intermediate values do not fit the memory")
        return found

    def try_one(self, name: str, make: Callable[[], Function], found: dict[str, Function]) -> None:
        """Make a candidate and call it once, forward and backward."""
        function = self.attempt(name, make)
        if function and self.attempt(name, lambda: self.run(function)) is not None:
            found[name] = function

    def attempt(self, name: str, run: Callable[[], Any]) -> Any:
        """Return what something returns; None, and a note, if it fails."""
        try:
            found = run()
            torch.cuda.synchronize()
        except Exception as error:
            first = str(error).strip().partition("\n")[0][:200]
            self.notes.append(f"{name} failed: {type(error).__name__}: {first}")
            if any(word in str(error) for word in LOST):
                raise GpuLost(self.notes[-1]) from error
            return None
        return found

    def leaves(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return inputs that are differentiated by."""
        return tuple(t.detach().requires_grad_(t.is_floating_point()) for t in inputs)

    def run(self, function: Function) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the output and the gradients."""
        leaves = self.leaves(self.inputs)
        output = function(*leaves)
        wrt = [t for t in leaves if t.requires_grad]
        return output.detach(), torch.autograd.grad(output, wrt, self.grad)

    def turns(self, functions: dict[str, Function], way: str) -> dict[str, Turn]:
        """Return what is timed."""
        given = clock.rotated(self.inputs, self.place)
        if way == "forward":
            return {
                name: (lambda: next(given), lambda each, run=run: run(*each))
                for name, run in functions.items()
            }

        def recorded(run: Function) -> tuple[Tensor, list[Tensor]]:
            leaves = self.leaves(next(given))
            return run(*leaves), [t for t in leaves if t.requires_grad]

        def backward(each: tuple[Tensor, list[Tensor]]) -> object:
            return torch.autograd.grad(*each, self.grad)

        return {name: (lambda run=run: recorded(run), backward) for name, run in functions.items()}

    def moved(self, operator: pb.Operator, way: str) -> int:
        """Return the bytes that have to be read and written, each once."""
        real = [t for t in self.inputs if t.is_floating_point()]
        if way == "forward":
            return bytes_of([*self.inputs, self.grad])
        names = {spec.name: t for spec, t in zip(operator.line.tensors, self.inputs, strict=True)}
        saved = operator.derivative().saved
        # What is no input is the output.
        read = [names.get(name, self.grad) for name in saved]
        return bytes_of([*read, self.grad, *real])


def draw_gradient(output: Tensor) -> Tensor:
    """Return what arrives at an output: no ones, of which a softmax's gradient is 0."""
    draw = torch.Generator("cuda").manual_seed(1)
    return (torch.rand(output.shape, device="cuda", generator=draw) + 0.5).to(output.dtype)


def measure(case: Case, place: Place, budget: float) -> Iterator[Timing]:
    """Yield the figures of both directions.

    Args:
        case: the operator.
        place: where.
        budget: about how many seconds it may take.
    """
    begin = time.perf_counter()
    now = Measuring(case, place)
    with torch.random.fork_rng(devices=[]):
        functions = now.functions()
    assert now.wanted
    operator = define(case)
    left = max(0.2, budget - (time.perf_counter() - begin))
    left = min(left, 0.4) if place.rehearsal else left
    for way in ("forward", "backward"):
        row = Timing(
            case=case.shown(small=place.rehearsal),
            way=way,
            compiling=now.compiling,
            notes=list(now.notes),
        )
        now.notes.clear()
        right = {name: run for name, run in functions.items() if is_right(now, name, run, way, row)}
        turns = now.turns(right, way)
        moved = now.moved(operator, way)
        if not place.rehearsal and place.free() > 2 * moved:
            turns[COPY] = clock.copy_of(moved, place)
        held = bytes_of(now.inputs) + 2 * bytes_of([now.grad])
        row.seconds = clock.seconds_by_turns(turns, place, budget=left / 2, held=held)
        judge(row, case, place)
        yield row


def is_right(now: Measuring, name: str, run: Function, way: str, row: Timing) -> bool:
    """Compare a candidate's results with those in float64; what is wrong is not timed."""
    peak = now.place.watch()
    found = now.attempt(name, lambda: now.run(run))
    row.notes += now.notes
    if way == "backward" and now.case.is_loop:
        row.notes.append(f"{name}: {peak() / 1e6:.0f} MB at most, forward and backward")
    now.notes.clear()
    if found is None:
        return False
    assert now.wanted
    output, gradients = found
    forward = way == "forward"
    got = [output] if forward else list(gradients)
    want = [now.wanted.output] if forward else list(now.wanted.gradients)
    row.errors[name] = exact.worst(got, want)
    if row.errors[name] <= exact.ALLOWED[now.case.dtype]:
        return True
    row.notes.append(f"{name} is WRONG by {row.errors[name]:.1e} of the largest value: not timed")
    return False


def judge(row: Timing, case: Case, place: Place) -> None:
    """Fill in the share of the bound that is reached; a rehearsal reaches none."""
    bound = case.bounds.get(row.way)
    if place.rehearsal or bound is None or OURS not in row.seconds:
        return
    row.bound, row.expected = bound.name, bound.share
    ours = row.seconds[OURS].median
    if bound.pairs:
        row.share = bound.pairs / ours / bound.rate
    elif COPY in row.seconds:
        row.share = row.seconds[COPY].median / ours
