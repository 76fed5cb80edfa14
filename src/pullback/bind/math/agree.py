"""Compares what computes a recurrence with its steps by PyTorch's operations, before it is used.

That is a loop, or a cumulative function of PyTorch's. It has nothing in common with the steps but
the graph. Where they differ, the call is stopped (PB147).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from pullback.bind import check
from pullback.bind.dense import evaluate
from pullback.bind.dense.places import IndexOutside
from pullback.bind.dense.steps import StatesCall, compute_group
from pullback.bind.levels import run_isolated
from pullback.bind.loops.chunks import ChunkedScan, Loops
from pullback.bind.loops.last_steps import End
from pullback.bind.math import samples, verified, verify
from pullback.bind.math.samples import Case
from pullback.bind.math.tolerance import (
    describe_difference,
    find_unsteady,
    has_infinities,
    measure_distance,
    measure_noises,
    spread_out,
    to_double,
)
from pullback.define.math import steps
from pullback.define.math.bounds import EmptyMaximum
from pullback.define.math.cumulative import find_cumulative
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.node import SUM, in_order
from pullback.diagnostic import PullbackError

# By how much steps are perturbed to see the effect: a few roundings in float64, for each step may
# amplify what the one before it has made of them.
LITTLE = 2.0**-48
# What moves by so much of its size then is chaotic: a rounding may move it by all of it.
CHAOTIC = 2.0**-4
# Such a call is stopped before a loop.
STOPPED = (EmptyMaximum.code, IndexOutside.code)


def require_agreement(scan: Loops, formula: Formula, place: int, present: frozenset[str]) -> None:
    """Stop if a loop's states differ from those of the steps.

    Each loop is compared once, and that is remembered for other processes.

    Args:
        scan: the loops.
        formula: whose states they compute.
        place: which of its groups they are for.
        present: the names of the arguments that are not None.

    Raises:
        PullbackError: PB147, which is a fault of pullback's.
    """
    own, in_chunks = scan.own, isinstance(scan, ChunkedScan)
    name = verified.digest(
        verified.serialize_formula(formula),
        *(place, sorted(present), own.specialised, str(own.dtype)),
        [text for each in scan.owns for text in verified.serialize_loops(each)],
    )
    fixed = {**own.specialised, **scan.crossing}
    is_added_up = isinstance(scan, ChunkedScan) or bool(scan.totals)
    has_sums = is_added_up or any(n.op == SUM for n in in_order(own.indexed.nodes))
    ends = {} if isinstance(scan, ChunkedScan) else scan.ends
    compared = Compared(
        *(formula, place, present, own.dtype, fixed, scan.names, has_sums, in_chunks, ends)
    )
    home = own.backend.home

    def run(case: Case, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {
            name: value.to(home) if isinstance(value, Tensor) else value
            for name, value in {**case.arguments, **known}.items()
        }
        return {name: value.cpu() for name, value in scan.run(given, case.sizes).items()}

    _require(name, compared, run)


def require_cumulative(
    formula: Formula, place: int, present: frozenset[str], dtype: torch.dtype
) -> None:
    """Stop if a group's states differ from those of the steps where they are computed at once.

    Args: as `require_agreement`.

    Raises:
        PullbackError: PB147, which is a fault of pullback's.
    """
    group, whole = formula.groups[place], find_cumulative(formula, formula.groups[place])
    assert whole
    name = verified.digest(
        verified.serialize_formula(formula),
        *("cumulative", place, sorted(present), str(dtype)),
        [],
    )

    def run(case: Case, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return compute_group(_call(formula, case, dtype), group, known, whole)

    names = (*(state.name for state in group.states), *whole.outputs)
    _require(name, Compared(formula, place, present, dtype, {}, names, has_sums=False), run)


@dataclass(frozen=True)
class Compared:
    """What is compared with the steps.

    Attributes:
        formula: whose states.
        place: which of its groups.
        present: the names of the arguments that are not None.
        dtype: of real states.
        fixed: sizes that it is made for.
        names: of what it computes.
        has_sums: whether something is added up in a step.
        in_chunks: whether what is infinite, or no number, spreads through a chunk of steps.
        ends: the states of which the last step alone is computed.
    """

    formula: Formula
    place: int
    present: frozenset[str]
    dtype: torch.dtype
    fixed: Mapping[str, int]
    names: tuple[str | None, ...]
    has_sums: bool
    in_chunks: bool = False
    ends: Mapping[str, End] = field(default_factory=dict[str, End])


Run = Callable[[Case, Mapping[str, Tensor]], Mapping[str, Tensor]]


def _require(name: str, compared: Compared, run: Run) -> None:
    """Compare once; `name` is what is remembered for other processes."""
    if not verified.is_marked(name):
        run_isolated(lambda: _compare(compared, run))
        verified.mark(name)


def _compare(compared: Compared, compute: Run) -> None:
    formula = compared.formula
    absent = frozenset(p.name for p in formula.line.parameters) - compared.present
    for case in samples.draw_cases(formula, compared.dtype, compared.fixed, absent):
        if 0 in case.sizes.values():
            continue
        found = _describe_disagreement(compared, compute, case)
        if found and has_infinities(case):
            case = spread_out(case)  # noqa: PLW2901  (the same call, but for these)
            found = _describe_disagreement(compared, compute, case)
        if found:
            raise verify.disagreement(formula, case, found)


def _describe_disagreement(compared: Compared, compute: Run, case: Case) -> str | None:
    """Return where a call by what is compared differs from its steps; None if it does not."""
    dtype = compared.dtype
    run = partial(_by_steps, compared, to_double(case), torch.float64)
    try:
        exact = run()
    except PullbackError as error:
        if error.finding.code not in STOPPED:
            raise
        return None
    # Steps take long. Where a loop is as near as that, those of its own dtype are not needed.
    rounded = {name: _round(value, dtype) for name, value in exact.items()}
    if not _find_difference(compared, compute(case, rounded), rounded, exact):
        return None
    want = _by_steps(compared, case, dtype)
    if compared.in_chunks and not all(value.isfinite().all() for value in want.values()):
        return None
    got = compute(case, want)
    if not _find_difference(compared, got, want, exact):
        return None
    if has_infinities(case):
        unsteady = find_unsteady(lambda: [run()[name] for name in got], LITTLE)
        pairs = zip(got.items(), unsteady, strict=True)
        got = {n: torch.where(u, want[n], v.reshape(want[n].shape)) for (n, v), u in pairs}
    # So is how noisy steps are.
    return _find_difference(compared, got, want, exact, _measure_noises(got, exact, run))


def _round(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a value in the dtype that it is computed in."""
    return value.to(dtype) if value.is_floating_point() else value


