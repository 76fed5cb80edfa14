"""`pullback check WHAT[:NAME]`: check the derivatives that files define."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from pullback.cli import baseline as known_faults
from pullback.cli.baseline import Baseline
from pullback.cli.results import Checked, Results
from pullback.cli.screen import (
    answer,
    complain,
    mark,
    progress,
    remember_format,
    say,
    say_report,
    screen,
    table,
)
from pullback.diagnostic import PullbackError
from pullback.page import write

if TYPE_CHECKING:
    from pullback.cli.targets import Subject
    from pullback.verify.check import Examination
    from pullback.verify.report import Outcome, Report

FINDINGS, CANNOT_RUN = 1, 2

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE[:NAME]...",
        help="ops.py, ops.py:Square, package.module:Square; a folder, or a package.",
    ),
]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.")]
Only = Annotated[
    list[str] | None, typer.Option("--probe", help="Run only this probe; can be repeated.")
]
Skip = Annotated[list[str] | None, typer.Option(help="Do not run this probe; can be repeated.")]
Declare = Annotated[
    list[str] | None,
    typer.Option(
        "--declare", "--intention", help="An intention: straight_through; can be repeated."
    ),
]
PATIENCE = 60.0
Timeout = Annotated[float, typer.Option(help="The longest that a probe may take, in seconds.")]


class CheckFormat(StrEnum):
    """What a check prints."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


Json = Annotated[
    bool, typer.Option("--json", callback=remember_format, help="The same as --format=json.")
]
FormatOption = Annotated[
    CheckFormat, typer.Option("--format", callback=remember_format, help="What to print.")
]
Html = Annotated[Path | None, typer.Option(help="Write a page with pictures to this file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for each probe.")]
Known = Annotated[
    Path | None,
    typer.Option("--baseline", help="A file of known faults, which do not fail the check."),
]
WriteKnown = Annotated[
    Path | None, typer.Option("--write-baseline", help="Write all faults to such a file.")
]


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What reproduces a check, as it was typed."""

    seed: int
    skip: tuple[str, ...]
    declare: tuple[str, ...]
    timeout: float

    def replay(self, subject: Subject, report: Report) -> str | None:
        """Return the command that shows a report's faults again."""
        from pullback.verify.probes import every_probe  # noqa: PLC0415

        if report.ok:
            return None
        known = {probe.code for probe in every_probe()}
        codes = sorted({finding.code for finding in report.faults} & known)
        words = ["pullback", "check", subject.place]
        words += [word for code in codes for word in ("--probe", code)]
        words += [word for name in self.declare for word in ("--declare", name)]
        words += [] if self.timeout == PATIENCE else ["--timeout", f"{self.timeout:g}"]
        return shlex.join([*words, "--seed", str(self.seed)])


