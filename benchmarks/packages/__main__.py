"""Functions of packages on PyPI, adopted as they are: `python -m benchmarks.packages`.

Each is compared with its own `apply`, in values and in all gradients: in eager mode, compiled, in
`torch.func` and under `torch.vmap`. `--write` renews the tables in `docs/packages.md`.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from rich.markup import escape

from benchmarks.measure import console, show
from benchmarks.packages.case import Package
from benchmarks.packages.compare import CHECKS
from benchmarks.packages.examine import Result, examine, uncovered
from benchmarks.packages.report import (
    PAGE,
    comparison,
    details,
    install_command,
    outcome,
    summary,
    write,
)
from benchmarks.packages.table import PACKAGES


def chosen(only: str | None) -> list[Package]:
    """Return the packages to run; say which are not installed."""
    packages = [p for p in PACKAGES if only in (None, p.name)]
    missing = [p.name for p in packages if p.installed is None]
    if missing:
        console.print(f"not installed: {', '.join(missing)}; to install all:\n{install_command()}")
    for package in packages:
        if package.installed not in (None, package.version):
            console.print(
                f"{package.name} is {package.installed}, the table says {package.version}"
            )
    return [p for p in packages if p.installed is not None]


def main(only: str | None = None, *, renew: bool = False) -> list[Result]:
    """Print the table and what pullback says to the rest; return the results."""
    warnings.simplefilter("ignore")
    results: list[Result] = []
    for package in chosen(only):
        own = [examine(package, case) for case in package.cases]
        missing = [f"not in the table: {name}" for name in uncovered(package)]
        show(
            f"{package.name} {package.installed}: adopted unchanged, against the original",
            ["Function", *CHECKS, "alone", ""],
            [outcome(result) for result in own],
            [escape(note) for note in (*details(own), *missing)],
        )
        results += own
    console.print(summary(results), comparison(results), sep="\n")
    if renew:
        write(results)
    return results


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="one package")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.name}")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(any(r.failed for r in main(given.only, renew=given.write)))
