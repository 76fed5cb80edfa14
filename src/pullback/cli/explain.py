"""`pullback explain PB504`: what a code means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from pullback.cli.screen import Format, FormatOption, answer, say, screen, table
from pullback.diagnostic import Rule, did_you_mean

UnknownCode = Rule("PB806", "unknown-code")

# What docs/reference.md says of errors and probes, and is not installed: written by
# tests/repo/probes_page.py.
CODES = Path(__file__).parent / "codes.md"
ROW = re.compile(r"^\| (PB\d+) \| (\S+) \| (.+) \|$", re.MULTILINE)


def complete(start: str) -> list[tuple[str, str]]:
    """Return the codes, or names, that a shell may add to what was typed, each with its line."""
    codes = [(own, f"{name}: {text}") for own, name, text in all_rows() if own.startswith(start)]
    return codes or [(name, text) for _, name, text in all_rows() if name.startswith(start)]


def explain(
    code: Annotated[
        str | None,
        typer.Argument(autocompletion=complete, help="PB504, or a name: saved-tensor-overwritten."),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Print the page of a code; without one, the list of all."""
    console = screen()
    if code is None and format == Format.JSON:
        listed = [{"code": own, "name": name, "text": text} for own, name, text in all_rows()]
        answer(ok=True, codes=listed)
    elif code is None:
        show_all(console)
    else:
        own, name, page = page_of_code(code)
        if format == Format.JSON:
            answer(ok=True, code=own, name=name, page=page)
        else:
            show_page(console, page)


def page_of_code(code: str) -> tuple[str, str, str]:
    """Return the code, the name and the page of what is asked for by its code or by its name.

    Raises:
        PullbackError: PB806, there is none.
    """
    rows = {own: (name, text) for own, name, text in all_rows()}
    names = {name: own for own, (name, _) in rows.items()}
    wanted = names.get(code, code.upper())
    if wanted not in rows:
        raise UnknownCode.error(
            f"there is no code '{code}'",
            help=did_you_mean(code, [*rows, *names]) or "pullback explain lists them",
        )
    name, text = rows[wanted]
    return wanted, name, page_of_probe(wanted) or f"# {wanted} {name}\n\n{text}\n"


def page_of_probe(code: str) -> str | None:
    """Return a probe's page, or None if the code is an error's."""
    from pullback.verify.probe import page_of  # noqa: PLC0415  (it imports torch)
    from pullback.verify.probes import every_probe  # noqa: PLC0415  (it imports torch)

    return next((page_of(probe) for probe in every_probe() if probe.code == code), None)


def show_page(console: Console, page: str) -> None:
    """Print a page: set for a terminal, as it is for a log."""
    if console.is_terminal and not console.no_color:
        console.print(Markdown(page))
    else:
        say(console, page.rstrip())


def all_rows() -> list[tuple[str, str, str]]:
    """Return every code with its name and one line, in order."""
    return ROW.findall(CODES.read_text("utf-8"))


def show_all(console: Console) -> None:
    """Print every code with its name and one line."""
    shown = table("code", "name", "what is wrong, or, of a probe, what has to hold")
    for row in all_rows():
        shown.add_row(*row)
    console.print(shown, soft_wrap=not console.is_terminal)
