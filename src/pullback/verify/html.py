"""A report as one HTML page that needs nothing else: no network, no scripts."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from pullback.diagnostic import Finding
from pullback.verify.text import summary, verdict_of

if TYPE_CHECKING:
    from pullback.verify.report import Listing, Report

# The evidence that is drawn: rows of characters, one a cell, from nothing to everything.
MAP = "where it differs"
RAMPS = ("·░▒▓█", " .:-=+*#%@", "0123456789")
CELL = 14


def html_of(*reports: Report) -> str:
    """Return a page of one report, or of several."""
    return load_template().render(reports=reports)


@functools.cache
def load_template() -> Template:
    """Return the page, in which all texts are escaped."""
    own = (summary, verdict_of, rows_of, listings_of, lines_of)
    page = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    ).from_string(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    page.globals.update({each.__name__: each for each in own}, MAP=MAP)
    page.globals.update(draw_picture=lambda text: Markup(draw_picture(text) or ""))
    return page


def rows_of(finding: Finding) -> list[tuple[str, str]]:
    """Return where a finding is, its evidence and its cure, each with what it is."""
    return [
        *([("at", finding.where)] if finding.where else []),
        *finding.evidence,
        *([("help", finding.help)] if finding.help else []),
    ]


def listings_of(report: Report) -> list[Listing]:
    """Return the author's texts, each once."""
    return list(dict.fromkeys(own for r in (*report.parts, report) for own in r.listings))


def draw_picture(text: str) -> str | None:
    """Return a heat map drawn from its characters; None if the text has none."""
    for ramp in RAMPS:
        rows = [row for line in text.split("\n") if (row := cells(line, ramp))]
        width = max(map(len, rows), default=0)
        rows = [row for row in rows if len(row) == width]
        if rows and width * len(rows) > 1:
            return draw_svg(rows, ramp)
    return None


def cells(line: str, ramp: str) -> str:
    """Return a line's cells: all its characters, except spaces at the ends, are in the ramp."""
    bare = line.strip() if " " not in ramp else line
    bare = bare.replace(" ", "") if " " not in ramp else bare
    return bare if bare and all(letter in ramp for letter in bare) else ""


def draw_svg(rows: list[str], ramp: str) -> str:
    """Draw rows of cells: the darker, the more is wrong."""
    width, height = CELL * len(rows[0]), CELL * len(rows)
    drawn: list[str] = []
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            share = ramp.index(letter) / (len(ramp) - 1)
            drawn.append(
                f'<rect x="{x * CELL}" y="{y * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="#b3261e" fill-opacity="{0.08 + 0.92 * share:.2f}"/>'
            )
    wrong = sum(letter != ramp[0] for row in rows for letter in row)
    label = f"{wrong} of {len(rows) * len(rows[0])} cells differ"
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><title>{label}</title>{"".join(drawn)}</svg>'
    )


def lines_of(listing: Listing, found: tuple[Finding, ...]) -> dict[int, str]:
    """Return the numbers of the lines that findings are about, and their codes."""
    hits: dict[int, list[str]] = {}
    for finding in found:
        place = re.match(r"(.+?):(\d+)\b", finding.where or "")
        if place and place[1] == listing.file:
            hits.setdefault(int(place[2]), []).append(finding.code)
    return {line: ", ".join(dict.fromkeys(codes)) for line, codes in hits.items()}
