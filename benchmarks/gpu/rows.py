"""What parts find out, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.figure import Figure

OURS = "pullback"


@dataclass(kw_only=True)
class Fact:
    """One thing that was found out.

    Attributes:
        name: of what.
        value: in words, with its unit.
        good: whether it is as expected; None if nothing is expected.
        note: what else is to be said.
    """

    name: str
    value: str
    good: bool | None = None
    note: str = ""


@dataclass(kw_only=True)
class Timing:
    """The seconds of one direction of one operator, by candidate.

    Attributes:
        case: the operator and its sizes.
        way: "forward" or "backward".
        seconds: of those whose result is right.
        errors: the largest error beside float64, relative to the largest value.
        compiling: seconds until torch.compile's first result.
        share: of a bound.
        bound: which one.
        expected: the least share.
        notes: why a candidate has no time, and who computes ours.
    """

    case: str
    way: str
    seconds: dict[str, Figure] = field(default_factory=dict[str, Figure])
    errors: dict[str, float] = field(default_factory=dict[str, float])
    compiling: float | None = None
    share: float | None = None
    bound: str = ""
    expected: float | None = None
    notes: list[str] = field(default_factory=list[str])

    @property
    def good(self) -> bool | None:
        """Whether ours is right, and as fast as expected; None if nothing is expected."""
        if OURS not in self.seconds:
            return False
        if self.share is None or self.expected is None:
            return None
        return self.share >= self.expected

    def ratio(self, peer: str) -> float | None:
        """Return how many times as long as ours a peer takes."""
        if not {peer, OURS} <= self.seconds.keys():
            return None
        return self.seconds[peer].median / self.seconds[OURS].median


Row = Fact | Timing


def to_json(row: Row) -> dict[str, Any]:
    """Return a row as plain data."""
    return {"kind": type(row).__name__, **asdict(row), "good": row.good}


def from_json(data: dict[str, Any]) -> Row:
    """Return the row that some data are of."""
    found = dict(data)
    if found.pop("kind") == "Fact":
        return Fact(**found)
    del found["good"]
    found["seconds"] = {who: Figure(**value) for who, value in found["seconds"].items()}
    return Timing(**found)
