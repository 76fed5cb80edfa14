"""The scope of a statement in a kernel: its loops, and the values that are known there."""

from __future__ import annotations

from dataclasses import dataclass, field

from pullback.define.math.index import Affine
from pullback.define.math.node import Node

# Which copy of a value: for each index that is written out, its value; for the lane, the vector.
Copy = tuple[tuple[str, int], ...]
# How often a loop runs: a size, divided by what one turn of it does.
Trip = tuple[Affine, int]


class RefusedLoops(Exception):  # noqa: N818  (it becomes the reason of a refusal)
    """These loops cannot compute it, and why."""


@dataclass
class Scope:
    """One loop, or what is outside of all of them.

    Attributes:
        indices: that have a value here and did not have one outside.
        lane: the index that the lanes of a vector stand for, if any.
        lane_scope: whether the lane's loop is this one, and not one further out.
        edge: whether lanes may be outside of the lane's range, and places outside of a tensor.
        run: which run of the lanes it is in, by its number.
        trips: how often all the loops around it run.
        divisors: what is divided by further in.
        rows: the addresses of rows that data picks.
        tests: what has to hold where nothing is checked: of the lane's loop.
        written: the variables that have a value already, by what computes it.
    """

    indices: frozenset[str] = frozenset()
    lane: str | None = None
    lane_scope: bool = False
    edge: bool = False
    run: int = 0
    trips: tuple[Trip, ...] = ()
    code: list[str] = field(default_factory=list[str])
    known: dict[tuple[Node, Copy], str] = field(default_factory=dict[tuple[Node, Copy], str])
    divisors: dict[tuple[Node, Copy], str] = field(default_factory=dict[tuple[Node, Copy], str])
    rows: dict[tuple[Node, Copy], str] = field(default_factory=dict[tuple[Node, Copy], str])
    tests: dict[str, None] = field(default_factory=dict[str, None])
    written: dict[str, str] = field(default_factory=dict[str, str])
