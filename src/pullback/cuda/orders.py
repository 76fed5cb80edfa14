"""Whether a program prints the same in every order of a block's threads."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import zip_longest

from pullback.diagnostic import Finding
from pullback.kernels.cuda_on_cpu.mode import OrderMatters

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)")
# A sum of a block's 1024 terms in float32, taken in another order.
TOLERANCE = 1024 * 2.0**-23


def compare_outputs(outputs: dict[str, str]) -> Finding | None:
    """Compare what a program wrote in each order of threads.

    Lines of `printf` in a kernel come in the order of threads: their order does not count.

    Args:
        outputs: order -> text; the others are compared with the first.
    """
    (first, text), *others = outputs.items()
    lines = text.splitlines()
    for order, other in others:
        found = _find_unlike(lines, other.splitlines())
        if found:
            return OrderMatters.error(
                f"the output in order {order} is another than in order {first}",
                **{first.partition(":")[0]: found[0], order.partition(":")[0]: found[1]},
                help="threads of a block depend on which runs first: a __syncthreads() may be"
                " missing; 'pullback cuda race' finds it",
            ).finding
    return None


def _find_unlike(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """Return the first two lines that differ, unless only the order of lines does."""
    if _find_first_unlike(sorted(one), sorted(other)) is None:
        return None
    return _find_first_unlike(one, other)


def _find_first_unlike(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    for index, (mine, its) in enumerate(zip_longest(one, other), 1):
        if mine is None or its is None or not _same(mine, its):
            shown = ["nothing" if line is None else line for line in (mine, its)]
            return f"line {index}: {shown[0]}", f"line {index}: {shown[1]}"
    return None


def _same(mine: str, its: str) -> bool:
    """Compare two lines: their words as they are, numbers with a fraction by their value."""
    if NUMBER.sub("#", mine) != NUMBER.sub("#", its):
        return False
    pairs = zip(NUMBER.findall(mine), NUMBER.findall(its), strict=True)
    return all(_close(a, b) for a, b in pairs)


def _close(a: str, b: str) -> bool:
    if a == b:
        return True
    if not any(mark in a + b for mark in ".eE"):
        return False
    # The last printed digit may be rounded either way.
    digits = max(len(a.partition(".")[2]), len(b.partition(".")[2]))
    return math.isclose(float(a), float(b), rel_tol=TOLERANCE, abs_tol=10.0**-digits)
