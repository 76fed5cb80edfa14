"""What a call of almost nothing takes: on the host, back to back, and replayed in a graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import pullback as pb
from benchmarks.figure import Figure, figure
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import OURS, Row, Timing

Call = Callable[[], Any]
ADD, INDEX, CUSTOM = "torch.add", "pullback, index notation", "custom_op"
# Ours, at most this many times as long as PyTorch's own.
MOST = 2.0


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return the steps."""
    del folder
    return {
        "calls": lambda budget: calls(place, budget),
        "backward": lambda budget: backwards(place, budget),
        **({} if place.rehearsal else {"graphs": lambda budget: graphs(place, budget)}),
    }


def functions() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Return the candidates: each adds two tensors."""

    @torch.library.custom_op("bench_gpu::add", mutates_args=())
    def custom(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    custom.register_autograd(lambda ctx, grad: (grad, grad))
    index = "(x[n], y[n]) -> z[n] = x[n] + sum[m < 1](y[n])"
    return {
        OURS: pb.operator("bench_gpu::small(x[...], y[...]) -> z[...] = x + y"),
        INDEX: pb.operator(f"bench_gpu::small_index{index}"),
        ADD: torch.add,
        CUSTOM: custom,
    }


def calls(place: Place, budget: float) -> Iterator[Row]:
    """Yield the time of a call, launches back to back."""
    x, y = torch.rand(2, 1, device="cuda")
    yield timing("no gradients", back_to_back(bind(functions(), x, y), place, budget), place)


def backwards(place: Place, budget: float) -> Iterator[Row]:
    """Yield the time of a call and its backward."""
    x, y = (t.clone().requires_grad_() for t in torch.rand(2, 1, device="cuda"))

    def both(run: Callable[[Tensor, Tensor], Tensor]) -> Call:
        return lambda: torch.autograd.grad(run(x, y).sum(), (x, y))

    turns = {name: both(run) for name, run in functions().items()}
    for run in turns.values():
        assert all(torch.equal(grad, torch.ones_like(x)) for grad in run())
    yield timing("forward and backward", back_to_back(turns, place, budget), place)


def graphs(place: Place, budget: float) -> Iterator[Row]:
    """Yield the time of a call that a CUDA graph replays: 100 of them in each graph."""
    x, y = torch.rand(2, 1, device="cuda")
    found: dict[str, Call] = {}
    notes: list[str] = []
    for name, run in bind(functions(), x, y).items():
        for _ in range(3):
            run()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph):
                for _ in range(100):
                    run()
        except Exception as error:
            notes.append(f"{name} is not captured: {str(error).partition(chr(10))[0][:200]}")
            continue
        found[name] = graph.replay
    seconds = back_to_back(found, place, budget, calls=20)
    each = {name: Figure(f.median / 100, f.spread / 100) for name, f in seconds.items()}
    row = timing("replayed in a graph", each, place)
    row.notes += notes
    yield row


def bind(functions: Mapping[str, Callable[..., Tensor]], *inputs: Tensor) -> dict[str, Call]:
    """Return calls with their arguments; each is the sum."""
    for run in functions.values():
        assert torch.equal(run(*inputs).cpu(), inputs[0].cpu() + inputs[1].cpu())
    return {name: lambda run=run: run(*inputs) for name, run in functions.items()}


def back_to_back(
    turns: Mapping[str, Call], place: Place, budget: float, calls: int = 500
) -> dict[str, Figure]:
    """Return the seconds of a call by the host's clock, many before the GPU is waited for."""
    calls = 3 if place.rehearsal else calls
    end = time.perf_counter() + min(budget, 8.0)
    found: dict[str, list[float]] = {name: [] for name in turns}
    for run in turns.values():
        for _ in range(3):
            run()
    for count in range(40):
        if count >= 3 and time.perf_counter() > end:
            break
        for name, run in turns.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            torch.cuda.synchronize()
            found[name].append((time.perf_counter() - begin) / calls)
    return {name: figure(values) for name, values in found.items()}


def timing(way: str, seconds: dict[str, Figure], place: Place) -> Timing:
    """Return the row of a table; its share is that of torch.add's time, and a half is expected."""
    row = Timing(case="x + y of 1 element", way=way, seconds=seconds)
    slowest = max((seconds[n].median for n in (OURS, INDEX) if n in seconds), default=0.0)
    if slowest and not place.rehearsal and ADD in seconds:
        row.share, row.bound = (
            seconds[ADD].median / slowest,
            "the time of torch.add, for the slower of ours",
        )
        row.expected = 1 / MOST
    return row
