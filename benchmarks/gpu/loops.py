"""Loops of index notation beside their peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu.cases import FORMULAS, LOOPS, RECURRENCES, Case, rehearsed
from benchmarks.gpu.measuring import measure
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Row


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each operator; the first one again at the end, to see the clock drift."""
    del folder
    cases = rehearsed(LOOPS, small=place.rehearsal)
    again = {} if place.rehearsal else {"first again": step_of(cases[0], place, " again")}
    return {**steps_of(cases, place), **again}


def recurrence_steps(place: Place) -> dict[str, Step]:
    """Return a step for each recurrence."""
    return steps_of(rehearsed(RECURRENCES, small=place.rehearsal), place)


def formula_steps(place: Place) -> dict[str, Step]:
    """Return a step for each pointwise formula."""
    return steps_of(rehearsed(FORMULAS, small=place.rehearsal), place)


def steps_of(cases: tuple[Case, ...], place: Place) -> dict[str, Step]:
    """Return a step for each case."""
    return {case.name: step_of(case, place) for case in cases}


def step_of(case: Case, place: Place, more: str = "") -> Step:
    """Return the step of one case."""
    # Convolutions of float32 are computed in float32, as everything else.
    torch.backends.cudnn.allow_tf32 = False

    def step(budget: float) -> Iterator[Row]:
        for row in measure(case, place, budget):
            row.case += more
            yield row
        place.free()

    return step
