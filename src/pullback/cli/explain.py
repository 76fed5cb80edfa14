"""`pullback explain PB504`: what a code means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from pullback.cli.screen import Format, FormatOption, answer, say, screen, table
from pullback.diagnostic import Rule, did_you_mean

UnknownCode = Rule("PB806", "unknown-code")

# The errors of docs/reference.md, which is not installed: tests/repo/probes_page.py copies them.
CODES = Path(__file__).parent / "codes.md"
ROW = re.compile(r"^\| (PB\d+) \| (\S+) \| (.+) \|$", re.MULTILINE)


def explain(
    code: Annotated[
        str | None, typer.Argument(help="PB504, or a name: saved-tensor-overwritten.")
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
    pages = dict(probe_pages())
    rows = {own: (name, text) for own, name, text in ROW.findall(CODES.read_text("utf-8"))}
    names = {name: own for own, name, _ in probe_rows()}
    names |= {name: own for own, (name, _) in rows.items()}
    wanted = names.get(code, code.upper())
    if wanted in pages:
        name = next(name for name, own in names.items() if own == wanted)
        return wanted, name, pages[wanted]
    if wanted in rows:
        name, text = rows[wanted]
        return wanted, name, f"# {wanted} {name}\n\n{text}\n"
    raise UnknownCode.error(
        f"there is no code '{code}'",
        help=did_you_mean(code, [*rows, *pages, *names]) or "pullback explain lists them",
    )


def probe_pages() -> Iterator[tuple[str, str]]:
    """Yield each probe's code and page."""
    from pullback.verify.probe import page_of  # noqa: PLC0415  (it imports torch)
    from pullback.verify.probes import every_probe  # noqa: PLC0415  (it imports torch)

    for probe in every_probe():
        yield probe.code, page_of(probe)


def probe_rows() -> Iterator[tuple[str, str, str]]:
    """Yield each probe's code, name and rule: the first line of its page."""
    from pullback.verify.probes import every_probe  # noqa: PLC0415

    for probe in every_probe():
        yield probe.code, probe.name, (probe.__doc__ or "").partition("\n")[0]


def show_page(console: Console, page: str) -> None:
    """Print a page: set for a terminal, as it is for a log."""
    if console.is_terminal and not console.no_color:
        console.print(Markdown(page))
    else:
        say(console, page.rstrip())


def all_rows() -> list[tuple[str, str, str]]:
    """Return every code with its name and one line, in order."""
    return sorted([*ROW.findall(CODES.read_text("utf-8")), *probe_rows()])


def show_all(console: Console) -> None:
    """Print every code with its name and one line."""
    shown = table("code", "name", "what is wrong, or, of a probe, what has to hold")
    for row in all_rows():
        shown.add_row(*row)
    console.print(shown, soft_wrap=not console.is_terminal)
