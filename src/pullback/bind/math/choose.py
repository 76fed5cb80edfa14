"""Own loops or PyTorch's operations? By modelled cost, and where that is close, by the clock.

The model counts scalar operations, and the bytes that an evaluation by PyTorch's operations moves.
A loop that would do a multiple of the necessary work, as a derived gradient's may, is not compiled.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pullback.bind.levels import run_isolated
from pullback.bind.loops import nests
from pullback.bind.loops.backends import Backend, find_backend
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.specialise import round_sizes
from pullback.bind.math import passing, ready, verify
from pullback.bind.math.call import Choice, IndexedCall, compute_outputs
from pullback.bind.math.shortcuts import call_again, note_call
from pullback.bind.memo import Memo
from pullback.kernels.loops import worth

Candidate = tuple[IndexedCall, Own | NoLoops]
# Where the model says that a loop is this much faster, the clock is not asked.
CLEAR = 8
# Nor is it where a loop does far more than is needed and is this much slower: what the model says
# of either way may be half or twice of what it takes.
SLOWER = 4
# At most this many bytes are moved to time PyTorch's operations.
MOST_COMPARED = 2**28
# A loop is taken if it takes up to so many times as long as PyTorch's operations: else what other
# programs do would choose between two that are equally fast.
NEAR = 1.1
# A formula that is called by itself, and does less, needs no loop.
MUCH = 1e6
# A measurement ends after this many seconds or runs.
ENOUGH = 0.05
RUNS = 5
# A first call that takes this long is not repeated, and one that is shorter than this is timed as
# the runtime makes it.
LONG, SHORT = 0.25, 0.01


def choose_executors(call: IndexedCall) -> list[Choice]:
    """Return who computes which of the wanted outputs."""
    # Of nothing there is little to compute, and 0/0 may be either 0 or NaN by the order of steps.
    if 0 in call.sizes.values():
        return []
    backend = find_backend(call.outputs.device)
    if backend is None:
        groups = nests.group_outputs(call.indexed, call.places, call.sizes)
        reason = f"on {call.outputs.device.type}"
        choices = [Choice(outputs=group, own=None, reason=reason) for group in groups]
        return passing.choose_blocks(call, choices, None, measure_seconds)
    taken = call.coalesced if call.lies_coalesced else call
    found = find_candidates(taken, backend)
    if taken is not call and not all(o.is_available for _, o in found if isinstance(o, Own)):
        found = find_candidates(call, backend)
    nests.compile_together([own for _, own in found if isinstance(own, Own)])
    choices = [one for part, own in found for one in choose_together(part, own, backend)]
    return passing.choose_blocks(call, choices, backend, measure_seconds)


def find_candidates(call: IndexedCall, backend: Backend) -> list[Candidate]:
    """Return candidates that compute all outputs of a call together."""
    groups = nests.group_outputs(call.indexed, call.places, call.sizes)
    parts = [call.wanting(group) for group in groups]
    return join(call, [(part, find_candidate(part, backend)) for part in parts], backend)


def join(call: IndexedCall, found: list[Candidate], backend: Backend) -> list[Candidate]:
    """Return candidates of which one computes what two would, where that is less work.

    Outputs that lack one index of others may be computed by their loops: they are written once a
    row, or added up from all rows; or all sums of that index are held in memory, and what does not
    depend on it is computed once for both. Sums that both need may have a kernel of their own.
    """
    for one, other in itertools.permutations(found, 2):
        owns = [own for _, own in (one, other) if isinstance(own, Own)]
        places = one[0].places[0], other[0].places[0]
        if len(owns) < 2 or not lacks_some(call, *places, owns[0].target.shortest):
            continue
        both = call.wanting([*one[0].places, *other[0].places])
        own = find_candidate(both, backend)
        # A package brings those of each.
        if not isinstance(own, Own) or (not own.is_available and owns[0].is_available):
            continue
        if own.cost(call.sizes) < sum(o.cost(call.sizes) for o in owns):
            others = [each for each in found if each is not one and each is not other]
            return join(call, [*others, (both, own)], backend)
    return found


def lacks_some(call: IndexedCall, output: int, other: int, shortest: int) -> bool:
    """Return whether an output lacks some of the other's indices, and has no others.

    Rows of so many elements, the shortest that have a loop, count as large.
    """
    few, many = (
        nests.large_indices(call.indexed, k, call.sizes, shortest) for k in (output, other)
    )
    return bool(few) and few < many


def choose_blocks(call: IndexedCall) -> list[Choice]:
    """Return that all is computed by blocks, or as the one operation that it is."""
    return [] if 0 in call.sizes.values() else passing.take_blocks(call, measure_seconds)


def choose_for_work(call: IndexedCall) -> list[Choice]:
    """Return who computes which outputs; where little is done, PyTorch's operations."""
    has_work = 0 not in call.sizes.values() and call.needed.flops > MUCH
    return choose_executors(call) if has_work else []


def choose_together(call: IndexedCall, own: Own | NoLoops, backend: Backend) -> list[Choice]:
    """Return who computes a call's outputs: one loop, or each of them is asked about alone."""
    found = choose_executor(call, own)
    if found.own is not None or len(call.places) == 1:
        return [found]
    parts = [call.wanting([k]) for k in call.places]
    return [choose_executor(part, find_candidate(part, backend)) for part in parts]


