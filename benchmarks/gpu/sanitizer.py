"""One call of each loop under compute-sanitizer; in a rehearsal, under our own checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Fact, Row
from pullback.kernels import toolchain
from pullback.kernels.toolchain import Compiler

ROOT = Path(__file__).parents[2]
ONCE = Path(__file__).with_name("once.py")
TOOLS = ("memcheck", "racecheck", "synccheck")
OURS = ("memory", "race")
REHEARSE = "rehearse"
FOUND = 86


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return one step: the tools run side by side."""
    return {"tools": lambda budget: watch(place, folder, budget)}


def find() -> str | None:
    """Return compute-sanitizer, on the path or beside nvcc."""
    homes = [
        each.path.resolve().parent
        for each in toolchain.survey()
        if isinstance(each, Compiler) and each.language == "cuda"
    ]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, homes), "/usr/local/cuda/bin"])
    return shutil.which("compute-sanitizer", path=path)


def watch(place: Place, folder: Path, budget: float) -> Iterator[Row]:
    """Yield what each tool says."""
    sanitizer = find()
    if sanitizer is None and not place.rehearsal:
        yield Fact(name="compute-sanitizer", value="not there", note="nothing was watched")
        return
    tools = OURS if place.rehearsal else TOOLS
    with ThreadPoolExecutor(len(tools)) as pool:
        yield from pool.map(lambda tool: run(tool, sanitizer, folder, budget), tools)


def command_of(tool: str, sanitizer: str | None) -> list[str]:
    """Return the command line of a tool."""
    if tool in OURS:
        return [sys.executable, "-m", "pullback", "cuda", tool, str(ONCE), REHEARSE]
    assert sanitizer
    words = [sanitizer, "--tool", tool, f"--error-exitcode={FOUND}", "--print-limit", "20"]
    helped = subprocess.run([sanitizer, "--help"], capture_output=True, text=True, check=False)
    if "kernel_substring" in helped.stdout:  # PyTorch's own kernels need not be watched
        words += ["--kernel-name", "kernel_substring=pullback"]
    return [*words, sys.executable, str(ONCE)]


def run(tool: str, sanitizer: str | None, folder: Path, budget: float) -> Fact:
    """Run a tool."""
    log = folder / f"{tool}.log"
    variables = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    timed_out, status = False, 0
    with log.open("w") as out:
        try:
            status = subprocess.run(
                command_of(tool, sanitizer),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=variables,
                timeout=max(1.0, budget - 1),
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            timed_out = True
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    ran = sum(line.startswith("ran ") for line in lines)
    said = [line for line in lines if "=========" in line or "PB2" in line][:3] or lines[-1:]
    note = "the time was over" if timed_out else " ".join(said)[:300] if status else ""
    good = ran > 0 and not status and not timed_out
    return Fact(name=tool, value=f"{ran} operators, status {status}", good=good, note=note)
