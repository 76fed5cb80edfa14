"""The chapter of the tour on index notation: a sum over pairs, its derivative, plan and times."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from rich.console import Console
from torch import Tensor

from pullback.bind.declare import operator
from pullback.cli.screen import clock, say, table

LINE = "tour::gauss(x[n, d], y[m, d], v[m]) -> u[n]"
FORMULA = "sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)) * v[m])"
POINTS, DIMENSIONS, ROUNDS = 3000, 3, 3

Call = Callable[..., Tensor]


def show(console: Console) -> None:
    """Show an operator in index notation, its derivative, its times and its plan."""
    say(console, "Each of n points, and a sum over m others. Indices say which elements:\n")
    say(console, f'  gauss = pb.operator(\n      "{LINE}"\n      " = {FORMULA}"\n  )\n')
    with clock() as took:
        gauss = operator(f"{LINE} = {FORMULA}")
    say(console, "Defined, its loops compiled and compared with PyTorch's operations, gradients")
    say(console, f"too: {took}. print(gauss.derivative()) says\n")
    for row in str(gauss.derivative()).splitlines()[1:]:
        say(console, f"  {row.strip()}")
    x, y = (torch.randn(POINTS, DIMENSIONS) for _ in range(2))
    inputs = (x, y, torch.randn(POINTS))
    say(console, f"\nMilliseconds for {POINTS} x {POINTS} points, the least of {ROUNDS}:\n")
    shown = table("", "forward", "backward", "kept", right=("forward", "backward", "kept"))
    kept = {"PyTorch": f"{4e-6 * POINTS**2 * (DIMENSIONS + 1):.0f} MB", "pullback": "none"}
    for name, (forward, backward) in measure({"PyTorch": pairs, "pullback": gauss}, inputs).items():
        shown.add_row(name, f"{forward:.1f}", f"{backward:.1f}", kept[name])
    console.print(shown)
    say(console, "\nPyTorch's operations keep n·m·(d + 1)·4 bytes for their backward; a loop makes")
    say(console, "each pair again. How it is computed, and why, print(gauss.plan(x, y, v)):\n")
    for row in str(gauss.plan(*inputs)).splitlines():
        say(console, f"  {row}")


def pairs(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Return gauss by PyTorch's operations."""
    return torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v


def measure(calls: dict[str, Call], inputs: tuple[Tensor, ...]) -> dict[str, tuple[float, float]]:
    """Return the least milliseconds of forward and backward; the calls take turns."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    grad = torch.ones(len(inputs[0]))
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            u = call(*leaves)
            between = time.perf_counter()
            torch.autograd.grad(u, leaves, grad)
            if turn:  # the first compiles for these sizes
                ended = time.perf_counter()
                seen[name].append((1e3 * (between - started), 1e3 * (ended - between)))
    return {
        name: (min(forward for forward, _ in times), min(backward for _, backward in times))
        for name, times in seen.items()
    }
