"""`pullback cache [size|verify|clean]`: the folder of compiled libraries."""

from __future__ import annotations

from collections import defaultdict

import typer

from pullback.cli.screen import (
    Format,
    FormatOption,
    answer,
    progress,
    say,
    say_report,
    screen,
    table,
)
from pullback.kernels import cache as libraries
from pullback.kernels import cache_contents
from pullback.kernels.cache_contents import Contents

FINDINGS = 1

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@app.callback()
def cache(context: typer.Context, format: FormatOption = Format.TEXT) -> None:
    """Show, verify or empty the folder of compiled libraries; without a command, show it."""
    if context.invoked_subcommand is None:
        size(format)


@app.command()
def size(format: FormatOption = Format.TEXT) -> None:
    """Show where it is, and what takes how much."""
    found = survey()
    rows = by_name(found)
    folders = [str(path) for path in libraries.folders()]
    if format == Format.JSON:
        named = [{"name": name, "versions": n, "bytes": size} for name, (n, size) in rows.items()]
        answer(ok=True, folders=folders, bytes=total(found), libraries=named)
        return
    console = screen()
    shown = table("library", "versions", "size", right=("versions", "size"))
    for name, (count, bytes) in rows.items():
        shown.add_row(name, str(count), mebibytes(bytes))
    if rows:
        console.print(shown)
        say(console, "")
    for folder in folders:
        say(console, folder)
    say(console, f"{mebibytes(total(found))} in {count_libraries(found)}")


@app.command()
def verify(format: FormatOption = Format.TEXT) -> None:
    """Compare each library with the hash that was stored with it.

    What differs is never loaded, but compiled again. Exit code 1: something differs.
    """
    found = survey()
    with progress("comparing"):
        faults = {own.path: list(cache_contents.find_faults(own.path)) for own in found}
    damaged = {path: said for path, said in faults.items() if said}
    if format == Format.JSON:
        entries = [{"entry": str(path), "faults": said} for path, said in damaged.items()]
        answer(ok=not damaged, checked=len(found), damaged=entries)
    else:
        console = screen()
        for path, said in damaged.items():
            say_report(console, "\n".join([f"  FAIL  {path}", *(f"        {s}" for s in said)]))
        count = f"{len(damaged)} of {len(found)} entries are" if damaged else "no entry is"
        say(console, f"{count} damaged: {count_libraries(found)}, {mebibytes(total(found))}")
        if damaged:
            say(console, "what is damaged is compiled again; to remove all: pullback cache clean")
    if damaged:
        raise typer.Exit(FINDINGS)


@app.command()
def clean(format: FormatOption = Format.TEXT) -> None:
    """Remove every library; builds that are running are waited for, and other files stay."""
    before = survey()
    with progress("emptying the cache"):
        libraries.clean()
    after = cache_contents.survey()
    freed = total(before) - total(after)
    if format == Format.JSON:
        answer(ok=True, removed=len(before) - len(after), bytes=freed)
    else:
        say(screen(), f"removed {count_libraries(before)}, {mebibytes(freed)}")


def survey() -> list[Contents]:
    """Return what is in the cache; its folder is made if it is not there."""
    libraries.folder()
    with progress("reading the cache"):
        return cache_contents.survey()


def by_name(found: list[Contents]) -> dict[str, tuple[int, int]]:
    """Return how many versions each library has, and how many bytes they take, the most first.

    What an entry has beside libraries, precompiled headers above all, counts for its own kind.
    """
    rows: dict[str, list[int]] = defaultdict(list)
    for contents in found:
        names = contents.libraries or (("headers",) if contents.bytes else ())
        for name in names:
            rows[name].append(contents.bytes // len(names))
    sizes = {name: (len(bytes), sum(bytes)) for name, bytes in rows.items()}
    return dict(sorted(sizes.items(), key=lambda row: (-row[1][1], row[0])))


def total(found: list[Contents]) -> int:
    """Return the bytes of all entries."""
    return sum(contents.bytes for contents in found)


def count_libraries(found: list[Contents]) -> str:
    """Return "1 library", "2 libraries"."""
    count = sum(len(contents.libraries) for contents in found)
    return f"{count} {'library' if count == 1 else 'libraries'}"


def mebibytes(bytes: int) -> str:
    """Return a size as people read it."""
    return f"{bytes / 2**20:.1f} MiB"
