"""The chapter of the tour on formulas: the mathematics, its derivative, what it costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from torch import Tensor

from pullback.bind.declare import operator
from pullback.cli.screen import clock, say, table

LINE = "tour::mish(x[...]) -> y[...] = x * tanh(softplus(x))"
ELEMENTS, ROUNDS = 1 << 20, 15

Call = Callable[[Tensor], Tensor]


def show(console: Console) -> None:
    """Show a formula's operator, its derivative and its times."""
    say(console, "You write each element of the output; everything else is generated:\n")
    say(console, f'  mish = pb.operator("{LINE}")\n')
    with clock() as took:
        mish = operator(LINE)
        mish(torch.zeros(1))
    say(console, f"Defined, compiled and called: {took}. print(mish.derivative()) says\n")
    for row in str(mish.derivative()).splitlines()[1:]:
        say(console, f"  {row.strip()}")
    second = torch.func.grad(torch.func.grad(mish))(torch.zeros((), dtype=torch.float64))
    say(console, f"\nand its second derivative at 0 is {second.item():.3g}, by another loop.")
    say(console, f"Milliseconds for {ELEMENTS} floats, medians of {ROUNDS}:\n")
    shown = table("", "forward", "backward", right=("forward", "backward"))
    for name, (forward, backward) in measure({"PyTorch": composed, "pullback": mish}).items():
        shown.add_row(name, f"{forward:.2f}", f"{backward:.2f}")
    console.print(shown)


def composed(x: Tensor) -> Tensor:
    """Return mish by PyTorch's operations."""
    return x * torch.tanh(torch.nn.functional.softplus(x))


def measure(calls: dict[str, Call]) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of forward and backward; the calls take turns."""
    x = torch.randn(ELEMENTS, requires_grad=True)
    ones = torch.ones(ELEMENTS)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            y = call(x)
            between = time.perf_counter()
            torch.autograd.grad(y, x, ones)
            if turn:  # the first compiles
                ended = time.perf_counter()
                seen[name].append((1e3 * (between - started), 1e3 * (ended - between)))
    return {
        name: (statistics.median(f for f, _ in times), statistics.median(b for _, b in times))
        for name, times in seen.items()
    }
