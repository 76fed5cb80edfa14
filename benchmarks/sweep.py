"""Index notation over sizes that are drawn anew: where it falls off a cliff, and where a peer wins.

`python -m benchmarks.sweep --minutes 10 --peers eager,compile --seed 7`. One thread, by its own
clock, the least of rounds by turns.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

import pullback as pb
from benchmarks.bags import fastest
from benchmarks.formula import Turn, copying
from benchmarks.index_cases import Function
from benchmarks.measure import keep_memory, show
from benchmarks.sweep_cases import FAMILIES, Family, Ladder, draw_ladders

OURS, EAGER, COMPILED, COPY = "pullback", "eager", "compile", "copy"
# A forward alone, one that keeps what its gradients need, and these.
DIRECTIONS = ("forward", "recorded", "backward")
# What counts as a cliff, and as a win of a peer.
CLIFF, WIN = 1.5, 1.25
# Calls that take less are mostly the way to the loop, which `python -m benchmarks.call` is about.
SHORT = 50e-6
# A peer that takes so many times as long, and so many seconds, is timed once and no more.
FAR, LONG = 8, 0.02
# Seconds that one compilation by `torch.compile` may take, and their part of all minutes.
COMPILING, SHARE = 60, 0.5
# What takes at most so many times as long as a copy of its bytes is bound by memory.
MEMORY = 1.5
RUNGS = 12


@dataclass(kw_only=True)
class Point:
    """What was measured of one rung, by direction and candidate.

    Attributes:
        ladder: that it is of.
        sizes: its own.
        turns: what is timed by turns, of each direction.
        seconds: of a call; backward alone, of a graph recorded before.
        why: it costs more than one rung below, or than a peer, by direction.
    """

    ladder: Ladder
    sizes: Mapping[str, int]
    turns: dict[str, Mapping[str, Turn]]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    why: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """Its axis and where on it."""
        return f"{self.ladder.axis}={self.sizes[self.ladder.axis]}"

    def look(self) -> None:
        """Time all candidates once, and leave out the peers that are far slower."""
        for direction, turns in self.turns.items():
            self.seconds[direction] = found = {name: timed(turn) for name, turn in turns.items()}
            far = [name for name in turns if found[name] > max(LONG, FAR * found[OURS])]
            self.turns[direction] = {name: turns[name] for name in turns if name not in far}

    def measure(self, budget: float) -> None:
        """Time the candidates by turns."""
        for direction, turns in self.turns.items():
            found = self.seconds[direction]
            for name, seconds in fastest(turns, budget).items():
                found[name] = min(seconds, found[name])

    def cost(self, direction: str, name: str = OURS) -> float:
        """Return the picoseconds of ours, or of another, for each operation."""
        work = self.ladder.family.work_of(self.sizes)
        return 1e12 * self.seconds[direction][name] / work

    def best(self, direction: str) -> tuple[str, float]:
        """Return the fastest peer, and how many times as long ours takes."""
        seconds = self.seconds[direction]
        others = {name: value for name, value in seconds.items() if name not in (OURS, COPY)}
        name = min(others, key=lambda each: others[each])
        return name, seconds[OURS] / others[name]


@cache
def operator_of(family: Family) -> pb.Operator:
    """Return the operator of a family."""
    return pb.operator(
        f"bench::sweep_{family.name.replace(' ', '_').replace('-', '_')}{family.line}"
    )


def inputs_of(ladder: Ladder, sizes: Mapping[str, int]) -> list[Tensor]:
    """Return the inputs of a call."""
    generator = torch.Generator().manual_seed(0)
    found: list[Tensor] = []
    formula = operator_of(ladder.family).definition.formula
    assert formula
    for tensor in formula.line.tensors:
        shape = [sizes[index] for index in tensor.labels]
        if tensor.dtype == "int64":
            found.append(torch.randint(sizes["v"], shape, generator=generator))
        else:
            scale = sizes.get("d", 1) ** -0.5
            found.append((torch.randn(shape, generator=generator) * scale).to(ladder.dtype))
    return found


class TooLong(BaseException):
    """A compilation that takes longer than it may: what catches every Exception lets it pass."""


@contextmanager
def within(seconds: float) -> Generator[None]:
    """Stop what takes longer than some seconds."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Sweep:
    """One run.

    Attributes:
        peers: beside whom.
        compiling: the seconds that `torch.compile` may still take.
        points: that are measured, ladder by ladder.
    """

    def __init__(self, peers: Sequence[str], seconds: float, budget: float) -> None:
        self.peers, self.budget = peers, budget
        self.end = time.perf_counter() + seconds
        self.compiling = SHARE * seconds
        self.points: list[list[Point]] = []

    def run(self, ladders: Iterable[Ladder]) -> None:
        """Measure ladders as long as there is time."""
        for ladder in ladders:
            rungs: list[Point] = []
            self.points.append(rungs)
            torch._dynamo.reset()
            for sizes in ladder.rungs:
                if time.perf_counter() > self.end:
                    break
                rungs.append(self.measure(ladder, sizes))
            self.confirm(rungs)
            if time.perf_counter() > self.end:
                return

    def measure(self, ladder: Ladder, sizes: Mapping[str, int]) -> Point:
        """Measure one rung."""
        inputs = inputs_of(ladder, sizes)
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
        wrt = [leaf for leaf in leaves if leaf.requires_grad]
        functions: dict[str, Function] = {OURS: operator_of(ladder.family)}
        if EAGER in self.peers:
            functions[EAGER] = ladder.family.eager
        output = functions[OURS](*leaves)
        grad = torch.ones_like(output)

        def both(function: Function) -> object:
            return torch.autograd.grad(function(*leaves), wrt, grad)

        if compiled := self.compiled(ladder, both):
            functions[COMPILED] = compiled

        def forward(function: Function) -> Turn:
            return lambda: inputs, lambda given: function(*given)

        def recorded(function: Function) -> Turn:
            return lambda: leaves, lambda given: function(*given)

        def backward(function: Function) -> Turn:
            return lambda: function(*leaves), lambda y: torch.autograd.grad(y, wrt, grad)

        turns: dict[str, Mapping[str, Turn]] = {
            way.__name__: {name: way(f) for name, f in functions.items()}
            for way in (forward, recorded, backward)
        }
        moved = sum(t.nbytes for t in (*inputs, output))
        for way in DIRECTIONS:
            more = 2 if way == "backward" else 1
            turns[way] = {**turns[way], COPY: copying(max(2, moved * more), "cpu")}
        point = Point(ladder=ladder, sizes=sizes, turns=turns)
        point.look()
        point.measure(self.budget)
        return point

    def compiled(self, ladder: Ladder, both: Callable[[Function], object]) -> Function | None:
        """Return what `torch.compile` makes of a family, if there is time for it."""
        if COMPILED not in self.peers or self.compiling <= 0:
            return None
        function = torch.compile(ladder.family.eager, dynamic=False, fullgraph=True)
        begin = time.perf_counter()
        try:
            with within(min(COMPILING, self.compiling)):
                both(function)
        except TooLong:
            return None
        finally:
            self.compiling -= time.perf_counter() - begin
        return function

    def confirm(self, rungs: Sequence[Point]) -> None:
        """Measure again what looks like a cliff or a win of a peer; let go of the tensors."""
        again = [point for _, a, b, _ in cliffs(rungs) for point in (a, b)]
        again += [point for _, point, _, _ in wins(rungs)]
        for point in {id(point): point for point in again}.values():
            point.measure(4 * self.budget)
        for way, before, point, _ in cliffs(rungs):
            point.why[way] = explain_cliff(way, before, point)
        for way, point, peer, _ in wins(rungs):
            point.why[way] = explain_win(way, point, peer, rungs)
        for point in rungs:
            point.turns = {}


