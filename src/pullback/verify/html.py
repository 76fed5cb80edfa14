"""A report as HTML: a page that needs nothing else, no network, no scripts; or for a notebook."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from pullback import page
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
    names = ", ".join(report.target for report in reports)
    return page.whole(f"pullback check: {names}", load_template().render(reports=reports))


def fragment_of(report: Report) -> str:
    """Return a report as a part of a notebook."""
    return page.fragment(load_template().render(reports=[report]))


@functools.cache
def load_template() -> Template:
    """Return the page, in which all texts are escaped."""
    own = (summary, verdict_of, in_order, maps_of, rows_of, listings_of, lines_of)
    made = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    ).from_string(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    made.globals.update({each.__name__: each for each in own}, MAP=MAP)
    made.globals.update(draw_picture=lambda text: Markup(draw_picture(text) or ""))
    return made


def in_order(report: Report) -> list[Finding]:
    """Return the findings: faults first, and of these the ones that a picture shows."""
    return sorted(report.findings, key=lambda f: (f.level != "fault", not list(maps_of(f))))


def maps_of(finding: Finding) -> Iterator[str]:
    """Yield the evidence that can be drawn."""
    yield from (text for key, text in finding.evidence if key == MAP and draw_picture(text))


def rows_of(finding: Finding) -> list[tuple[str, str]]:
    """Return where a finding is, its evidence and its cure, each with what it is."""
    drawn = set(maps_of(finding))
    return [
        *([("at", finding.where)] if finding.where else []),
        *(row for row in finding.evidence if row[1] not in drawn),
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
    """Draw rows of cells: the stronger the colour, the more is wrong."""
    width, height = CELL * len(rows[0]), CELL * len(rows)
    drawn: list[str] = []
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            share = ramp.index(letter) / (len(ramp) - 1)
            drawn.append(
                f'<rect x="{x * CELL}" y="{y * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="var(--bad)" fill-opacity="{0.08 + 0.92 * share:.2f}"/>'
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
