"""Recurrences beside their loops in Python."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu import loops
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each recurrence."""
    del folder
    return loops.recurrence_steps(place)
