"""Timing by turns, and tables of medians, spreads and ratios."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from benchmarks.figure import Figure, figure, scaled

__all__ = ["Figure", "by_turns", "console", "figure", "keep_memory", "scaled", "show"]

console = Console(width=110)


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


def keep_memory() -> None:
    """Keep freed memory in this process: a system that clears pages is no candidate's."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-4, 0)  # M_MMAP_MAX
    libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


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
