"""The chapter of the tour on CUDA kernels without a GPU: one trains, one has a race."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from types import ModuleType

import torch
from rich.console import Console

from pullback.bind.on_cpu import CudaOnCpuNotice
from pullback.cli.screen import clock, say
from pullback.cuda import on_cpu

STEPS, THREADS = 100, 64


def train(console: Console, gpu_add2: ModuleType) -> None:
    """Train chapter 3's model with the CUDA kernel."""
    a, b = (torch.randn(1024, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.SGD([a, b], lr=0.01)
    losses: list[float] = []
    with clock() as took:
        for _ in range(STEPS + 1):
            optimizer.zero_grad()
            loss = gpu_add2.add2(a**2, b**2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    where = "GPU" if torch.cuda.is_available() else "CPU"
    begun = f"loss {losses[0]:.6g},"
    say(console, f"\nThe model of chapter 3 with it, on the {where}, in {took}: {begun}")
    shrunk = f"{losses[-1] / losses[0]:.6f} of it (0.98^200 = {0.98**200:.6f})."
    say(console, f"after {STEPS} steps {losses[-1]:.6g}, which is {shrunk}")


def find_race(console: Console, turned: ModuleType) -> None:
    """Run a kernel under the race check and show what it says."""
    x = torch.arange(float(THREADS))
    wrong = int((turned.turned(x) != x.flip(0)).sum())
    say(console, f"\nRun in the order of its threads it gets {wrong} of {THREADS} elements wrong.")
    say(console, "Which lines are at fault?\n")
    say(console, '  with pb.cuda.on_cpu(check="race"):')
    say(console, "      turned(x)\n")
    try:
        with on_cpu(check="race"):
            turned.turned(x)
    except RuntimeError as error:
        say(console, str(error))


def silence_notice() -> AbstractContextManager[object]:
    """Return a context without the notice: the chapter says it itself."""
    return warnings.catch_warnings(action="ignore", category=CudaOnCpuNotice)
