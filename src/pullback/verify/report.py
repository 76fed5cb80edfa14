"""What a check found: plain data, and its text."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from pullback.diagnostic import Finding, PullbackError

Verdict = Literal["ok", "fault", "advice", "not applicable", "explained"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one probe said.

    Attributes:
        code: of the probe.
        name: of the probe.
        verdict: "explained": an earlier finding has the same cause.
        findings: of the probe.
        reason: why it is not applicable, or the code that explains it.
        seconds: it took.
    """

    code: str
    name: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    reason: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `pb.check` found.

    Attributes:
        target: what was checked, with its inputs: "Square(x: float64 (2, 3))".
        outcomes: of every probe that was asked, in order.
        notes: what the reader has to know about the check itself: found inputs, what was assumed.
        seed: of everything that was drawn.
        replay: a command, or a call, that does it again.
        parts: of the Functions that were found inside of a module or a callable.
    """

    target: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    seed: int = 0
    replay: str | None = None
    parts: tuple[Report, ...] = ()

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

    def __bool__(self) -> bool:
        return self.ok

    def raise_for_findings(self) -> None:
        """Raise the first fault as a PullbackError that tells of them all, if there is one."""
        if not self.ok:
            error = PullbackError(self.faults[0])
            error.args = (str(self),)
            raise error

    def to_json(self) -> str:
        """Return it as JSON: target, ok, seed, notes, replay, findings, outcomes, parts."""
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain dicts and lists."""
        return {
            "target": self.target,
            "ok": self.ok,
            "seed": self.seed,
            "replay": self.replay,
            "notes": list(self.notes),
            "findings": [
                {**asdict(finding), "evidence": dict(finding.evidence)} for finding in self.findings
            ],
            "outcomes": [
                {
                    "code": outcome.code,
                    "name": outcome.name,
                    "verdict": outcome.verdict,
                    "reason": outcome.reason,
                    "seconds": round(outcome.seconds, 4),
                }
                for outcome in self.outcomes
            ],
            "parts": [part.to_dict() for part in self.parts],
        }

    def __str__(self) -> str:
        from pullback.verify.text import text_of  # noqa: PLC0415  (it reads this class)

        return text_of(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return a page that needs nothing else: no network, no scripts."""
        from pullback.verify.html import html_of  # noqa: PLC0415  (seldom needed)

        return html_of(self)
