"""What the commands print with: colour where there is a terminal, plain text everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

# A log has no width: what is cut or broken there is lost.
WIDEST = 240


def screen() -> Console:
    """Return the console of standard output; it obeys NO_COLOR."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDEST
    return console


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Print text as it is: no markup, and lines are broken by the terminal alone."""
    console.print(text, markup=False, soft_wrap=True, style=style)


def complain(text: str) -> None:
    """Print to standard error."""
    sys.stdout.flush()
    say(Console(stderr=True, highlight=False), text)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table without lines; the columns in `right` hold numbers."""
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in right
        )
    return made


@dataclass
class Clock:
    """Seconds that a block took."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s" if self.seconds < 10 else f"{self.seconds:.0f} s"


@contextmanager
def clock() -> Generator[Clock]:
    """Time a block."""
    measured = Clock()
    started = time.perf_counter()
    try:
        yield measured
    finally:
        measured.seconds = time.perf_counter() - started
