"""A report as one HTML page that needs nothing else: no network, no scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from pullback.diagnostic import Finding
from pullback.verify.text import summary, verdict_of

if TYPE_CHECKING:
    from pullback.verify.report import Listing, Report

# The evidence that is drawn: rows of characters, one a cell, from nothing to everything.
MAP = "where it differs"
RAMPS = ("·░▒▓█", " .:-=+*#%@", "0123456789")
CELL = 14
STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --bad: #b3261e; --note: #7a5900;
  --good: #1b6e34; }
@media (prefers-color-scheme: dark) {
  :root { --bad: #ff8a80; --note: #e8c468; --good: #7ddb98; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; margin: .5rem 0; } article { border-left: 4px solid var(--bad);
  padding: .2rem 1rem; margin: 1rem 0; background: var(--soft); }
article.advice { border-color: var(--note); }
.fault { color: var(--bad); } .advice > h3 > b, td.advice { color: var(--note); }
.ok { color: var(--good); } dt { font-weight: 600; } dd { margin: 0 0 .4rem 1.2rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.number, th.number { text-align: right; }
.listing span { display: block; } .listing .hit { background: #b3261e33;
  outline: 1px solid var(--bad); }
svg text { font: 10px ui-monospace, monospace; fill: currentColor; }
"""


def html_of(*reports: Report) -> str:
    """Return a page of one report, or of several."""
    title = escape(", ".join(report.target for report in reports))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>pullback check: {title}</title>\n<style>{STYLE}</style>\n</head>",
            "<body>\n<main>",
            *(line for report in reports for line in section(report)),
            "</main>\n</body>\n</html>",
        ]
    )


def section(report: Report) -> Iterator[str]:
    """Yield all about one report."""
    state = "ok" if report.ok else "fault"
    yield f"<h1>{escape(report.target)}</h1>"
    yield f'<p class="{state}"><strong>{escape(summary(report))}</strong></p>'
    replay = f" Replay: <code>{escape(report.replay)}</code>" if report.replay else ""
    yield f"<p>Seed {report.seed}.{replay}</p>"
    yield from notes(report)
    yield from findings(report)
    yield from listings(report)
    yield from (table(part) for part in (*report.parts, report))


def notes(report: Report) -> Iterator[str]:
    """Yield the notes as a list."""
    if report.notes:
        yield f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in report.notes)}</ul>"


def findings(report: Report) -> Iterator[str]:
    """Yield each finding as an article."""
    if report.findings:
        yield "<h2>Findings</h2>"
    for finding in report.findings:
        rows = [
            *([("at", finding.where)] if finding.where else []),
            *finding.evidence,
            *([("help", finding.help)] if finding.help else []),
        ]
        yield f'<article class="{finding.level}">'
        yield (
            f"<h3><b>{finding.level}</b> {escape(finding.name)} [{finding.code}]: "
            f"{escape(finding.message)}</h3>\n<dl>"
        )
        for key, value in rows:
            shown = draw_picture(value) if key == MAP else None
            text = f"<pre>{escape(value)}</pre>" if key == MAP else escape(value)
            yield f"<dt>{escape(key)}</dt><dd>{shown or ''}{text}</dd>"
        yield "</dl>\n</article>"


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


def listings(report: Report) -> Iterator[str]:
    """Yield the author's text, with the lines that findings are about marked."""
    texts = list(dict.fromkeys(own for r in (*report.parts, report) for own in r.listings))
    if texts:
        yield "<h2>Code</h2>"
    for listing in texts:
        hits = lines_of(listing, report.findings)
        yield f'<h3>{escape(listing.file)}</h3>\n<pre class="listing" tabindex="0"><code>'
        yield "".join(
            f"<span{mark(hits.get(number))}>{number:>5}  {escape(line)}</span>"
            for number, line in enumerate(listing.text.splitlines(), listing.first)
        )
        yield "</code></pre>"


def mark(codes: str | None) -> str:
    """Return the attributes of a line that findings are about."""
    return f' class="hit" title="{escape(codes)}"' if codes else ""


def lines_of(listing: Listing, found: tuple[Finding, ...]) -> dict[int, str]:
    """Return the numbers of the lines that findings are about, and their codes."""
    hits: dict[int, list[str]] = {}
    for finding in found:
        place = re.match(r"(.+?):(\d+)\b", finding.where or "")
        if place and place[1] == listing.file:
            hits.setdefault(int(place[2]), []).append(finding.code)
    return {line: ", ".join(dict.fromkeys(codes)) for line, codes in hits.items()}


def table(report: Report) -> str:
    """Return what each probe said, and how long it took."""
    rows = [
        f"<tr><td>{outcome.code}</td><td>{escape(outcome.name)}</td>"
        f'<td class="{escape(outcome.verdict)}">{escape(outcome.verdict)}</td>'
        f"<td>{escape('' if outcome.reason is None else verdict_of(outcome))}</td>"
        f'<td class="number">{1e3 * outcome.seconds:.0f}</td></tr>'
        for outcome in report.outcomes
    ]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("code", "probe", "verdict", "why"))
    return (
        f"<h2>Probes</h2>\n<table><caption>{escape(report.target)}: {len(rows)} probes, "
        f"{report.seconds:.1f} s</caption>\n<thead><tr>{head}"
        f'<th scope="col" class="number">ms</th></tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