def _find_difference(
    compared: Compared,
    got: Mapping[str, Tensor],
    want: Mapping[str, Tensor],
    exact: Mapping[str, Tensor],
    noises: Mapping[str, float] | None = None,
) -> str | None:
    """Return where two executions differ by more than rounding; None if they do not.

    Args:
        compared: what is compared.
        got: by one of them.
        want: by steps.
        exact: by steps in float64.
        noises: how noisy these are.
    """
    for name, value in got.items():
        given = value, want[name], exact[name], (noises or {}).get(name, 0.0)
        if found := describe_difference(*given, has_sums=compared.has_sums):
            return f"'{name}': {found}"
    return None


def _measure_noises(
    got: Mapping[str, Tensor], exact: Mapping[str, Tensor], run: Callable[[], Mapping[str, Tensor]]
) -> Mapping[str, float]:
    """Return how noisy steps are that compute the same as a loop."""
    noises = measure_noises(lambda: [run()[name] for name in got], LITTLE)
    sizes = (measure_distance(exact[name], torch.zeros(())) for name in got)
    several = zip(got, noises, sizes, strict=True)
    return {name: _extend(noise, size) for name, noise, size in several}


def _extend(noise: float, size: float) -> float:
    """Return how noisy something of a size is, where a perturbation says no more than that."""
    is_chaotic = noise * LITTLE > CHAOTIC * size
    return noise / CHAOTIC**2 if is_chaotic else noise


def _call(formula: Formula, case: Case, dtype: torch.dtype) -> StatesCall:
    return StatesCall(
        formula=formula,
        arguments=case.arguments,
        sizes=case.sizes,
        compute=dtype,
        device=torch.device("cpu"),
    )


def _by_steps(compared: Compared, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the states up to a group, and the outputs that are computed with them."""
    formula, call = compared.formula, _call(compared.formula, case, dtype)
    found: dict[str, Tensor] = {}
    for group in formula.groups[: compared.place + 1]:
        found |= compute_group(call, group, found)
    lines = formula.line.outputs
    wanted = [line.name in compared.names and line.name not in found for line in lines]
    if any(wanted):
        free = FreeNames(formula.line)
        names = {name: free.fresh(f"{name}_") for name in found}
        rest = steps.rest_of(formula, names)
        given = {**case.arguments, **{names[name]: value for name, value in found.items()}}
        dtypes = [check.dtype_named(line.dtype) if line.dtype else dtype for line in lines]
        values = evaluate.evaluate(rest, given, case.sizes, wanted, dtypes, call.device)
        found |= {o.name: v for o, v in zip(lines, values, strict=True) if v is not None}
    return found | {n: end.repeat(found[n], case.sizes) for n, end in compared.ends.items()}
