"""Compares two executions of every operator, before the faster one is trusted.

A generated loop and PyTorch's operations have nothing in common but the expression graph. On tiny
sizes, with ties, NaN and infinities, they have to agree; the tolerance follows from how far
PyTorch's operations in the same dtype are from the same operations in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from pullback.bind import check
from pullback.bind.dense import evaluate
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.levels import run_isolated
from pullback.bind.loops import nests
from pullback.bind.loops.nests import Own
from pullback.bind.math import samples, verified
from pullback.bind.math.samples import Case
from pullback.bind.math.tolerance import (
    describe_difference,
    has_infinities,
    measure_noises,
    replace_zeros,
    spread_out,
    to_double,
)
from pullback.bind.notice import notice
from pullback.define.math import bounds, derived
from pullback.define.math.coalesce import coalesce
from pullback.define.math.formula import Formula
from pullback.define.math.node import MAX, SUM, in_order
from pullback.define.operator import Definition
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import prebuilt, toolchain
from pullback.kernels.compile import CompileFailed

ExecutionsDiffer = Rule("PB147", "executions-differ")

# Which of 0 and -0 is the greater one depends on the order, and dividing by it gives inf or -inf.
CHOOSING_ZEROS = frozenset({MAX, "maximum", "minimum", "fmax", "fmin"})

_agreed: set[str] = set()


def verify_at_definition(definition: Definition) -> None:
    """Compile and compare an operator's loops, and its gradients', for any size in float32.

    What has agreed before is not even generated. Loops for other dtypes, or made for the sizes of a
    call, are compared when they are compiled.

    Raises:
        PullbackError: PB147, as for `why_not`.
    """
    assert definition.formula
    if definition.line.name.startswith("_"):
        return  # a derivative, whose loops are compared when they are first needed
    if not toolchain.has("c++") and not prebuilt.has_index_loops("cpu"):
        return
    gradients = derived.backward(definition.formula)
    formulas = [definition.formula, *([gradients.formula] if gradients else [])]
    name = verified.digest([verified.serialize_formula(indexed) for indexed in formulas])
    if verified.is_marked(name):
        return
    # As calls take them.
    taken = [found.formula if (found := coalesce(each)) else each for each in formulas]
    found = [(own, present) for indexed in taken for own, present in loops_of(indexed)]
    nests.compile_together([own for own, _ in found])
    if all(why_not(own, present) is None for own, present in found):
        verified.mark(name)


def loops_of(indexed: Formula) -> Iterator[tuple[Own, frozenset[str]]]:
    """Yield an operator's loops for calls of any size, each with the arguments that are present."""
    case = next(samples.draw_cases(indexed, torch.float32, {}, frozenset()), None)
    if case is None:
        return
    present = frozenset(case.arguments)
    for group in nests.group_outputs(indexed, range(len(indexed.nodes)), case.sizes):
        own = nests.find(indexed, torch.float32, group, present, case.sizes, for_any=True)
        if isinstance(own, Own):
            yield own, present


def why_not(own: Own, present: frozenset[str]) -> str | None:
    """Return why a loop cannot be called; stop if its results differ from PyTorch's.

    Each loop is compared once, and that is remembered for other processes.

    Args:
        own: the loop.
        present: the names of the arguments that are not None.

    Raises:
        PullbackError: PB147, which is a fault of pullback's.
    """
    if not own.is_available:
        return f"there is no {own.backend.language} compiler"
    name = verified.digest(
        verified.serialize_formula(own.indexed),
        *(own.outputs, sorted(present), own.specialised, str(own.dtype)),
        verified.serialize_loops(own),
    )
    if name not in _agreed and not verified.is_marked(name):
        if not run_isolated(lambda: compare(own, present)):
            return "it has no tiny sizes to be compared at"
        verified.mark(name)
    _agreed.add(name)
    return None


def why_unusable(own: Own, present: frozenset[str]) -> str | None:
    """Return why a loop is not called, so that PyTorch's operations compute the call."""
    try:
        return why_not(own, present)
    except PullbackError as error:
        if error.finding.code not in (ExecutionsDiffer.code, CompileFailed.code):
            raise
        notice(f"{error}\nPyTorch's operations compute it instead", FormulaNotice)
        return error.finding.name