@cache
def least_of(family: Family, dtype: torch.dtype) -> Mapping[str, float]:
    """Return the seconds of the smallest call of a family, in each direction."""
    ladder = Ladder(family=family, axis="", dtype=dtype, rungs=(family.smallest,))
    inputs = [t.requires_grad_(t.is_floating_point()) for t in inputs_of(ladder, family.smallest)]
    operator = operator_of(family)
    wrt = [t for t in inputs if t.requires_grad]
    plain, grad = [t.detach() for t in inputs], torch.ones_like(operator(*inputs))
    turns: dict[str, Turn] = {
        "forward": (lambda: plain, lambda given: operator(*given)),
        "recorded": (lambda: inputs, lambda given: operator(*given)),
        "backward": (
            lambda: operator(*inputs),
            lambda y: torch.autograd.grad(y, wrt, grad),
        ),
    }
    return fastest(turns, 0.1)


def ways_of(way: str, point: Point) -> tuple[str, ...]:
    """Return who computes a call: for each group of outputs."""
    operator = operator_of(point.ladder.family)
    formula = operator.definition.formula
    if formula and formula.pointwise:
        return ("one loop",)
    plan = operator.plan(*inputs_of(point.ladder, point.sizes))
    names = list(dict.fromkeys(step.operator for step in plan.steps))
    chosen = names[1 if way == "backward" else 0]
    return tuple(f"{s.way} ({s.reason})" for s in plan.steps if s.operator == chosen)