def find_candidate(call: IndexedCall, backend: Backend) -> Own | NoLoops:
    """Return the loop for a call's outputs that is worth compiling, or why none is."""
    group = tuple(call.places)
    own = nests.find(call.indexed, call.dtype, group, call.present, call.sizes, backend)
    if isinstance(own, NoLoops):
        return own
    work, needed, rates = own.work(call.sizes), call.needed, backend.rates()
    least = max(needed.flops, needed.read + needed.written, 1.0)
    is_slower = rates.seconds(work, 0) > SLOWER * rates.seconds(0, needed.dense)
    done = work * own.filled
    if is_slower and done > max(worth.most_work(own.family) * least, backend.little):
        return NoLoops(reason=f"a loop would do {done / least:.1f} times the necessary operations")
    return own


def choose_executor(call: IndexedCall, own: Own | NoLoops) -> Choice:
    """Choose between a loop, where there is one, and PyTorch's operations."""
    group = tuple(call.places) if isinstance(own, NoLoops) else own.outputs
    if isinstance(own, NoLoops):
        return Choice(outputs=group, own=None, reason=own.reason)
    if reason := verify.why_unusable(own, call.present):
        return Choice(outputs=group, own=None, reason=reason)
    if own.backend.is_preferred:
        return Choice(outputs=group, own=own, reason=own.target.name, takes_own=True)
    needed, rates = call.needed, own.backend.rates()
    modelled = rates.seconds(own.work(call.sizes), needed.read + needed.written)
    other = rates.seconds(0, needed.dense)
    # A loop that may do far more than is needed has to be the faster one in the model too.
    is_faster = other > modelled or worth.most_work(own.family) == worth.MOST
    if other > CLEAR * modelled or (needed.dense > MOST_COMPARED and is_faster):
        reason = f"PyTorch's operations would move {needed.dense / 1e6:.3g} MB"
        return Choice(outputs=group, own=own, reason=reason, takes_own=True)
    return measure_choice(call, Choice(outputs=group, own=own, reason="", takes_own=True))


def measure_choice(call: IndexedCall, with_loop: Choice) -> Choice:
    """Let the clock choose, once for all calls of about the same sizes.

    So not every call is timed where sizes vary, and a batch's results depend on its size by no more
    than the loop's own blocks.
    """
    key = (
        *(id(with_loop.own), torch.get_num_threads(), *call.outputs.dtypes),
        *round_sizes(call.indexed, call.sizes).items(),
        *(value.dtype for value in call.named.values() if isinstance(value, Tensor)),
    )
    return _measured.get_or_make(key, lambda: time_choice(call, with_loop))


# The choices hold the loops whose ids are in the keys.
_measured: Memo[tuple[object, ...], Choice] = Memo(1024)


def time_choice(call: IndexedCall, with_loop: Choice) -> Choice:
    """Time a loop and PyTorch's operations."""
    assert with_loop.own
    clock = with_loop.own.backend.time

    def measured() -> dict[str, float]:
        ways = {
            "loop": make_loop_call(call, with_loop),
            "PyTorch": lambda: compute_outputs(call, []),
        }
        return measure_seconds(ways, clock)

    seconds = run_isolated(measured)
    takes_own = seconds["loop"] <= NEAR * seconds["PyTorch"]
    reason = passing.show_seconds(seconds)
    return replace(with_loop, reason=reason, takes_own=takes_own, seconds=seconds)


def make_loop_call(call: IndexedCall, with_loop: Choice) -> Callable[[], object]:
    """Return a function that computes a call by a loop, as it will be called."""
    names = [parameter.name for parameter in call.indexed.line.parameters]
    given = tuple(call.named[name] for name in names)
    found, begin = ready.make_ready(call, [with_loop]), time.perf_counter()
    outputs, known = note_call(given, names, found.run) if found else (None, None)
    if found is None or outputs is None:
        return lambda: compute_outputs(call, [with_loop])
    # To a long call Python adds nothing that counts.
    is_short = time.perf_counter() - begin < SHORT
    again = call_again(given, known) if known and is_short else None
    return again or (lambda: found.run(given))


class _TooLongError(Exception):
    """A way takes longer than it may."""


class _Deadline(TorchFunctionMode):
    """Stops at the first operation of PyTorch's after some seconds."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.end = time.perf_counter() + most

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if time.perf_counter() > self.end:
            raise _TooLongError
        return func(*args, **(kwargs or {}))


def time_within(
    most: float, way: Callable[[], object], clock: Callable[[Callable[[], object]], float]
) -> float:
    """Return the time of a way; infinity if its operations take more than some seconds."""
    try:
        with _Deadline(most):
            return clock(way)
    except _TooLongError:
        return math.inf


def measure_seconds(
    ways: Mapping[str, Callable[[], object]], clock: Callable[[Callable[[], object]], float]
) -> dict[str, float]:
    """Return the time of each way: the least of a few, after two that count only if they are long.

    PyTorch's operations are recorded in their second call, and replayed from the third on. The ways
    take turns, so that what else the machine does disturbs both. One far behind is given up.
    """
    times = dict[str, float]()
    for name, way in ways.items():
        most = max(CLEAR * min(times.values()), LONG) if times else math.inf
        times[name] = time_within(most, way, clock)
        if times[name] < LONG:
            times[name] = clock(way)
    short = {name: way for name, way in ways.items() if times[name] < LONG}
    if max(times.values()) > CLEAR * min(times.values()):
        return times
    times |= dict.fromkeys(short, math.inf)
    end = time.perf_counter() + ENOUGH
    for _ in range(RUNS):
        for name, way in short.items():
            times[name] = min(times[name], clock(way))
        if time.perf_counter() > end:
            break
    return times
