"""Which small faults the tests find: a tool for who changes them, not a test.

    python tests/mutants.py                       every mutant: the default suite, then the rest
    python tests/mutants.py le-guards-like-lt     these; `none` is the code as it is
    python tests/mutants.py --tests ../old/tests  by other tests than these
    python tests/mutants.py --suite stage         by the default tests of its stage alone
    python tests/mutants.py --cache FOLDER        begin with what is compiled already; a fault in
                                                  what is compiled is looked for without it
    python tests/mutants.py --report              the table of what has been found out so far

A mutant is a fault that a programmer might make, in `mutants.toml`: it was chosen from each stage's
code, by somebody who did not look at the tests. Each is planted in a copy of the project, and the
tests run there until one fails, those of its stage first. What is found out goes to a file, line by
line, so an interrupted run is gone on with; what is named runs again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
# Whose tests find a stage's faults first; then those of the others.
FIRST = {
    "define": ("define", "bind", "repo"),
    "kernels": ("kernels", "bind", "deploy"),
    "cuda_on_cpu": ("kernels/cuda_on_cpu", "cuda", "bind/test_cuda_on_cpu.py"),
    "runtime": ("bind", "kernels", "everywhere"),
    "bind": ("bind", "everywhere"),
    "verify": ("verify", "cli"),
    "graphs": ("graphs",),
    "cuda": ("cuda", "cli"),
    "deploy": ("deploy", "examples"),
    "cli": ("cli",),
}
# Seconds after which a run is given up: a mutant may wait for ever, and a test is stopped earlier.
LIMIT = 3600.0
WORDS: dict[str, list[str]] = {
    "default": ["-x", "-q", "-p", "no:cacheprovider", "--color=no", "--tb=line", "-n", "0"],
}
WORDS["stage"] = WORDS["default"]
WORDS["thorough"] = [*WORDS["default"], "-m", "thorough or hypothesis"]
# A test that failed or could not be set up, a file that could not be read.
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault: `old`, which is found once in a file, replaced by `new`."""

    name: str
    stage: str
    file: str
    old: str
    new: str
    fault: str

    def fits(self, project: Path) -> bool:
        """Tell whether the code is still what the fault was thought of for."""
        path = project / self.file
        return path.is_file() and path.read_text(encoding="utf-8").count(self.old) == 1

    def plant(self, project: Path) -> None:
        """Put the fault into a copy of the project."""
        path = project / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


