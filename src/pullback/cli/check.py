"""`pullback check FILE[:NAME]`: check the derivatives that a file defines."""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from pullback.cli.screen import complain, say, screen
from pullback.diagnostic import PullbackError

if TYPE_CHECKING:
    from pullback.cli.targets import Subject
    from pullback.verify.check import Examination
    from pullback.verify.report import Outcome, Report

FINDINGS, CANNOT_RUN = 1, 2

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE[:NAME]...", help="ops.py, ops.py:Square, or package.module:Square."
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
Json = Annotated[bool, typer.Option("--json", help="The same as --format=json.")]
Format = Annotated[str, typer.Option(help="text or json.")]
Html = Annotated[Path | None, typer.Option(help="Write a page with pictures to this file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for each probe.")]


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
    format: Format = "text",
    html: Html = None,
    verbose: Verbose = False,
) -> None:
    """Check the derivatives of the Functions and operators in FILE, and name what is wrong.

    FILE is imported. Inputs come from its `example_inputs`, a dictionary by name, or are found.
    Exit code 0: no fault. 1: a fault. 2: something could not be checked.
    """
    from pullback.cli.targets import subjects_of  # noqa: PLC0415  (it imports torch)
    from pullback.verify.check import Examination, choose, parse_intentions, seconds_of  # noqa: PLC0415

    if format not in ("text", "json"):
        raise typer.BadParameter("text or json", param_hint="--format")
    shown = not as_json and format == "text"
    options = CheckOptions(
        seed=seed, skip=tuple(skip or ()), declare=tuple(declare or ()), timeout=timeout
    )
    examination = Examination(
        probes=choose(probe, options.skip),
        seed=seed,
        seconds=seconds_of(timeout),
        intentions=parse_intentions(dict.fromkeys(options.declare, True)),
    )
    reports: list[Report] = []
    errors: list[PullbackError] = []
    console = screen()
    for subject in [subject for text in targets for subject in subjects_of(text)]:
        try:
            report = watch_check(console, subject, examination)
        except PullbackError as error:
            errors.append(error)
            complain(f"{subject.place}\n{error}\n")
            continue
        report = replace(report, replay=options.replay(subject, report))
        reports.append(report)
        if shown:
            say(console, f"{report.to_text(verbose=verbose)}\n")
    finish(console, reports, errors, html=html, shown=shown)


def watch_check(console: Console, subject: Subject, examination: Examination) -> Report:
    """Check one target; a terminal shows the last probe that ran."""
    done = 0
    with console.status(subject.place) if console.is_terminal else nullcontext() as status:

        def tell(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            if status is not None:
                count = f"{done} of {len(examination.probes)}"
                status.update(f"{subject.place}  {count}  {outcome.name}")

        own = replace(examination, tell=tell)
        return own.report(subject.given, subject.inputs, subject.keywords)


def finish(
    console: Console,
    reports: list[Report],
    errors: list[PullbackError],
    *,
    html: Path | None,
    shown: bool,
) -> None:
    """Write the requested output, and end with the exit code."""
    from pullback.verify.html import html_of  # noqa: PLC0415
    from pullback.verify.report import as_dict, write  # noqa: PLC0415

    if html is not None:
        write(html, html_of(*reports) + "\n")
        if shown:
            say(console, f"page: {html}")
    if not shown:
        record: dict[str, Any] = {
            "ok": all(reports) and not errors,
            "reports": [report.to_dict() for report in reports],
            "errors": [as_dict(error.finding) for error in errors],
        }
        say(console, json.dumps(record, indent=2))
    elif len(reports) + len(errors) > 1:
        faulty = sum(not report.ok for report in reports)
        unable = f", {len(errors)} could not be checked" if errors else ""
        say(console, f"{faulty} of {len(reports)} have faults{unable}")
    if not all(reports):
        raise typer.Exit(FINDINGS)
    if errors:
        raise typer.Exit(CANNOT_RUN)
