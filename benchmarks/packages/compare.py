"""Comparing an operator with the original Function: in values and in all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.packages.calls import Arguments, Values, compiled, pulled, pulled_by_func, stacked
from benchmarks.packages.case import Case

SAMPLES = 3
TOLERANCE = 1e-5  # of float32, relative to the largest value; most are equal bit by bit
EQUAL = "="


def difference(first: Tensor | None, second: Tensor | None) -> float:
    """Return how far two tensors are apart, relative to the largest value; 0 if bit by bit equal.

    A gradient that is None is one of zeros.
    """
    if first is None or second is None:
        given = first if second is None else second
        return 0.0 if given is None or not bool(given.any()) else float("inf")
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    if torch.equal(first.nan_to_num(1e30), second.nan_to_num(1e30)):
        return 0.0
    first, second = first.nan_to_num(), second.nan_to_num()
    largest = float(second.abs().max()) or 1.0
    return float((first - second).abs().max()) / largest


def verdict(first: Values, second: Values) -> str:
    """Return `=` for equal bit by bit, else the difference; raise if it is too large."""
    worst = max(difference(a, b) for a, b in zip(first, second, strict=True))
    if worst > TOLERANCE:
        raise AssertionError(f"differs by {worst:.1e}")
    return EQUAL if worst == 0 else f"{worst:.0e}"


CHECKS = ("eager", "compile", "func", "vmap")


def checks(case: Case, run: Callable[..., Any], original: Any) -> Iterator[Callable[[], str]]:
    """Yield the four comparisons of `run` with the original Function."""
    first = Arguments.made(case.arguments, 0)
    others = [Arguments.made(case.arguments, seed).tensors for seed in range(1, SAMPLES)]
    samples = [first, *map(first.differentiating, others)]
    expected = pulled(first.call(original), first.tensors)
    mine = first.call(run)

    def vmap() -> str:
        if case.random:
            return "random"
        rows = [[o.detach() for o in s.call(original)(*s.tensors)] for s in samples]
        outputs = torch.vmap(mine)(*stacked(samples))
        wanted = tuple(torch.stack(column) for column in zip(*rows, strict=True))
        return verdict(tuple(outputs), wanted)

    yield lambda: verdict(pulled(mine, first.tensors), expected)
    yield lambda: verdict(pulled(compiled(mine), first.tensors), expected)
    yield lambda: verdict(pulled_by_func(mine, first.tensors), expected)
    yield vmap


def tried(check: Callable[[], str]) -> str:
    """Return a check's verdict, or how it failed."""
    try:
        return check()
    except Exception as error:  # whatever a package raises is a result
        return f"FAILED: {type(error).__name__}: {first_line(error)}"


def compared(case: Case, run: Callable[..., Any], original: Any) -> tuple[str, ...]:
    """Return the verdicts of all checks."""
    try:
        return tuple(tried(check) for check in checks(case, run, original))
    except Exception as error:  # the original itself does not run
        return (f"FAILED: the original: {type(error).__name__}: {first_line(error)}",) * 4


def is_right(cell: str) -> bool:
    """Return whether a verdict is equal or near."""
    return cell[0] == EQUAL or cell[0].isdigit()


def first_line(error: BaseException) -> str:
    """Return the first line of an error that says something."""
    return next((row.strip() for row in str(error).splitlines() if row.strip()), "")


def on_its_own(case: Case, original: Any) -> str:
    """Return which of the checks the Function passes without pullback."""
    verdicts = compared(case, original, original)
    passed = [n for n, v in zip(CHECKS, verdicts, strict=True) if is_right(v)]
    return ", ".join(passed[1:]) or "none"
