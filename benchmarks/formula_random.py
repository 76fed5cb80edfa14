"""Random formulas, drawn anew in each run, beside `torch.compile`, PyTorch and a copy.

A row is bound by memory if it is as fast as a copy that moves as many bytes, or if its arithmetic
alone, on tensors that fit into the cache, takes less time than that; the aim is then the copy's
speed, and otherwise a multiple of `torch.compile`'s.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from benchmarks.bags import fastest
from benchmarks.formula import Turn, copying
from benchmarks.formula_peers import COMPILED, EAGER, OURS, Function
from benchmarks.formula_tables import COPY
from benchmarks.measure import keep_memory, show

SIZE, SMALL, TINY = 2**22, 2**15, 2**11
FASTER, OF_COPY = 3.0, 0.9

# What a formula is grown from: of one operand, each as users write it, and of two.
ONE = (
    *("tanh({})", "sigmoid({})", "exp(-({})**2)", "sin({})", "cos({})", "abs({})", "erf({})"),
    *("softplus({})", "log1p(exp({}))", "log(1 + exp({}))", "1/(1 + exp(-({})))"),
    *("({})*sigmoid({})", "({})/(1 + exp(-({})))", "({0})*tanh(log1p(exp({0})))"),
    *("0.5*({0})*(1 + erf(({0})/sqrt(2)))", "silu({})", "gelu({})", "maximum({}, 0)"),
    "0.5*({0})*(1 + tanh(0.7978845608028654*(({0}) + 0.044715*({0})**3)))",
    *("1.5*({})", "({}) + 0.5", "({})*({})".replace("{}", "{0}")),
    *("sqrt(1 + ({})**2)", "log(2 + ({})**2)", "({})/(1 + abs({}))", "({})**2", "({})**3"),
    *("where({0} > 0, {0}, 0.1*({0}))", "where({0} > 0, {0}, expm1({0}))", "-({})", "atan({})"),
    "where(abs({0}) < 1, 0.5*({0})**2, abs({0}) - 0.5)",
)
TWO = (
    *("({}) + ({})", "({}) - ({})", "({})*({})", "({})/(1 + ({})**2)", "maximum({}, {})"),
    *("logaddexp({}, {})", "log(exp({}) + exp({}))", "sqrt(0.1 + ({})**2 + ({})**2)"),
    *("where({0} > {1}, {0}, 2*({1}))", "({})*sigmoid({})", "tanh({})*sigmoid({})"),
)
LEAVES = "xxyyw"


def grow(source: random.Random, size: int) -> str:
    """Return a random formula of about `size` functions."""
    if size <= 0:
        return source.choice(LEAVES)
    if source.random() < 0.5:
        inner = grow(source, size - 1)
        return source.choice(ONE).replace("{}", "{0}").format(inner)
    left = source.randint(0, size - 1)
    a, b = grow(source, left), grow(source, size - 1 - left)
    return source.choice(TWO).format(a, b)


def draw(count: int, seed: int) -> list[str]:
    """Return different random formulas."""
    source, found = random.Random(seed), dict[str, None]()
    while len(found) < count:
        text = grow(source, source.randint(1, 4))
        if len(text) < 300:
            found[text] = None
    return list(found)


def _names(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text).split())


def _maximum(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp_min(b)


def of_torch(text: str, names: Sequence[str]) -> Function:
    """Return a formula as a function of tensors, in PyTorch's operators."""
    words: dict[str, Any] = {word: getattr(torch, word, None) for word in _names(text)}
    others = {"silu": functional.silu, "gelu": functional.gelu, "softplus": functional.softplus}
    words |= others | {"maximum": _maximum, "sqrt": lambda a: a**0.5}
    source = f"lambda {', '.join(names)}: {text}"
    return eval(compile(source, "<formula>", "eval"), words)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One direction of a formula: the seconds of each candidate, and of our arithmetic alone."""

    text: str
    direction: str
    seconds: dict[str, float]
    arithmetic: float

    @property
    def bound(self) -> bool:
        """Whether memory limits it."""
        return self.arithmetic <= self.seconds[COPY] or self.of_copy >= OF_COPY

    @property
    def faster(self) -> float:
        """How many times as long as ours `torch.compile` takes."""
        return self.seconds[COMPILED] / self.seconds[OURS]

    @property
    def of_copy(self) -> float:
        """Our speed as a part of the copy's."""
        return self.seconds[COPY] / self.seconds[OURS]

    @property
    def below(self) -> bool:
        """Whether it is below its aim."""
        return self.of_copy < OF_COPY if self.bound else self.faster < FASTER


