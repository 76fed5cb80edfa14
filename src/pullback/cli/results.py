"""What `pullback check` found: targets with their reports, what could not run, what is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pullback.cli.baseline import Baseline
from pullback.diagnostic import Finding, PullbackError

if TYPE_CHECKING:
    from pullback.verify.report import Report


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A target that was checked.

    Attributes:
        place: how it is named: "src/ops.py:Square".
        file: that defines it, if one does.
        report: on it.
    """

    place: str
    file: Path | None
    report: Report


@dataclass
class Results:
    """What was checked, and what could not be."""

    baseline: Baseline
    checked: list[Checked] = field(default_factory=list[Checked])
    errors: list[PullbackError] = field(default_factory=list[PullbackError])

    @property
    def faulty(self) -> int:
        """How many targets have a fault that is not known."""
        return sum(bool(self.new_of(each)) for each in self.checked)

    @property
    def ok(self) -> bool:
        """Whether everything could be checked, and all faults are known."""
        return not self.faulty and not self.errors

    def new_of(self, each: Checked) -> list[Finding]:
        """Return the faults of a target that are not known."""
        known = self.baseline.known
        return [f for f in each.report.faults if (each.place, f.code) not in known]

    @property
    def faults(self) -> list[tuple[str, Finding]]:
        """All faults, with their targets."""
        return [(each.place, fault) for each in self.checked for fault in each.report.faults]

    @property
    def known(self) -> list[tuple[str, str]]:
        """The known faults that were seen again: targets and codes."""
        seen = {(place, fault.code) for place, fault in self.faults}
        return sorted(self.baseline.known & seen)

    @property
    def mended(self) -> list[tuple[str, str]]:
        """The known faults that were looked for and are gone: targets and codes."""
        asked = {(each.place, o.code) for each in self.checked for o in each.report.everything}
        return sorted((self.baseline.known & asked) - set(self.known))
