"""Contracts that nobody could guess: a fault that goes away where one is kept hangs on the guess.

Inputs that were found are accepted by forward, which says little: a Cholesky factor that is not
triangular, an index that is no permutation and a constant that requires a gradient are accepted as
well, and backward is wrong for them without being wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pullback.diagnostic import Finding
from pullback.verify.call import Call
from pullback.verify.numbers.gradient import is_square
from pullback.verify.randomness import make_generator
from pullback.verify.report import Outcome, Report

# Ask some probes, by their codes, or all of them, about a call.
Ask = Callable[[Call, Collection[str] | None], Report]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What an input may have to be.

    Attributes:
        words: "w is symmetric".
        keep: makes a call that keeps it of one that need not.
    """

    words: str
    keep: Callable[[Call], Call]


def contracts(call: Call, ungraded: Collection[str]) -> Iterator[Contract]:
    """Yield what the inputs of a call may have to be.

    Args:
        call: with inputs that were found.
        ungraded: the inputs for which backward returns None.
    """
    for index, leaf in enumerate(call.leaves):
        if leaf.parameter:
            continue
        if leaf.name in ungraded and len(call.wanted) > 1:
            yield Contract(words=f"{leaf.name} is a constant", keep=without_gradient(index))
        value = leaf.value
        if is_square(value) and value.is_floating_point():
            for words, change in (("symmetric", definite), ("lower triangular", triangular)):
                yield Contract(words=f"{leaf.name} is {words}", keep=with_value(index, change))
        if value.dtype in (torch.int32, torch.int64) and value.dim() == 1:
            words = f"{leaf.name} is a permutation"
            yield Contract(words=words, keep=with_value(index, permutation))


def without_gradient(index: int) -> Callable[[Call], Call]:
    """Return what makes a leaf one that requires no gradient."""
    return lambda call: call.wanting(
        [leaf.wanted and i != index for i, leaf in enumerate(call.leaves)]
    )


def with_value(index: int, change: Callable[[Tensor], Tensor]) -> Callable[[Call], Call]:
    """Return what changes the value of a leaf."""
    return lambda call: call.with_values(
        [change(leaf.value) if i == index else leaf.value for i, leaf in enumerate(call.leaves)]
    )


def definite(value: Tensor) -> Tensor:
    """Return symmetric matrices; positive definite, as covariances are, and well conditioned."""
    size = value.shape[-1]
    return (value @ value.mT) / size + torch.eye(size, dtype=value.dtype)


def triangular(value: Tensor) -> Tensor:
    """Return the Cholesky factors of symmetric matrices."""
    return torch.linalg.cholesky(definite(value))


def permutation(value: Tensor) -> Tensor:
    """Return a permutation of as many elements."""
    return torch.randperm(len(value), generator=make_generator(0), dtype=value.dtype)


def hedge(call: Call, ungraded: Collection[str], report: Report, ask: Ask) -> Report:
    """Return the report of the inputs that keep the contracts which take faults away.

    What was only found without them is advice there.

    Args:
        call: with inputs that were found.
        ungraded: the inputs for which backward returns None.
        report: on the call.
        ask: asks probes about another call.
    """
    faults = count_faults(report)
    kept: list[str] = []
    for contract in contracts(call, ungraded):
        if not faults:
            break
        other = contract.keep(call)
        left = count_faults(answers := ask(other, faults))
        if left < faults and answered(answers, faults.keys() - left.keys()):
            call, faults = other, left
            kept.append(contract.words)
    if not kept:
        return report
    return merge(ask(call, None), report, ", ".join(kept))


def count_faults(report: Report) -> Counter[str]:
    """Return how many faults each probe found: also those with another code, as of a crash."""
    return Counter(o.code for o in report.everything for f in o.findings if f.level == "fault")


def answered(report: Report, codes: Collection[str]) -> bool:
    """Tell whether probes could answer: forward and backward took the inputs."""
    return all(o.verdict in ("ok", "advice") for o in report.everything if o.code in codes)


def merge(report: Report, before: Report, words: str) -> Report:
    """Return a report with the findings of an earlier one, as advice."""
    hanging = {o.code: o.findings for o in before.everything if o.verdict == "fault"}
    outcomes = tuple(with_advice(o, hanging.get(o.code, ()), words) for o in report.outcomes)
    notes = (*report.notes, f"some faults hang on what was guessed: checked where {words}")
    return replace(report, outcomes=outcomes, notes=notes)


def with_advice(outcome: Outcome, findings: Collection[Finding], words: str) -> Outcome:
    """Return the outcome of a probe, and what it found of other inputs."""
    if outcome.verdict == "fault" or not findings:
        return outcome
    advice = tuple(
        replace(
            finding,
            level="advice",
            evidence=(*finding.evidence, ("hangs on a guess", f"not found where {words}")),
        )
        for finding in findings
    )
    return replace(outcome, verdict="advice", findings=(*outcome.findings, *advice), reason=None)
