"""Timing by turns, and tables of medians, spreads and ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

console = Console(width=110)


@dataclass(frozen=True)
class Figure:
    """The median of some measurements and half the distance between their quartiles."""

    median: float
    spread: float

    def __str__(self) -> str:
        digits = 2 if self.median < 100 else 0
        return f"{self.median:.{digits}f} ± {self.spread:.{digits}f}"


def figure(values: list[float]) -> Figure:
    """Summarise measurements."""
    if len(values) < 4:
        return Figure(statistics.median(values), (max(values) - min(values)) / 2)
    low, median, high = statistics.quantiles(values, n=4)
    return Figure(median, (high - low) / 2)


def by_turns(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, calls: int
) -> dict[str, Figure]:
    """Time every candidate once a round, so that a drift of the machine hits all alike.

    Returns:
        Seconds a call.
    """
    for run in candidates.values():
        for _ in range(calls // 10 + 1):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            seconds[name].append((time.perf_counter() - start) / calls)
    return {name: figure(values) for name, values in seconds.items()}


def scaled(value: Figure, factor: float) -> Figure:
    """Return a figure in another unit."""
    return Figure(value.median * factor, value.spread * factor)


def show(title: str, columns: list[str], rows: list[list[str]], notes: list[str]) -> None:
    """Print a table and what belongs under it."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(f"  {note}")
    console.print()
