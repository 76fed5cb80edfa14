"""Faults, each with its repaired twin, and right code that has to stay silent."""

from __future__ import annotations

from collections.abc import Callable

from tests.verify.case import Case, Made, into

CASES: list[Case] = []
RIGHT: list[Callable[[], Made]] = []
case = into(CASES)


def right(make: Callable[[], Made]) -> None:
    """Add right code."""
    RIGHT.append(make)
