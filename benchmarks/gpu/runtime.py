"""What is compiled once a machine, before anything else: the runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Fact, Row
from pullback.bind import runtime


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return one step; a rehearsal has compiled what runs CUDA on the CPU before it."""
    del place, folder
    return {"runtime": compile_runtime}


def compile_runtime(budget: float) -> Iterator[Row]:
    """Yield the seconds until the runtime is there."""
    del budget
    begin = time.perf_counter()
    runtime.load()
    yield Fact(name="the runtime", value=f"{time.perf_counter() - begin:.1f} s")
