"""Pointwise formulas beside their peers, at several sizes and in two dtypes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu.loops import formula_steps
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each formula."""
    del folder
    return formula_steps(place)
