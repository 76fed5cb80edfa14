"""Compares the loops of a recurrence with its steps by PyTorch's operations, before it is used.

The two have nothing in common but the graph. Where they differ, the call is stopped (PB147).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from pullback.bind import check
from pullback.bind.dense import evaluate
from pullback.bind.dense.places import IndexOutside
from pullback.bind.dense.steps import StatesCall, compute_group
from pullback.bind.levels import run_isolated
from pullback.bind.loops.scans import Scan
from pullback.bind.math import samples, verified, verify
from pullback.bind.math.samples import Case
from pullback.bind.math.tolerance import describe_difference, measure_noises, to_double
from pullback.define.math import steps
from pullback.define.math.bounds import EmptyMaximum
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.node import SUM, in_order
from pullback.diagnostic import PullbackError

# Such a call is stopped before a loop.
STOPPED = (EmptyMaximum.code, IndexOutside.code)


def require_agreement(scan: Scan, formula: Formula, place: int, present: frozenset[str]) -> None:
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
    own = scan.own
    name = verified.digest(
        verified.serialize_formula(formula),
        *(place, sorted(present), own.specialised, str(own.dtype)),
        [step.kernel.text for step in own.steps],
    )
    if not verified.is_marked(name):
        run_isolated(lambda: _compare(scan, formula, place, present))
        verified.mark(name)


def _compare(scan: Scan, formula: Formula, place: int, present: frozenset[str]) -> None:
    absent = frozenset(p.name for p in formula.line.parameters) - present
    dtype = scan.own.dtype
    has_sums = any(node.op == SUM for node in in_order(scan.own.indexed.nodes))
    for case in samples.draw_cases(formula, dtype, scan.own.specialised, absent):
        if 0 in case.sizes.values():
            continue
        try:
            want = _by_steps(formula, place, case, dtype, scan)
        except PullbackError as error:
            if error.finding.code not in STOPPED:
                raise
            continue
        got = scan.run({**case.arguments, **want}, case.sizes)
        run = partial(_by_steps, formula, place, to_double(case), torch.float64, scan)
        found = _find_difference(got, want, run, has_sums=has_sums)
        if found is not None:
            raise verify.disagreement(formula, case, found)


def _find_difference(
    got: Mapping[str, Tensor],
    want: Mapping[str, Tensor],
    run: Callable[[], Mapping[str, Tensor]],
    *,
    has_sums: bool,
) -> str | None:
    """Return where loops and steps differ by more than rounding; None if they do not.

    Args:
        got: by loops.
        want: by steps.
        run: computes the steps in float64.
        has_sums: whether something is added up.
    """
    exact = run()

    def worst(noises: Mapping[str, float]) -> str | None:
        for name, value in got.items():
            given = value, want[name], exact[name], noises.get(name, 0.0)
            if found := describe_difference(*given, has_sums=has_sums):
                return f"'{name}': {found}"
        return None

    # Steps take long: how noisy they are is measured where it matters.
    if not worst({}):
        return None
    noises = measure_noises(lambda: [run()[name] for name in got])
    return worst(dict(zip(got, noises, strict=True)))


def _by_steps(
    formula: Formula, place: int, case: Case, dtype: torch.dtype, scan: Scan
) -> dict[str, Tensor]:
    """Return the states up to a group, and the outputs that its loops compute too."""
    device = torch.device("cpu")
    call = StatesCall(
        formula=formula, arguments=case.arguments, sizes=case.sizes, compute=dtype, device=device
    )
    found: dict[str, Tensor] = {}
    for group in formula.groups[: place + 1]:
        found |= compute_group(call, group, found)
    lines = formula.line.outputs
    wanted = [line.name in scan.names and line.name not in found for line in lines]
    if any(wanted):
        free = FreeNames(formula.line)
        names = {name: free.fresh(f"{name}_") for name in found}
        rest = steps.rest_of(formula, names)
        given = {**case.arguments, **{names[name]: value for name, value in found.items()}}
        dtypes = [check.dtype_named(line.dtype) if line.dtype else dtype for line in lines]
        values = evaluate.evaluate(rest, given, case.sizes, wanted, dtypes, device)
        found |= {o.name: v for o, v in zip(lines, values, strict=True) if v is not None}
    return found
