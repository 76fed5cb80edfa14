"""How long it takes from a definition to results: every kernel compiled, by nvcc and by NVRTC.

Each operator has a process of its own, as many at a time as there are processors. What they compile
is in the caches when the other parts begin: ours, and Inductor's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.gpu.cases import FORMULAS, LOOPS, RECURRENCES, Case, rehearsed
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.reductions import REDUCTIONS
from benchmarks.gpu.rows import Fact, Row
from pullback.bind.loops import gpu

ROOT = Path(__file__).parents[2]
WAYS = ("nvcc", "NVRTC")
# A rehearsal has few processors.
REHEARSED = 2


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each of the two compilers."""
    found: dict[str, Step] = {}
    for compiler in WAYS:
        found[compiler] = lambda budget, by=compiler: compile_all(by, place, budget, folder)
    return found


def cases_of(place: Place) -> tuple[Case, ...]:
    """Return what is compiled; a size and a dtype of each formula does for the others."""
    if place.rehearsal:
        return rehearsed(LOOPS, small=True)[:REHEARSED]
    return (*LOOPS, *RECURRENCES, *REDUCTIONS, *(case for case in FORMULAS if case.small))


def compile_all(by: str, place: Place, budget: float, folder: Path) -> Iterator[Row]:
    """Yield what becomes of each operator by one compiler."""
    if by == "NVRTC" and gpu.find_nvrtc() is None and not place.rehearsal:
        yield Fact(name=by, value="not there", note="nothing was compiled by it")
        return
    begin = time.perf_counter()
    end = begin + budget
    with ThreadPoolExecutor(place.cores) as pool:
        running = {
            pool.submit(run_first, case, by, place, end, folder): case for case in cases_of(place)
        }
        for done in as_completed(running):
            yield done.result()
    yield Fact(name=f"all by {by}", value=f"{time.perf_counter() - begin:.1f} s")


def run_first(case: Case, by: str, place: Place, end: float, folder: Path) -> Fact:
    """Run one operator in a new process, for the first time."""
    command = [sys.executable, "-m", "benchmarks.gpu.first", case.name, by]
    if place.rehearsal:
        command.append("--rehearse")
    name = f"{case.shown(small=place.rehearsal)}, {by}"
    left = end - time.perf_counter()
    if left < 1:
        return Fact(name=name, value="not begun", good=False, note="there was no time left for it")
    # One compiling process a core is enough.
    variables = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=variables,
            timeout=left,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Fact(name=name, value="not ready", good=False, note="the time was over")
    if done.returncode:
        (folder / "build.err").open("a").write(f"--- {name}\n{done.stderr}\n")
        said = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return Fact(name=name, value="failed", good=False, note=said[0][:300])
    found = json.loads(done.stdout.splitlines()[-1])
    value = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in found["seconds"].items())
    good = found["error"] <= found["allowed"]
    return Fact(name=name, value=value, good=good, note=f"error {found['error']:.1e}")