def check(  # noqa: PLR0913, PLR0917  (each is an option)
    targets: Targets,
    seed: Seed = 0,
    probe: Only = None,
    skip: Skip = None,
    declare: Declare = None,
    timeout: Timeout = PATIENCE,
    as_json: Json = False,
    format: FormatOption = CheckFormat.TEXT,
    html: Html = None,
    verbose: Verbose = False,
    baseline: Known = None,
    write_baseline: WriteKnown = None,
) -> None:
    """Check the derivatives of the Functions and operators in FILE, and name what is wrong.

    FILE is imported; of a folder or a package, each file that may define some. Inputs come from
    its `example_inputs`, a dictionary by name, or are found.
    Exit code 0: no fault, or none that the baseline does not know. 1: a fault. 2: something could
    not be checked.
    """
    from pullback.cli.targets import find_subjects  # noqa: PLC0415  (it imports torch)
    from pullback.verify.check import Examination, choose, parse_intentions, seconds_of  # noqa: PLC0415

    known = known_faults.read(baseline) if baseline else Baseline()
    form = CheckFormat.JSON if as_json else format
    options = CheckOptions(
        seed=seed, skip=tuple(skip or ()), declare=tuple(declare or ()), timeout=timeout
    )
    examination = Examination(
        probes=choose(probe, options.skip),
        seed=seed,
        seconds=seconds_of(timeout),
        intentions=parse_intentions(dict.fromkeys(options.declare, True)),
    )
    with progress("importing"):
        subjects, errors = find_subjects(targets)
    results = Results(known)
    for error in errors:
        note_error(results, error)
    console = screen()
    for subject in subjects:
        try:
            report = watch_check(subject, examination)
        except PullbackError as error:
            note_error(results, error, subject.place)
            continue
        report = replace(report, replay=options.replay(subject, report))
        results.checked.append(Checked(place=subject.place, file=subject.file, report=report))
        if form == CheckFormat.TEXT:
            say_report(console, f"{report.to_text(verbose=verbose)}\n")
    write_files(results, html, write_baseline)
    if form == CheckFormat.TEXT:
        summarise(console, results, html)
    elif form == CheckFormat.JSON:
        print_json(results)
    else:
        from pullback.cli.sarif import sarif_of  # noqa: PLC0415  (it imports torch)

        typer.echo(json.dumps(sarif_of(results), indent=2))
    if results.faulty and write_baseline is None:
        raise typer.Exit(FINDINGS)
    if results.errors:
        raise typer.Exit(CANNOT_RUN)


def note_error(results: Results, error: PullbackError, place: str | None = None) -> None:
    """Note that something cannot be checked, and say so at once."""
    results.errors.append(error)
    complain(f"{place}\n{error}\n" if place else f"{error}\n")


def watch_check(subject: Subject, examination: Examination) -> Report:
    """Check one target; a terminal shows the last probe that ran."""
    done = 0
    with progress(subject.place) as update:

        def tell(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            count = f"{done} of {len(examination.probes)}"
            update(f"{subject.place}  {count}  {outcome.name}")

        own = replace(examination, tell=tell)
        return own.report(subject.given, subject.inputs, subject.keywords)


def write_files(results: Results, html: Path | None, write_baseline: Path | None) -> None:
    """Write the page and the baseline that are asked for."""
    from pullback.verify.html import html_of  # noqa: PLC0415

    if html is not None:
        write(html, html_of(*(each.report for each in results.checked)) + "\n")
    if write_baseline is not None:
        write(write_baseline, known_faults.text_of(results.faults))


def summarise(console: Console, results: Results, html: Path | None) -> None:
    """Print a row for each target, and what became of the known faults."""
    if html is not None:
        say(console, f"page: {html}")
    checked, errors = results.checked, results.errors
    if len(checked) > 1:
        shown = table("", "target", "faults", "advice", "time", right=("advice", "time"))
        for each in checked:
            shown.add_row(*row_of(results, each))
        console.print(shown)
        say(console, "")
    if results.mended:
        rows = ", ".join(f"{code} of {place}" for place, code in results.mended)
        say(console, f"mended, and still in the baseline: {rows}")
    if len(checked) + len(errors) > 1 or results.baseline.known:
        unable = f", {len(errors)} could not be checked" if errors else ""
        new = " that the baseline does not know" if results.baseline.known else ""
        say(console, f"{results.faulty} of {len(checked)} have faults{new}{unable}")


def row_of(results: Results, each: Checked) -> tuple[Text, str, str, str, str]:
    """Return a target's row in the table."""
    report, new = each.report, results.new_of(each)
    verdict = "FAIL" if new else "known" if report.faults else "note" if report.advice else "ok"
    codes = ", ".join(dict.fromkeys(finding.code for finding in report.faults))
    advice = str(len(report.advice) or "")
    return mark(verdict), each.place, codes, advice, f"{report.seconds:.1f} s"


def print_json(results: Results) -> None:
    """Print the reports as JSON."""
    reports = [{"place": each.place, **each.report.to_dict()} for each in results.checked]
    known = [{"target": place, "code": code} for place, code in results.known]
    answer(ok=results.ok, errors=results.errors, reports=reports, known=known)
