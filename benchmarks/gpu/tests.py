"""The tests that need a GPU; in a rehearsal, the same ones as they run without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Fact, Row

ROOT = Path(__file__).parents[2]
# Those of the risks that CUDA on the CPU cannot see come first.
FILES = {
    "formulas and loops": (
        "tests/bind/test_index_gpu.py",
        "tests/bind/test_recurrence_gpu.py",
        "tests/bind/test_formula_gpu.py",
    ),
    "everything else": ("tests/examples/test_scripts.py", "tests/kernels/cuda_on_cpu"),
}
# Seconds before the end, at most half of all, at which no test begins any more.
LATEST = 20.0
# A line of `pytest -v`, with or without workers: its second word, or its first, is the test.
OUTCOME = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] )?(?P<a>PASSED|FAILED|ERROR|SKIPPED)? ?(?P<test>tests/\S+::.+?)"
    r"(?: (?P<b>PASSED|FAILED|ERROR|SKIPPED)\b.*)?\s*$"
)
REASON = re.compile(r"^(?:FAILED|ERROR) (?P<test>tests/.+?::.+?) - (?P<why>.+)$")


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each group of files."""
    return {
        name: lambda budget, name=name: run(name, place, folder, budget)
        for name in (list(FILES)[:1] if place.rehearsal else FILES)
    }


def command_of(name: str, place: Place, folder: Path, budget: float) -> list[str]:
    """Return the command line, with the plugins that are installed."""
    which = "not cuda and not thorough" if place.rehearsal else "cuda"
    files = [file for file in FILES[name] if (ROOT / file).exists()]
    words = [sys.executable, "-m", "pytest", *files, "-v", "-ra", "-m", which]
    words += ["-o", "addopts=", "-W", "default", "--tb=short", "-p", "no:cacheprovider"]
    words.append(f"--junitxml={folder / name.replace(' ', '_')}.xml")
    if util.find_spec("xdist"):
        words += ["-n", str(max(1, place.cores - 2))]
    if util.find_spec("pytest_timeout"):
        words += ["--timeout", "60"]
        if tuple(map(int, metadata.version("pytest-timeout").split(".")[:2])) >= (2, 3):
            words += ["--session-timeout", str(max(5, int(budget - 5)))]
    return words


def run(name: str, place: Place, folder: Path, budget: float) -> Iterator[Row]:
    """Yield what failed, and how many did what."""
    lacks = [package for package in ("pytest", "hypothesis") if not util.find_spec(package)]
    if lacks:
        yield Fact(name=name, value="none ran", good=False, note=f"missing: {', '.join(lacks)}")
        return
    log = folder / f"{name.replace(' ', '_')}.log"
    timed_out = False
    with log.open("w") as out:
        try:
            subprocess.run(
                command_of(name, place, folder, budget),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                # None begins so late that the report of those that failed would be lost.
                env={
                    **os.environ,
                    "PULLBACK_TESTS_END": str(time.time() + max(budget / 2, budget - LATEST)),
                },
                timeout=max(1.0, budget),
                check=False,
            )
        except subprocess.TimeoutExpired:
            timed_out = True
    found, reasons = read(log.read_text(encoding="utf-8", errors="replace"))
    for test, outcome in found.items():
        if outcome in ("FAILED", "ERROR"):
            yield Fact(name=test, value=outcome, good=False, note=reasons.get(test, "")[:300])
    words = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    counts = {word: list(found.values()).count(word) for word in words}
    shown = ", ".join(f"{count} {word.lower()}" for word, count in counts.items() if count)
    good = counts["PASSED"] > 0 and not counts["FAILED"] + counts["ERROR"] and not timed_out
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    note = "the time was over" if timed_out else "" if shown else " ".join(last)
    yield Fact(name=name, value=shown or "none ran", good=good, note=note)


def read(log: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the outcome of each test, and why those failed that did."""
    outcomes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for line in log.splitlines():
        if why := REASON.match(line):
            reasons[why["test"]] = why["why"]
        elif (found := OUTCOME.match(line)) and (word := found["a"] or found["b"]):
            outcomes[found["test"]] = word
    return outcomes, reasons
