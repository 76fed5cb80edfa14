"""What a check found: plain data, and its text."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pullback.diagnostic import Finding, PullbackError
from pullback.page import save
from pullback.verify.html import fragment_of, html_of
from pullback.verify.text import line_of, text_of

Verdict = Literal["ok", "fault", "advice", "not applicable", "explained"]

# The reports whose truth value was asked for and was false: `assert pb.check(...)` raises an
# AssertionError that knows nothing about them. The pytest plugin shows and empties it.
denied: deque[Report] = deque(maxlen=8)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one probe.

    Attributes:
        code: of the probe.
        name: of the probe.
        verdict: "explained": an earlier finding has the same cause.
        findings: of the probe.
        reason: why it is not applicable, or the code that explains it.
        seconds: that it took.
    """

    code: str
    name: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    reason: str | None = None
    seconds: float = 0.0

    @property
    def open(self) -> bool:
        """Whether a question stays open whose answer a reader may expect: a kink, a time limit."""
        said = self.reason or ""
        return self.verdict == "not applicable" and said.startswith(("not judged", "no answer"))

    def to_dict(self) -> dict[str, object]:
        """Return it as a plain dict; the findings are the report's."""
        return {
            "code": self.code,
            "name": self.name,
            "verdict": self.verdict,
            "reason": self.reason,
            "seconds": round(self.seconds, 4),
        }


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The author's text: the file's name, the number of its first line, the lines."""

    file: str
    first: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `pb.check` found.

    Attributes:
        target: what was checked, with its inputs: "Square(x: float64 (2, 3))".
        outcomes: of every probe, in order.
        notes: what the reader has to know about the check itself: found inputs, assumptions.
        seed: of all random numbers.
        replay: a command, or a call, that shows the faults again; None without faults.
        parts: of the Functions that were found inside a module or a callable.
        listings: the author's text.
        took: how many seconds of wall time the whole check took, if known.
    """

    target: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    seed: int = 0
    replay: str | None = None
    parts: tuple[Report, ...] = ()
    listings: tuple[Listing, ...] = ()
    took: float | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those of the parts first: a part's fault is the cause of the whole's."""
        inner = [finding for part in self.parts for finding in part.findings]
        own = [finding for outcome in self.outcomes for finding in outcome.findings]
        return tuple(dict.fromkeys([*inner, *own]))

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings of level "fault"."""
        return tuple(finding for finding in self.findings if finding.level == "fault")

    @property
    def advice(self) -> tuple[Finding, ...]:
        """The findings of level "advice"."""
        return tuple(finding for finding in self.findings if finding.level == "advice")

    @property
    def ok(self) -> bool:
        """Whether there is no fault; there may be advice."""
        return not self.faults

    @property
    def everything(self) -> Iterator[Outcome]:
        """The outcomes of the parts, then those of the whole."""
        for part in self.parts:
            yield from part.everything
        yield from self.outcomes

    @property
    def seconds(self) -> float:
        """The time it took: wall time if that is known, otherwise the sum of all probes."""
        if self.took is not None:
            return self.took
        return sum(outcome.seconds for outcome in self.everything)

    def __bool__(self) -> bool:
        if not self.ok:
            denied.append(self)
        return self.ok

    def raise_for_findings(self) -> None:
        """Raise the first fault as a PullbackError that lists them all, if there is one."""
        if not self.ok:
            error = PullbackError(self.faults[0])
            error.args = (str(self),)
            raise error

    def to_json(self) -> str:
        """Return `to_dict()` as JSON, with the same keys in every version."""
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain dicts and lists."""
        return {
            "target": self.target,
            "ok": self.ok,
            "seed": self.seed,
            "replay": self.replay,
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
            "parts": [part.to_dict() for part in self.parts],
            "seconds": round(self.seconds, 4),
        }

    def __repr__(self) -> str:
        """Say in one line what is wrong: pytest shows it where `assert pb.check(...)` fails."""
        return line_of(self)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, verbose: bool = False) -> str:
        """Return it as text; `verbose` has a line for each probe."""
        return text_of(self, verbose=verbose)

    def _repr_html_(self) -> str:
        return fragment_of(self)

    def to_html(self) -> str:
        """Return a self-contained page: no network, no scripts."""
        return html_of(self)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write it to a file, all or nothing, in the format of its ending: .html, .json or .txt.

        Raises:
            PullbackError: PB406, another ending.
        """
        return save(file, {".html": self.to_html, ".json": self.to_json, ".txt": self.to_text})