def explain_cliff(way: str, before: Point, point: Point) -> str:
    """Return why an operation costs more than one rung below, by what was measured."""
    a, b = ways_of(way, before), ways_of(way, point)
    if [each.split(" (")[0] for each in a] != [each.split(" (")[0] for each in b]:
        return f"computed otherwise: {'; '.join(a)} there, {'; '.join(b)} here"
    times = point.cost(way) / point.cost(way, COPY)
    if times < MEMORY:
        return f"memory: {times:.1f} times a copy of as many bytes"
    return f"the same way, {len(b)} loops; {share_of_start(way, before, len(a))}"


def explain_win(way: str, point: Point, peer: str, rungs: Sequence[Point]) -> str:
    """Return why a peer is faster, by what was measured."""
    family, seconds, ways = point.ladder.family, point.seconds[way], ways_of(way, point)
    start = least_of(family, point.ladder.dtype)[way]
    if seconds[OURS] - seconds[peer] < start:
        return share_of_start(way, point, len(ways))
    if seconds[OURS] < MEMORY * seconds[COPY]:
        return f"memory: {seconds[OURS] / seconds[COPY]:.1f} times a copy of as many bytes"
    best = min(each.cost(way) for each in rungs)
    least = f"an operation takes {point.cost(way) / best:.1f} times what it does at the best rung"
    return f"{'; '.join(ways)}; {least}"


def share_of_start(way: str, point: Point, loops: int) -> str:
    """Return how much of a call is the way to its loops, in words."""
    start = least_of(point.ladder.family, point.ladder.dtype)[way]
    share = start / point.seconds[way][OURS]
    return f"a call of {loops} loops takes {1e6 * start:.0f} µs of nothing, {share:.0%} of this"


def timed(turn: Turn) -> float:
    """Return the seconds of one call, after one that does not count."""
    before, run = turn
    run(before())
    given, begin = before(), time.thread_time()
    run(given)
    return time.thread_time() - begin


def cliffs(rungs: Sequence[Point]) -> list[tuple[str, Point, Point, float]]:
    """Return where an operation costs far more than it does one rung below, beside a copy."""
    found: list[tuple[str, Point, Point, float]] = []
    for before, point in itertools.pairwise(rungs):
        for way in DIRECTIONS:
            times = point.cost(way) / before.cost(way)
            # What is read may have left a cache: a copy of as many bytes has that cliff too.
            copied = point.cost(way, COPY) / before.cost(way, COPY)
            if times > CLIFF * max(1.0, copied) and before.seconds[way][OURS] > SHORT:
                found.append((way, before, point, times))
    return found


def wins(rungs: Sequence[Point]) -> list[tuple[str, Point, str, float]]:
    """Return where a peer is far faster."""
    found: list[tuple[str, Point, str, float]] = []
    for point in rungs:
        for way in DIRECTIONS:
            if {EAGER, COMPILED} & {*point.seconds[way]}:
                name, times = point.best(way)
                if times > WIN and point.seconds[way][OURS] > SHORT:
                    found.append((way, point, name, times))
    return found


