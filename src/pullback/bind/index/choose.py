"""Own loops or PyTorch's operations? By modelled cost, and where that is close, by the clock.

The model counts scalar operations, and the bytes that an evaluation by PyTorch's operations moves.
A loop that would do a multiple of the necessary work, as a derived gradient's may, is not compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from pullback.bind import kernel
from pullback.bind.index import loops
from pullback.bind.index.loops import Own, Refusal
from pullback.define.formula import cost
from pullback.define.formula.formula import labels
from pullback.define.formula.indexed import Indexed
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain

if TYPE_CHECKING:
    from pullback.bind.index.execute import Executor

# A loop may do this many times the operations that are needed if each value is computed once.
MOST_WORK = 4
# What one thread does, roughly: scalar operations of a vectorised loop, and bytes moved, a second.
OPERATIONS = 8e9
BANDWIDTH = 5e9
# Where the model says that a loop is this much faster, the clock is not asked.
CLEAR = 8
# More than this is not moved to compare a call with PyTorch's operations.
MOST_COMPARED = 2**28
# A measurement ends after this many seconds or runs.
ENOUGH = 0.02
RUNS = 5


@dataclass(kw_only=True)
class Choice:
    """Who computes some outputs of one shape.

    Attributes:
        outputs: their places.
        own: the loop; None if there is none.
        reason: why it was chosen, or why there is none.
        takes_own: whether the loop is called.
        seconds: what was measured, of "own" and "dense".
    """

    outputs: tuple[int, ...]
    own: Own | None
    reason: str
    takes_own: bool = False
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def choices(
    executor: Executor,
    named: Mapping[str, object],
    outputs: kernel.Outputs,
    sizes: dict[str, int],
) -> list[Choice]:
    """Return who computes which of the wanted outputs."""
    if outputs.device.type != "cpu":
        return []
    present = frozenset(name for name, value in named.items() if value is not None)
    compute = torch.promote_types(torch.float32, outputs.dtypes[0])
    found: list[Choice] = []
    for group in groups(executor, outputs):
        own = loop_for(executor.indexed, compute, group, present, sizes)
        if isinstance(own, Refusal):
            found.append(Choice(outputs=group, own=None, reason=own.reason))
        else:
            choice = Choice(outputs=group, own=own, reason="")
            decide(choice, executor, named, outputs, sizes)
            found.append(choice)
    return found


def loop_for(
    indexed: Indexed,
    compute: torch.dtype,
    outputs: tuple[int, ...],
    present: frozenset[str],
    sizes: dict[str, int],
) -> Own | Refusal:
    """Return a loop for some outputs, or why there is none."""
    try:
        return loops.find(indexed, compute, outputs, present, sizes)
    except PullbackError as error:
        if error.finding.code != toolchain.CompilerMissing.code:
            raise
        return Refusal(error.finding.message)


def groups(executor: Executor, outputs: kernel.Outputs) -> list[tuple[int, ...]]:
    """Return the wanted outputs, those over the same indices together: they share their loops."""
    found: dict[tuple[str, ...], list[int]] = {}
    for k, output in enumerate(executor.indexed.line.outputs):
        if outputs.wanted[k]:
            found.setdefault(labels(output), []).append(k)
    return [tuple(group) for group in found.values()]


def decide(
    choice: Choice,
    executor: Executor,
    named: Mapping[str, object],
    outputs: kernel.Outputs,
    sizes: dict[str, int],
) -> None:
    """Choose between a loop and PyTorch's operations."""
    assert choice.own
    wanted = [k in choice.outputs for k in range(len(outputs.wanted))]
    itemsize = max(dtype.itemsize for dtype in outputs.dtypes)
    needed = cost.cost(executor.indexed, sizes, wanted, itemsize)
    work = choice.own.work(sizes)
    if work > MOST_WORK * max(needed.flops, 1):
        choice.reason = f"the loop would do {work / needed.flops:.1f} times the needed operations"
        return
    threads = torch.get_num_threads()
    own = max(work / OPERATIONS, (needed.read + needed.written) / BANDWIDTH) / threads
    other = needed.dense / BANDWIDTH / threads
    if other > CLEAR * own or needed.dense > MOST_COMPARED:
        choice.takes_own = True
        choice.reason = f"PyTorch's operations would move {needed.dense / 1e6:.0f} MB"
        return
    measure(choice, executor, named, outputs, sizes)


def measure(
    choice: Choice,
    executor: Executor,
    named: Mapping[str, object],
    outputs: kernel.Outputs,
    sizes: dict[str, int],
) -> None:
    """Let the clock choose."""
    from pullback.bind.index.execute import Prepared  # noqa: PLC0415  (it imports this module)

    wanted = [k in choice.outputs for k in range(len(outputs.wanted))]
    only = Choice(outputs=choice.outputs, own=choice.own, reason="", takes_own=True)
    ways: dict[str, list[Choice]] = {"own": [only], "dense": []}
    for name, way in ways.items():
        known = Prepared(outputs=kernel.only(outputs, wanted), sizes=sizes, choices=way)
        choice.seconds[name] = seconds_of(lambda known=known: executor.computed(known, named))
    choice.takes_own = choice.seconds["own"] <= choice.seconds["dense"]
    choice.reason = "measured: " + ", ".join(
        f"{name} {1e3 * value:.3g} ms" for name, value in choice.seconds.items()
    )


def seconds_of(call: Callable[[], object]) -> float:
    """Return the time of a call: the least of a few, after one that is not counted."""
    call()
    times: Sequence[float] = ()
    while len(times) < RUNS and sum(times) < ENOUGH:
        start = time.perf_counter()
        call()
        times = (*times, time.perf_counter() - start)
    return min(times)