NONE = Mutant(
    name="none",
    stage="define",
    file="pyproject.toml",
    old="[project]",
    new="[project]",
    fault="nothing is wrong, and no test may fail",
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the tests say of a mutant: the test that fails, None if none does."""

    name: str
    tests: str
    suite: str
    by: str | None
    seconds: float


def mutants() -> dict[str, Mutant]:
    """Return all mutants by name, the one that changes nothing first."""
    rows: list[dict[str, Any]] = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    return {each.name: each for each in (NONE, *(Mutant(**row) for row in rows))}


def copied(tests: Path, into: Path) -> None:
    """Copy what the tests need of the project, with these tests and what they are run with."""
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*cache", ".git")
    for path in ROOT.iterdir():
        if path.name == "tests" or (path.is_dir() and path.name.startswith(".")):
            continue
        if path.is_dir():
            shutil.copytree(path, into / path.name, ignore=left_out)
        else:
            shutil.copy(path, into)
    shutil.copytree(tests, into / "tests", ignore=left_out)
    shutil.copy(tests.parent / "pyproject.toml", into)


def rounds(mutant: Mutant, tests: Path) -> list[list[str]]:
    """Return the files of the tests of a mutant's stage, and then the others.

    First come those whose names are most like that of the file with the fault.
    """
    folders = tuple(f"tests/{name}" for name in FIRST[mutant.stage])
    files = [str(path.relative_to(tests.parent)) for path in tests.rglob("test_*.py")]
    asked = words_of(mutant.file)
    files.sort(key=lambda file: (-len(asked & words_of(file)), file))
    first = [file for file in files if file.startswith(folders)]
    return [first, [file for file in files if file not in first]]


def words_of(file: str) -> set[str]:
    """Return what a file's path says, of which an ending is left out."""
    return {word.rstrip("s") for word in re.findall("[a-z]+", file)}


def run(mutant: Mutant, tests: Path, suite: str, cache: Path | None) -> Found:
    """Plant a mutant and run a suite until a test fails."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pullback-mutant-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        copied(tests, project)
        mutant.plant(project)
        variables = {"PYTHONPATH": str(project / "src"), "CI": "1", "TMPDIR": folder}
        if cache:
            # Links: an entry is never changed, and one that fits nothing harms nobody.
            shutil.copytree(cache, Path(folder, "cache"), copy_function=os.link)
            variables["PULLBACK_CACHE"] = str(Path(folder, "cache"))
        asked = rounds(mutant, tests)[: 1 if suite == "stage" else 2]
        failed = (first_failure(project, [*WORDS[suite], *names], variables) for names in asked)
        by = next((each for each in failed if each is not None), None)
    seconds = round(time.monotonic() - begin)
    return Found(name=mutant.name, tests=str(tests), suite=suite, by=by, seconds=seconds)


def first_failure(project: Path, words: Sequence[str], variables: dict[str, str]) -> str | None:
    """Run tests; return the first that fails, or what else went wrong; None if they pass."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=project,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {LIMIT:.0f} s"
    if ended.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failed = FAILED.search(ended.stdout)
    return failed[1] if failed else ended.stdout[-300:]


def examine(
    mutant: Mutant, tests: Path, suites: Sequence[str], log: Path, cache: Path | None, *, anew: bool
) -> None:
    """Run the suites one after the other, until one finds the mutant."""
    for suite in suites:
        known = {(found.name, found.tests, found.suite): found for found in logged(log)}
        found = None if anew else known.get((mutant.name, str(tests), suite))
        if found is None:
            found = run(mutant, tests, suite, cache)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found)) + "\n")
            sys.stdout.write(
                f"{mutant.name}: {found.by or 'survives'} ({suite}, {found.seconds} s)\n"
            )
            sys.stdout.flush()
        if found.by is not None:
            return


def logged(log: Path) -> list[Found]:
    """Return what has been found out so far."""
    if not log.exists():
        return []
    return [Found(**json.loads(row)) for row in log.read_text(encoding="utf-8").splitlines()]


def report(log: Path) -> str:
    """Return the table: a row a mutant, a column for each tests and suite."""
    found = {(each.name, each.tests, each.suite): each for each in logged(log)}
    columns = list(dict.fromkeys((tests, suite) for _, tests, suite in found))
    lines = ["| mutant | stage | " + " | ".join(f"{suite}" for _, suite in columns) + " |"]
    lines.append("|---" * (2 + len(columns)) + "|")
    for mutant in mutants().values():
        cells: list[str] = []
        for tests, suite in columns:
            each = found.get((mutant.name, tests, suite))
            cells.append("" if each is None else f"`{each.by}`" if each.by else "**survives**")
        lines.append(f"| {mutant.name} | {mutant.stage} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="of mutants; all, if none is given")
    parser.add_argument("--tests", type=Path, default=Path(__file__).parent)
    parser.add_argument("--suite", action="append", choices=list(WORDS))
    parser.add_argument("--log", type=Path, default=ROOT / ".mutants.jsonl")
    parser.add_argument("--cache", type=Path, help="what is compiled already, by another run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        sys.stdout.write(report(options.log))
        return
    known = {name: each for name, each in mutants().items() if each.fits(ROOT)}
    for name in set(mutants()) - set(known):
        sys.stdout.write(f"{name}: the code is another one by now; think of the fault anew\n")
    if unknown := set(options.names) - set(mutants()):
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}; {LIST.name} has them")
    for folder in (options.tests, options.cache):
        if folder and not folder.is_dir():
            parser.error(f"{folder} is no folder")
    chosen = [known[name] for name in options.names or known if name in known]
    suites = options.suite or ["default", "thorough"]
    tests, cache = options.tests.resolve(), options.cache and options.cache.resolve()
    anew = bool(options.names)
    work = partial(examine, tests=tests, suites=suites, log=options.log, cache=cache, anew=anew)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, chosen))


if __name__ == "__main__":
    main()
