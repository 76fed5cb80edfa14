"""Test and measure on a GPU, or rehearse that: `python -m benchmarks.gpu --minutes 8`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import util
from pathlib import Path

from benchmarks.gpu import survey
from benchmarks.gpu.missing import missing
from benchmarks.gpu.part import AGAIN, begun
from benchmarks.gpu.report import Part, Report
from benchmarks.gpu.rows import from_json
from pullback.bind import gpu

ROOT = Path(__file__).parents[2]
# The parts, and their shares of the time; what one leaves over the next ones have. Without the
# runtime nothing else is found out, so it may take long.
PARTS = {
    "runtime": 300,
    "survey": 25,
    "build": 120,
    "tests": 150,
    "loops": 110,
    "families": 60,
    "recurrences": 40,
    "reductions": 40,
    "formulas": 50,
    "calls": 25,
    "sanitizer": 45,
}
# Seconds at the end, to write the report and to end processes.
SPARE = 3.0
# Seconds before a part is ended in which it says what it has.
MARGIN = 2.0


def run_part(
    name: str, seconds: float, work: Path, cases: Sequence[str], *, rehearsal: bool
) -> Part:
    """Run a part in processes of its own, until its time is over.

    A process that has broken the GPU is followed by another, which goes on after the broken step.

    Args:
        name: of the part.
        seconds: that it has.
        work: the folder of what it finds.
        cases: words of the steps that are to run.
        rehearsal: whether it runs on the CPU.
    """
    begin = time.monotonic()
    end = begin + seconds
    file = work / f"{name}.jsonl"
    part = Part(name=name, before=survey.query())
    command = [sys.executable, "-m", "benchmarks.gpu.part", name, "--file", str(file)]
    command += ["--cases", *cases, *(["--rehearse"] if rehearsal else [])]
    again, status = True, 0
    while again and (left := end - time.monotonic()) > 1:
        steps = begun(file)
        until = ["--until", str(time.time() + left - MARGIN)]
        status = run_process([*command, *until], left, work / f"{name}.log")
        died = status is not None and status < 0
        again = (status == AGAIN or died) and begun(file) > steps
    if status is None:
        part.failed.append("the time was over, and the rest was cut off")
    elif status:
        part.failed.append(f"its process ended with status {status}: {last_line(work, name)}")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for data in map(json.loads, lines):
        if "kind" in data:
            part.rows.append(from_json(data))
        elif "failed" in data:
            part.failed.append(f"{data.get('step', data.get('begun', ''))}: {data['failed']}")
    part.seconds = (time.monotonic() - begin, seconds)
    return part


def run_process(command: list[str], seconds: float, log: Path) -> int | None:
    """Run a process and all that it starts; return its status, None if its time was over."""
    with log.open("a") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Its own group alone, in which nothing may be left that goes on using the GPU.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_line(work: Path, name: str) -> str:
    """Return the last line that a part has printed."""
    lines = (work / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def keep_logs(work: Path, folder: Path) -> None:
    """Put all logs into one file, and the tests' results beside it."""
    with (folder / "gpu.log").open("w", encoding="utf-8") as out:
        for log in sorted([*work.glob("*.log"), *work.glob("*.err")]):
            out.write(f"=== {log.name}\n{log.read_text(encoding='utf-8', errors='replace')}\n")
    for results in work.glob("*.xml"):
        (folder / results.name).write_bytes(results.read_bytes())


def set_up() -> None:
    """Have all processes find the library, and what the others have compiled."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["PYTHONUNBUFFERED"] = "1"
    if not util.find_spec("platformdirs") and "PULLBACK_CACHE" not in os.environ:
        cache = Path(tempfile.gettempdir()) / f"pullback-gpu-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
        os.environ["PULLBACK_CACHE"] = str(cache)


def main() -> int:
    """Run the parts; return 1 if anything fell short."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts together")
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="folder of the report")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), help="parts to run; all if none")
    parser.add_argument("--cases", nargs="*", default=[""], help="words of those to run; else all")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, even with a GPU")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes - SPARE
    given.out.mkdir(parents=True, exist_ok=True)
    parts = {name: share for name, share in PARTS.items() if name in (given.only or PARTS)}
    with tempfile.TemporaryDirectory(prefix="pullback-gpu-") as temporary:
        work = Path(temporary)
        set_up()
        rehearsal = given.rehearse or not gpu.is_available()
        report = Report(rehearsal=rehearsal, missing=list(missing()))
        print("\n".join(report.missing) or "nothing is missing", flush=True)
        while parts:
            left = max(0.0, end - time.monotonic())
            name = next(iter(parts))
            seconds = left * parts.pop(name) / (sum(parts.values()) + PARTS[name])
            print(f"{name}: at most {seconds:.0f} s", flush=True)
            found = run_part(name, seconds, work, given.cases, rehearsal=rehearsal)
            report.parts.append(found)
            report.write(given.out)
            keep_logs(work, given.out)
    lines = list(report.lines())
    print("\n".join(lines))
    return int(
        any(part.failed for part in report.parts)
        or any(row.good is False for part in report.parts for row in part.rows)
    )


if __name__ == "__main__":
    sys.exit(main())
