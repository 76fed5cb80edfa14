"""What of a large table runs in each run: a telling part of it; the rest is thorough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings


def telling(table: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Return the rows of a table as a test's parameters; what is not named is `thorough`."""
    known = set(names)
    assert known <= set(table), known - set(table)
    return [
        pytest.param(row, id=name, marks=[] if name in known else [pytest.mark.thorough])
        for name, row in table.items()
    ]


def one_in(many: int, rows: Sequence[Any]) -> list[Any]:
    """Return one of as many neighbours each, by a sequence that has no period (Thue and Morse).

    The first of each would have few rows of a table's second side, if that is a multiple.
    """
    last = len(rows) - 1
    starts = range(0, len(rows), many)
    return [rows[min(start + sum_of_digits(start, many) % many, last)] for start in starts]


def sum_of_digits(number: int, base: int) -> int:
    """Return the sum of a number's digits."""
    return number % base + sum_of_digits(number // base, base) if number else 0


def examples(few: int, many: int) -> int:
    """Return how many examples Hypothesis draws: few the same in each run, or many anew."""
    return many if settings.get_current_profile_name() == "thorough" else few
