"""The loops of a recurrence that are compiled ahead of a call; what becomes of their results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from pullback.bind.loops import nests
from pullback.bind.loops.backends import Backend
from pullback.bind.loops.last_steps import Last
from pullback.bind.loops.nests import NoLoops, Own
from pullback.bind.loops.scans import Scan, find_scan
from pullback.bind.math.recurrent_call import ALL, RecurrentCall
from pullback.define.math.formula import Formula


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one result of the loops of a group is.

    Attributes:
        outputs: the places of the outputs that it is.
        state: the name of the state that it is; None if it is not one, or not kept.
        order: of its dimensions.
        last: if it is added up over the steps, what of it there is at last; of a state, that only
            its last step is there.
    """

    outputs: tuple[int, ...]
    state: str | None
    order: tuple[int, ...]
    last: Last | None = None


@dataclass(frozen=True, kw_only=True)
class StepLoops:
    """The loops of one group of states, or of the outputs that are left.

    Attributes:
        own: the loops.
        results: of a group of states; none of outputs that are left.
        reads: the states that are read, by the names that they are read by.
    """

    own: Own
    results: tuple[StepResult, ...] = ()
    reads: Mapping[str, str] = field(default_factory=dict[str, str])


def find_all(  # noqa: PLR0913, PLR0917  (all that decides which loops there are)
    formula: Formula,
    dtype: torch.dtype,
    wanted: int,
    present: frozenset[str],
    usual: Mapping[str, int],
    backend: Backend,
    *,
    is_hoisted: bool,
) -> Iterator[StepLoops | NoLoops]:
    """Yield the loops of a recurrence: of its groups of states, and of outputs that are left.

    If `is_hoisted`, as Python has them: with those of what it computes before the steps, and those
    that keep few steps of large states.
    """
    line, shared = formula.line, str(dtype).removeprefix("torch.")
    missing = frozenset(t.name for t in line.tensors if t.name not in present)
    asked = tuple(bool(wanted >> k & 1) for k in range(len(line.outputs)))
    known = RecurrentCall.of(formula, missing, asked, is_hoisted=is_hoisted)
    dtypes = {t.name: t.dtype or shared for t in line.tensors if t.name in present}
    stored = {*dtypes.values(), *(output.dtype or shared for output in line.outputs)}
    width = "float64" if "float64" in stored else "float32"

    def find(own: RecurrentCall, place: int) -> Scan | NoLoops:
        every = dtypes | dict.fromkeys(own.hoisted.parts, width)
        return find_scan(own.ask(place, usual, every, width, backend))

    made: Mapping[int, Scan | NoLoops] = {}
    if is_hoisted:
        known, made = known.sink_if_loops(find)
    if before := known.hoisted.before:
        every = (1 << len(before.line.outputs)) - 1
        for own in find_plain(before, getattr(torch, width), every, present, usual, backend):
            yield own if isinstance(own, NoLoops) else StepLoops(own=own)
    places = range(len(known.formula.groups))
    several = [[made.get(place) or find(known, place) for place in places]]
    if is_hoisted and known.walks and isinstance(both := find(known, ALL), Scan):
        several.append([both])
    for scans in several:
        yield from (_of_scan(s, known) if isinstance(s, Scan) else s for s in scans)
        computed = {name for s in scans if isinstance(s, Scan) for name in s.names}
        yield from _find_left(known, present, computed, getattr(torch, width), usual, backend)


def _find_left(  # noqa: PLR0913, PLR0917  (as `find_all`)
    known: RecurrentCall,
    present: frozenset[str],
    computed: Collection[str | None],
    width: torch.dtype,
    usual: Mapping[str, int],
    backend: Backend,
) -> Iterator[StepLoops | NoLoops]:
    """Yield the loops of the outputs that do not come with the states."""
    left = [
        k
        for k, output in enumerate(known.formula.line.outputs)
        if known.wanted[k] and k not in known.copied and output.name not in computed
    ]
    if not left:
        return
    rest = known.rest.definition.formula
    assert rest
    names = {own: state for state, own in known.names.items()}
    there = {*present, *names, *known.hoisted.parts}
    given = frozenset(p.name for p in rest.line.parameters if p.name in there)
    bits = sum(1 << k for k in left)
    for own in find_plain(rest, width, bits, given, usual, backend):
        yield own if isinstance(own, NoLoops) else StepLoops(own=own, reads=names)


def _of_scan(scan: Scan, known: RecurrentCall) -> StepLoops:
    """Return the loops of a group, with what becomes of their results."""
    states = known.formula.states
    places = {output.name: k for k, output in enumerate(known.formula.line.outputs)}
    ends = {n: Last((n,), end.step, end.place) for n, end in scan.ends.items()}

    def result(name: str | None, order: Sequence[int]) -> StepResult:
        if name is None:
            return StepResult(outputs=(), state=None, order=tuple(order))
        copies = tuple(k for k, state in known.copied.items() if state == name)
        is_state = name in states
        outputs = copies if is_state else (places[name],)
        return StepResult(
            outputs=outputs,
            state=name if is_state else None,
            order=tuple(order),
            last=scan.totals.get(name) or ends.get(name),
        )

    return StepLoops(
        own=scan.own,
        results=tuple(map(result, scan.names, scan.turned)),
        reads={name: name for name in states},
    )


def find_plain(  # noqa: PLR0913, PLR0917  (as `find_all`)
    formula: Formula,
    dtype: torch.dtype,
    wanted: int,
    present: frozenset[str],
    usual: Mapping[str, int],
    backend: Backend,
) -> Iterator[Own | NoLoops]:
    """Yield the same of a formula without states."""
    places = [k for k in range(len(formula.line.outputs)) if wanted >> k & 1]
    for group in nests.group_outputs(formula, places, usual):
        together = nests.find(formula, dtype, group, present, usual, backend)
        if isinstance(together, Own) or len(group) == 1:
            yield together
        else:
            for k in group:
                yield nests.find(formula, dtype, (k,), present, usual, backend)
