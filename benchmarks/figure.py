"""Medians and spreads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The median of some measurements and half the distance between their quartiles."""

    median: float
    spread: float

    def __str__(self) -> str:
        digits = 2 if self.median < 100 else 0
        return f"{self.median:.{digits}f} ± {self.spread:.{digits}f}"


def figure(values: Sequence[float]) -> Figure:
    """Summarise measurements."""
    if len(values) < 4:
        return Figure(statistics.median(values), (max(values) - min(values)) / 2)
    low, median, high = statistics.quantiles(values, n=4)
    return Figure(median, (high - low) / 2)


def scaled(value: Figure, factor: float) -> Figure:
    """Return a figure in another unit."""
    return Figure(value.median * factor, value.spread * factor)