def measure(text: str, name: str, budget: float) -> list[Row]:
    """Measure forward without gradients, and backward alone."""
    names = [letter for letter in "xyw" if letter in _names(text)]
    inputs = ", ".join(f"{letter}[...]" for letter in names)
    ours = pb.operator(f"bench_random::{name}({inputs}) -> z[...] = {text}")
    eager = of_torch(text, names)
    torch._dynamo.reset()
    compiled: Function = torch.compile(eager, dynamic=False, fullgraph=True)
    functions = {OURS: ours, EAGER: eager, COMPILED: compiled}
    saved = len(ours.derivative().saved)
    moved = {"forward": len(names) + 1, "backward": saved + 1 + len(names)}
    rows: list[Row] = []
    for way in ("forward", "backward"):
        turns = {each: turn_of(way, f, len(names), SIZE) for each, f in functions.items()}
        exact = turn_of(way, eager, len(names), SMALL, torch.float64)
        compare(turn_of(way, ours, len(names), SMALL), exact)
        turns[COPY] = copying(4 * moved[way] * SIZE, "cpu")
        seconds = fastest(turns, budget)
        sizes = {str(n): turn_of(way, ours, len(names), n) for n in (SMALL, TINY)}
        cached = fastest(sizes, budget / 4)
        slope = (cached[str(SMALL)] - cached[str(TINY)]) / (SMALL - TINY)
        rows.append(Row(text=text, direction=way, seconds=seconds, arithmetic=slope * SIZE))
    return rows


def turn_of(
    way: str, function: Function, count: int, size: int, dtype: torch.dtype = torch.float32
) -> Turn:
    """Return a call, or the backward of one."""
    source = torch.Generator().manual_seed(count)
    inputs = [torch.randn(size, generator=source).to(dtype) for _ in range(count)]
    if way == "forward":
        return lambda: inputs, lambda given: function(*given)
    leaves, grad = (
        [t.requires_grad_() for t in inputs],
        torch.randn(size, generator=source).to(dtype),
    )
    return (
        lambda: function(*leaves),
        lambda z: torch.autograd.grad(z, leaves, grad, allow_unused=True),
    )


def compare(ours: Turn, exact: Turn) -> None:
    """Stop unless ours agree with the same in float64, but for elements next to a kink."""
    (before, run), (before_exact, run_exact) = ours, exact
    found, wanted = _tensors(run(before())), _tensors(run_exact(before_exact()))
    for value, want in zip(found, wanted, strict=True):
        wrong = want.isfinite() & ~torch.isclose(value.double(), want, rtol=1e-3, atol=1e-3)
        assert wrong.double().mean() < 1e-3, "the results differ"


def _tensors(result: Any) -> list[Tensor]:
    parts: Sequence[Tensor | None] = [result] if isinstance(result, Tensor) else result
    return [torch.zeros((), dtype=torch.float64) if part is None else part for part in parts]


def report(rows: Sequence[Row]) -> None:
    """Print the table, the means and the rows below their aim."""
    table = [
        [
            row.text if row.direction == "forward" else "  backward",
            f"{1e3 * row.seconds[OURS]:.2f}",
            *(f"{row.seconds[peer] / row.seconds[OURS]:.2f}" for peer in (EAGER, COMPILED)),
            f"{row.of_copy:.2f}",
            "memory" if row.bound else "arithmetic",
            "below" if row.below else "",
        ]
        for row in rows
    ]
    notes: list[str] = []
    free, bound = ([row for row in rows if row.bound is is_bound] for is_bound in (False, True))
    if free:
        mean = statistics.geometric_mean(row.faster for row in free)
        notes.append(
            f"aim: {len(free)} rows bound by arithmetic, geometric mean ≥ {FASTER:g} × faster than "
            f"torch.compile: {mean:.2f}"
        )
    if bound:
        worst = min(row.of_copy for row in bound)
        notes.append(
            f"aim: {len(bound)} rows bound by memory, each ≥ {OF_COPY} of the copy's speed: "
            f"least {worst:.2f}"
        )
    below: Callable[[Sequence[Row]], int] = lambda some: sum(row.below for row in some)  # noqa: E731
    notes.append(f"below: {below(free)} bound by arithmetic, {below(bound)} bound by memory")
    show(
        "Random formulas: float32, 2**22 elements, one thread",
        ["", "ms", f"× {EAGER}", f"× {COMPILED}", "of copy", "bound by", ""],
        table,
        notes,
    )


def main(count: int, seed: int, texts: Sequence[str] = (), *, budget: float = 0.7) -> None:
    """Print the table.

    Args:
        count: of formulas.
        seed: of the drawing.
        texts: formulas in place of drawn ones.
        budget: for how many seconds the candidates of a row take turns.
    """
    torch.set_num_threads(1)
    keep_memory()
    print(f"seed {seed}")
    rows: list[Row] = []
    for k, text in enumerate(texts or draw(count, seed)):
        rows += measure(text, f"f{seed}_{k}", budget)
    report(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--formula", action="append", default=[], help="of x, y and w")
    given = parser.parse_args()
    main(given.count, given.seed, given.formula)
