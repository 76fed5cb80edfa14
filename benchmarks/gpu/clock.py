"""Seconds by CUDA's events; in a rehearsal these are the host's clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.figure import Figure, figure
from benchmarks.gpu.place import ROTATED, Place, bytes_of

Turn = tuple[Callable[[], Any], Callable[[Any], object]]  # what comes before, and what is timed
ROUNDS = 20
# Copies of the inputs at most, however small they are.
COPIES = 48
# Bytes that what is prepared for the calls of one turn may hold.
PREPARED = 2e9


def rotated(inputs: tuple[Tensor, ...], place: Place) -> Iterator[tuple[Tensor, ...]]:
    """Return equal inputs in ever other memory, so that no cache has them."""
    count = 2 if place.rehearsal else int(ROTATED / max(1, bytes_of(inputs))) + 1
    copies = [tuple(t.clone() for t in inputs) for _ in range(min(count, COPIES) - 1)]
    return itertools.cycle([inputs, *copies])


def seconds_by_turns(
    turns: Mapping[str, Turn], place: Place, *, budget: float, held: float = 0.0
) -> dict[str, Figure]:
    """Time every candidate once a round, so that a drift of the clock hits all alike.

    Args:
        turns: the candidates.
        place: where.
        budget: no round starts after so many seconds; there are three at least.
        held: bytes that stay allocated for each call that is prepared.
    """
    end = time.perf_counter() + budget
    calls: dict[str, int] = {}
    hosts: dict[str, float] = {}
    most = max(1, min(10, int(PREPARED / max(held, 1.0))))
    for name, turn in turns.items():
        timed(turn, 1, 0.0, place)
        seconds, hosts[name] = timed(turn, 1, 0.0, place)
        calls[name] = max(1, min(most, int(1e-3 / max(seconds, 1e-7))))
    found: dict[str, list[float]] = {name: [] for name in turns}
    for count in range(ROUNDS):
        if count >= 3 and time.perf_counter() > end:
            break
        for name, turn in turns.items():
            found[name].append(timed(turn, calls[name], hosts[name], place)[0])
    return {name: figure(values) for name, values in found.items()}


def timed(turn: Turn, calls: int, host: float, place: Place) -> tuple[float, float]:
    """Return the seconds of a call, and those that the host took for it.

    The GPU is held until the host has queued all calls, so that it never waits for the host.
    """
    before, run = turn
    prepared = [before() for _ in range(calls)]
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    place.hold(1.5e9 * min(host, 0.02) * calls)
    begin = time.perf_counter()
    first.record()
    for each in prepared:
        run(each)
    last.record()
    host = time.perf_counter() - begin
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / calls, host / calls


def copy_of(moved: float, place: Place) -> Turn:
    """Return a copy that reads half of some bytes and writes the others."""
    size = max(1, int(moved) // 2)
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    both = rotated((source, torch.zeros_like(source)), place)
    return lambda: next(both), lambda each: each[1].copy_(each[0])