def compare(own: Own, present: frozenset[str]) -> bool:
    """Compare a loop with PyTorch's operations on tiny inputs; return whether there are any."""
    compared = False
    indexed, outputs = own.indexed, own.outputs
    absent = frozenset(p.name for p in indexed.line.parameters) - present
    ops = {node.op for node in in_order([indexed.nodes[k] for k in outputs])}
    for case in samples.draw_cases(indexed, own.dtype, own.specialised, absent):
        if 0 in case.sizes.values():
            continue  # such a call has no loop
        got, want = run_both(own, case)
        if want == bounds.EmptyMaximum.code:
            continue  # nothing selects it: a call that needs it has been stopped before
        compared |= not isinstance(want, str)
        worst = describe_disagreement(own, case, got, want, has_sums=SUM in ops)
        if worst and ops & CHOOSING_ZEROS:
            case = replace_zeros(case)  # noqa: PLW2901  (the same call, but for these)
            worst = describe_disagreement(own, case, *run_both(own, case), has_sums=SUM in ops)
        if worst and has_infinities(case):
            case = spread_out(case)  # noqa: PLW2901
            worst = describe_disagreement(own, case, *run_both(own, case), has_sums=SUM in ops)
        if worst:
            raise disagreement(indexed, case, worst)
    return compared


def run_both(own: Own, case: Case) -> tuple[Sequence[Tensor] | str, Sequence[Tensor] | str]:
    """Return what a loop and PyTorch compute in a call, or the codes of their errors."""
    dtypes = [dtypes_of(own.indexed, own.dtype)[k] for k in own.outputs]
    return (
        attempt(lambda: run_loop(own, case, dtypes)),
        attempt(lambda: compute_by_pytorch(own.indexed, case, own.outputs, own.dtype)),
    )


def run_loop(own: Own, case: Case, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    """Return what a loop computes, on the CPU whatever it ran on."""
    home = own.backend.home
    moved = {
        name: value.to(home) if isinstance(value, Tensor) else value
        for name, value in case.arguments.items()
    }
    return [value.cpu() for value in own.run(moved, case.sizes, dtypes)]


def describe_disagreement(
    own: Own,
    case: Case,
    got: Sequence[Tensor] | str,
    want: Sequence[Tensor] | str,
    *,
    has_sums: bool,
) -> str | None:
    """Return where two results differ by more than roundings explain, in words."""
    if isinstance(got, str) or isinstance(want, str):
        return None if got == want else f"the loop: {got}; PyTorch's operations: {want}"
    doubled = to_double(case)

    def exactly() -> list[Tensor]:
        return compute_by_pytorch(own.indexed, doubled, own.outputs, torch.float64)

    values = list(zip(got, want, exactly(), strict=True))
    if not any(describe_difference(*each, has_sums=has_sums) for each in values):
        return None
    for place, each, noise in zip(own.outputs, values, measure_noises(exactly), strict=True):
        if worst := describe_difference(*each, noise, has_sums=has_sums):
            return f"'{own.indexed.line.outputs[place].name}': {worst}"
    return None


def attempt(run: Callable[[], Sequence[Tensor]]) -> Sequence[Tensor] | str:
    """Return what a call returns, or the code of its error."""
    try:
        return run()
    except PullbackError as error:
        return error.finding.code


def compute_by_pytorch(
    indexed: Formula, case: Case, outputs: tuple[int, ...], dtype: torch.dtype
) -> list[Tensor]:
    """Return outputs by PyTorch's operations, in the order that is given."""
    wanted = [k in outputs for k in range(len(indexed.line.outputs))]
    dtypes = dtypes_of(indexed, dtype)
    device = torch.device("cpu")
    values = evaluate.evaluate(indexed, case.arguments, case.sizes, wanted, dtypes, device)
    return [value for k in outputs if (value := values[k]) is not None]


def dtypes_of(indexed: Formula, shared: torch.dtype) -> list[torch.dtype]:
    """Return the dtypes of all outputs."""
    return [
        check.dtype_named(output.dtype) if output.dtype else shared
        for output in indexed.line.outputs
    ]


def disagreement(indexed: Formula, case: Case, what: str) -> PullbackError:
    """Return the error for two executions that differ."""
    return ExecutionsDiffer.error(
        f"{indexed.line.called}: its generated loop and PyTorch's operations differ: {what}",
        case=case.what,
        help="this is a fault of pullback's: please report the line",
    )
