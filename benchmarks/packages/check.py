"""`pb.check` on the Functions of packages: `python -m benchmarks.packages.check`.

Every finding has been looked at by hand: `docs/checked.md` says which are true. `--only NAME` is
one package, `--probe CODE` one probe, `--json FILE` keeps the reports.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pullback as pb
from benchmarks.measure import console
from benchmarks.packages.__main__ import chosen
from benchmarks.packages.arguments import found
from benchmarks.packages.calls import Arguments
from benchmarks.packages.case import Case, Package


@dataclass(frozen=True)
class Checked:
    """A Function of a package and what was found."""

    package: Package
    case: Case
    report: pb.Report
    seconds: float


def checked(only: str | None, probes: list[str] | None) -> Iterator[Checked]:
    """Check every Function that can be called with the table's arguments."""
    for package in chosen(only):
        for case in package.cases:
            if ": object" in case.line or not case.arguments:
                continue
            started = time.perf_counter()
            values = Arguments.made(case.arguments, 0).values
            meant: dict[str, Any] = dict.fromkeys(case.intentions, True)
            report = pb.check(found(case.function), *values, probes=probes, **meant)
            yield Checked(package, case, report, time.perf_counter() - started)


def show(result: Checked) -> None:
    """Print one Function's findings."""
    name = f"{result.package.name} {result.case.name}"
    console.print(f"{name}  {result.seconds:.1f} s", markup=False)
    for finding in result.report.findings:
        mark = "FAIL" if finding.level == "fault" else "note"
        console.print(f"  {mark} {finding.code} {finding.message}", markup=False, soft_wrap=True)
        if finding.level == "fault":
            rows = [*([("at", finding.where)] if finding.where else []), *finding.evidence]
            for key, value in rows:
                console.print(f"      {key}: {value}", markup=False, soft_wrap=True)


def main() -> None:
    """Print the findings, and how many Functions have none."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages.check")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--probe", metavar="CODE", action="append")
    parser.add_argument("--json", metavar="FILE", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    results: list[Checked] = []
    for result in checked(given.only, given.probe):
        show(result)
        results.append(result)
    faulty = [result for result in results if not result.report.ok]
    console.print(f"{len(results)} Functions checked, {len(faulty)} with faults")
    if given.json:
        reports = {f"{r.package.name}:{r.case.name}": r.report.to_dict() for r in results}
        given.json.write_text(json.dumps(reports, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
