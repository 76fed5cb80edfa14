"""What of a large table runs in each run: a telling part of it; the rest is thorough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def examples(few: int, many: int) -> int:
    """Return how many examples Hypothesis draws: few the same in each run, or many anew."""
    return many if settings.get_current_profile_name() == "thorough" else few
