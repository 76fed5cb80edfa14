"""A report as text: short if nothing is wrong, replayable otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from pullback.diagnostic import Finding

if TYPE_CHECKING:
    from pullback.verify.report import Outcome, Report

MARKS = {"fault": "FAIL", "advice": "note", "ok": "ok", "not applicable": "-", "explained": "-"}


def text_of(report: Report, *, verbose: bool = False) -> str:
    """Return a report as text for a terminal or a log."""
    return "\n".join(lines(report, verbose=verbose))


def lines(report: Report, *, verbose: bool) -> Iterator[str]:
    """Yield a report's lines."""
    yield f"{report.target}    seed {report.seed}"
    for note in report.notes:
        yield f"  note: {note}"
    rows = [row for outcome in report.everything for row in rows_of(outcome, verbose=verbose)]
    width = max((len(row[1]) for row in rows), default=0)
    told: set[Finding] = set()
    for part in (*report.parts, report):
        own = list(blocks(part, width, told, verbose=verbose))
        if own:
            yield ""
        if own and part is not report:
            yield f"  in {part.target}"
            yield from (f"  note: {note}" for note in part.notes)
        yield from own
    if told or verbose:
        yield ""
    yield summary(report)
    if report.replay:
        yield f"replay: {report.replay}"


def blocks(report: Report, width: int, told: set[Finding], *, verbose: bool) -> Iterator[str]:
    """Yield what the probes said about a target, or about a part of it; each finding once."""
    for outcome in report.outcomes:
        for mark, name, code, said, more in rows_of(outcome, told, verbose=verbose):
            yield f"  {mark:<4}  {name:<{width}}  {code}  {said}".rstrip()
            yield from more
        told.update(outcome.findings)


Row = tuple[str, str, str, str, tuple[str, ...]]


def rows_of(outcome: Outcome, told: Collection[Finding] = (), *, verbose: bool) -> Iterator[Row]:
    """Yield mark, name, code, the message and its further lines."""
    for finding in outcome.findings:
        if finding not in told:
            yield row_of(finding)
    if outcome.findings:
        return
    if verbose:
        yield MARKS[outcome.verdict], outcome.name, outcome.code, verdict_of(outcome), ()
    elif outcome.open:
        yield "-", outcome.name, outcome.code, outcome.reason or "", ()


def row_of(finding: Finding) -> Row:
    """Return a finding's row, with its evidence below as in `str(finding)`."""
    first, *more = str(finding).split("\n")
    said = first.removeprefix(f"{finding.name} [{finding.code}]: ")
    below = tuple(f"      {line}" for line in more)
    return MARKS[finding.level], finding.name, finding.code, said, below


def verdict_of(outcome: Outcome) -> str:
    """Say what a probe without a finding said."""
    if outcome.verdict == "explained":
        return f"not asked: {outcome.reason} explains it"
    if outcome.verdict == "not applicable":
        return f"not applicable: {outcome.reason}"
    return f"{outcome.seconds:.2f} s"


def summary(report: Report) -> str:
    """Return the last line."""
    every = list(report.everything)
    asked = [o for o in every if o.verdict in ("ok", "fault", "advice")]
    took = f"{len(every) - len(asked)} not applicable, {report.seconds:.1f} s"
    if not asked:
        return f"nothing could be judged: no probe is applicable, {report.seconds:.1f} s"
    if not report.findings:
        return f"ok: {format_count(len(asked), 'probe')}, {took}"
    counts = [format_count(len(report.faults), "fault")] if report.faults else ["ok"]
    counts += [f"{len(report.advice)} advice"] if report.advice else []
    about = f"; about it: pullback explain {report.findings[0].code}"
    return f"{', '.join(counts)}: {format_count(len(asked), 'probe')}, {took}{about}"


def format_count(count: int, noun: str) -> str:
    """Return "1 probe", "2 probes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def line_of(report: Report) -> str:
    """Return a report in one short line."""
    if report.ok:
        return f"<Report: {report.target.partition('(')[0]} ok, {len(report.advice)} advice>"
    first, *rest = report.faults
    more = f", and {format_count(len(rest), 'more fault')}" if rest else ""
    return f"<Report: {first.name} [{first.code}] {first.message}{more}>"
