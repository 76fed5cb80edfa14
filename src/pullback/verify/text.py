"""A report as text: short when all is well, replayable when it is not."""

from __future__ import annotations

from collections.abc import Iterator

from pullback.diagnostic import Finding
from pullback.verify.report import Report


def text_of(report: Report) -> str:
    """Return a report as text for a terminal or a log."""
    return "\n".join([f"{report.target}    seed {report.seed}", *lines(report)])


def lines(report: Report) -> Iterator[str]:
    """Yield what stands below the title."""
    for note in report.notes:
        yield f"  note: {note}"
    for finding in report.findings:
        yield ""
        yield from block(finding)
    if report.findings:
        yield ""
    yield summary(report)
    if report.replay and not report.ok:
        yield f"replay: {report.replay}"


def block(finding: Finding) -> Iterator[str]:
    """Yield a finding's lines."""
    mark = "FAIL" if finding.level == "fault" else "note"
    first, *rest = str(finding).split("\n")
    yield f"  {mark}  {first}"
    yield from (f"    {row}" for row in rest)


def summary(report: Report) -> str:
    """Return the last line."""
    every = [o for part in (report, *report.parts) for o in part.outcomes]
    asked = [outcome for outcome in every if outcome.verdict != "not applicable"]
    faults, advice = len(report.faults), len(report.advice)
    counts = f"{faults} {'fault' if faults == 1 else 'faults'}, {advice} advice"
    about = f"; about one: pullback explain {report.findings[0].code}" if report.findings else ""
    return f"{len(asked)} probes asked, {len(every) - len(asked)} not applicable: {counts}{about}"
