"""What the commands print with: colour where there is a terminal, plain text everywhere else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pullback.diagnostic import PullbackError

# A log has no width: what is cut or broken there is lost.
WIDEST = 240
# The first word of a row, in reports and tables, and its colour.
MARKS = {
    "FAIL": "bold red",
    "note": "yellow",
    "ok": "green",
    "no": "yellow",
    "add": "cyan",
    "known": "dim",
}
# Where typer's contexts remember in what form a command answers, for errors that come later.
AS_JSON = "pullback.as_json"


class Format(StrEnum):
    """What a command prints."""

    TEXT = "text"
    JSON = "json"


def remember_format(context: typer.Context, value: Any) -> Any:  # noqa: ANN401  (an option's own)
    """Have errors come in the format that is asked for: of `--format`, or of a flag for JSON."""
    context.meta[AS_JSON] = context.meta.get(AS_JSON, False) or value is True or value == "json"
    return value


FormatOption = Annotated[
    Format, typer.Option("--format", callback=remember_format, help="What to print.")
]


def screen() -> Console:
    """Return the console of standard output; it obeys NO_COLOR."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDEST
    return console


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Print text as it is: no markup, and lines are broken by the terminal alone."""
    console.print(text, markup=False, soft_wrap=True, style=style)


def say_report(console: Console, text: str) -> None:
    """Print a report: the marks at the start of its rows have colours."""
    shown = Text(text)
    for mark, style in MARKS.items():
        shown.highlight_regex(rf"(?m)^  {mark}(?=  )", style)
    console.print(shown, soft_wrap=True)


def mark(word: str) -> Text:
    """Return a mark in its colour, for a table."""
    return Text(word, style=MARKS.get(word, ""))


def complain(text: str) -> None:
    """Print to standard error."""
    sys.stdout.flush()
    say(Console(stderr=True, highlight=False), text)


def answer(*, ok: bool, errors: Iterable[PullbackError] = (), **record: object) -> None:
    """Print what a command found as JSON: whether all is well, its own keys, errors as data."""
    whole = {"ok": ok, **record, "errors": [error.finding.to_dict() for error in errors]}
    typer.echo(json.dumps(whole, indent=2, default=str))


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return a table without lines; the columns in `right` hold numbers."""
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in right
        )
    return made


@contextmanager
def progress(doing: str) -> Generator[Callable[[str], None]]:
    """Show on a terminal what is being done, and for how long; a log gets nothing.

    It is on standard error, so it is also seen where the output goes to a file. The function that
    is lent says what is being done now.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task(doing, total=None)
        yield lambda text: bar.update(task, description=text)


@dataclass
class Clock:
    """Seconds that a block took."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s" if self.seconds < 10 else f"{self.seconds:.0f} s"

    @property
    def remark(self) -> str:
        """The time, if anybody had to wait: " in 2.50 s"."""
        return f" in {self}" if self.seconds >= 1 else ""


@contextmanager
def clock() -> Generator[Clock]:
    """Time a block."""
    measured = Clock()
    started = time.perf_counter()
    try:
        yield measured
    finally:
        measured.seconds = time.perf_counter() - started