def print_ladder(rungs: Sequence[Point]) -> None:
    """Print what was measured of one ladder."""
    table: list[list[str]] = []
    for point in rungs:
        row = [point.name]
        for way in DIRECTIONS:
            seconds = point.seconds[way]
            row += [f"{1e3 * seconds[OURS]:.3f}", f"{point.cost(way):.1f}"]
            row += [
                f"{seconds[n] / seconds[OURS]:.2f}" if n in seconds else ""
                for n in (EAGER, COMPILED)
            ]
        table.append(row)
    columns = [f"{way}, {what}" for way in DIRECTIONS for what in ("ms", "ps", EAGER, COMPILED)]
    notes = ["ps: for each operation; peers: × our time"]
    show(rungs[0].ladder.name, [rungs[0].ladder.axis, *columns], table, notes)


def print_lists(points: Sequence[Sequence[Point]]) -> tuple[int, int]:
    """Print the cliffs, and where a peer wins; return how many there are."""
    jumps = sorted((each for rungs in points for each in cliffs(rungs)), key=lambda each: -each[3])
    rows = [
        [
            f"{b.ladder.name}, {way}",
            a.name,
            b.name,
            f"{a.cost(way):.1f}",
            f"{b.cost(way):.1f}",
            f"{times:.2f} x",
        ]
        for way, a, b, times in jumps
    ]
    title = f"An operation costs more than {CLIFF} times what it does one rung below"
    show(title, ["", "from", "to", "ps", "ps", ""], rows, [f"{len(rows)} of {count(points)}"])
    lost = sorted((each for rungs in points for each in wins(rungs)), key=lambda each: -each[3])
    rows = [
        [
            f"{p.ladder.name}, {way}",
            p.name,
            f"{1e3 * p.seconds[way][OURS]:.3f}",
            name,
            f"{times:.2f} x",
        ]
        for way, p, name, times in lost
    ]
    title = f"A peer is more than {WIN} times as fast"
    show(
        title,
        ["", "at", "ms", "peer", ""],
        rows,
        notes_of(points, [(p, way) for way, p, _, _ in lost]),
    )
    return len(jumps), len(lost)


def notes_of(points: Sequence[Sequence[Point]], entries: Sequence[tuple[Point, str]]) -> list[str]:
    """Return how many entries a list has of how many, and why each is there."""
    each = [f"{p.ladder.name}, {p.name}, {way}: {p.why[way]}" for p, way in entries]
    return [f"{len(entries)} of {count(points)}", *each]


def count(points: Sequence[Sequence[Point]]) -> str:
    """Return how much was measured, in words."""
    number = sum(map(len, points))
    return f"{number * len(DIRECTIONS)} measurements, {len(points)} ladders"


def main(
    *,
    minutes: float = 10,
    peers: Sequence[str] = (EAGER, COMPILED),
    seed: int | None = None,
    only: str = "",
    budget: float = 0.1,
) -> tuple[int, int]:
    """Print ladders, cliffs and wins of peers; return how many of the latter two there are.

    Args:
        minutes: after which no further rung is measured.
        peers: "eager", "compile" or both.
        seed: of the sizes; drawn, and printed, if there is none.
        only: the beginning of the names of families.
        budget: seconds for each measurement.
    """
    if not any(family.name.startswith(only) for family in FAMILIES):
        names = ", ".join(family.name for family in FAMILIES)
        raise SystemExit(f"no family's name begins with '{only}'; there are: {names}")
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    torch.set_num_threads(1)
    keep_memory()
    # A rung is compiled for its sizes alone, with and without gradients.
    torch._dynamo.config.recompile_limit = 8 * RUNGS
    print(f"seed {seed}, {minutes:g} minutes, beside {' and '.join(peers)}")
    sweep = Sweep(peers, 60 * minutes, budget)
    ladders = draw_ladders(random.Random(seed), RUNGS)
    sweep.run(each for each in ladders if each.family.name.startswith(only))
    points = [rungs for rungs in sweep.points if rungs]
    for rungs in points:
        print_ladder(rungs)
    return print_lists(points)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--peers", default=f"{EAGER},{COMPILED}")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    main(minutes=given.minutes, peers=given.peers.split(","), seed=given.seed, only=given.only)
