"""Results as rows in the terminal, as counts, and as the tables in `docs/packages.md`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.packages.case import Case
from benchmarks.packages.compare import CHECKS, is_right
from benchmarks.packages.examine import Result
from benchmarks.packages.table import PACKAGES

PAGE = Path(__file__).parents[2] / "docs" / "packages.md"
BEGIN, END = "<!-- written by benchmarks/packages/ -->", "<!-- end of what is written -->"


def outcome(result: Result) -> list[str]:
    """Return a result's row in the terminal."""
    cells = result.cells or ("",) * len(CHECKS)
    short = ["FAILED" if cell.startswith("FAILED") else cell for cell in cells]
    kind = "refused" if result.case.refused else "original fails" if result.case.broken else ""
    return [result.case.name, *short, result.alone, kind]


def details(results: Sequence[Result]) -> Iterator[str]:
    """Yield what pullback said, and all failures at length."""
    for result in results:
        if result.message:
            yield f"{result.case.name}: {result.message}"
        for name, cell in zip(CHECKS, result.cells, strict=False):
            if cell.startswith("FAILED"):
                yield f"{result.case.name}: {name}: {cell}"


def summary(results: Sequence[Result]) -> str:
    """Return the counts; a Function with two lines counts once."""
    results = list({result.case.function: result for result in results}.values())
    kinds = Counter(
        "refused with the reason"
        if r.case.refused
        else "fail by themselves"
        if r.case.broken
        else "adopted"
        for r in results
        if not r.failed
    )
    failed = sum(result.failed for result in results)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    packages = len({result.package.name for result in results})
    return f"{len(results)} Functions of {packages} packages: {counts}, {failed} failed"


def comparison(results: Sequence[Result]) -> str:
    """Return how many pass each check, adopted and by themselves."""
    results = [r for r in {r.case.function: r for r in results}.values() if r.cells]
    counts = [
        f"{name}: {sum(is_right(r.cells[i]) for r in results)} adopted, "
        f"{sum(name in r.alone.split(', ') for r in results)} alone"
        for i, name in enumerate(CHECKS)
        if i > 0
    ]
    drawn = sum(r.case.random for r in results)
    return f"Of {len(results)}, {'; '.join(counts)} ({drawn} draw random numbers, left out)"


def install_command() -> str:
    """Return the command that installs all packages."""
    names = " ".join(f"{package.name}=={package.version}" for package in PACKAGES)
    return f"pip install -c constraints.txt {names}"


def shown_line(case: Case) -> str:
    """Return a line for a cell of a Markdown table."""
    return f"`{case.line}`"


def markdown(results: Sequence[Result]) -> str:
    """Return the part of the page that is written."""
    rows = [f"{summary(results)}. {comparison(results)}.", "", "```sh", install_command(), "```"]
    for package, own in itertools.groupby(results, lambda result: result.package):
        rows += ["", f"### {package.name} {package.installed}", "", *tables_of(list(own))]
    return "\n".join(rows)


def tables_of(results: Sequence[Result]) -> Iterator[str]:
    """Yield the rows of one package."""
    compared = [r for r in results if r.cells]
    if compared:
        yield f"| Function | line | {' | '.join(CHECKS)} | alone |"
        yield "|---|---|" + "---|" * (len(CHECKS) + 1)
    for result in compared:
        notes = f" ({'; '.join(result.notes)})" if result.notes else ""
        cells = " | ".join(cell.partition(":")[0] for cell in result.cells)
        name = f"`{result.case.name}`{notes}"
        yield f"| {name} | {shown_line(result.case)} | {cells} | {result.alone} |"
    rest = [r for r in results if not r.cells]
    if compared and rest:
        yield ""
    if rest:
        yield "| Function | line | not adopted, because |"
        yield "|---|---|---|"
    for result in rest:
        message = result.message.replace("|", "\\|")
        yield f"| `{result.case.name}` | {shown_line(result.case)} | {message} |"


def write(results: Sequence[Result]) -> None:
    """Renew the part of the page between the two comments."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n\n{END}{after}", encoding="utf-8")
