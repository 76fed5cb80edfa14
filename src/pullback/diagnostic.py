"""Errors as data: a `Rule` says what is wrong, a `Finding` where, a `PullbackError` raises it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong: what, the evidence, the cure."""

    code: str
    name: str
    message: str
    evidence: tuple[tuple[str, str], ...] = ()
    help: str | None = None

    def __str__(self) -> str:
        """Render as in a terminal: the message, then aligned evidence and help."""
        rows = [*self.evidence, *([("help", self.help)] if self.help else [])]
        width = max((len(key) for key, _ in rows), default=0) + 1
        # A value of several lines (a compiler's message) stands under its key.
        indent = "\n" + " " * (width + 5)
        lines = [
            f"    {key + ':':<{width}} {value.replace(chr(10), indent)}" for key, value in rows
        ]
        return "\n".join([f"{self.name} [{self.code}]: {self.message}", *lines])


class PullbackError(RuntimeError):
    """A user's mistake, or a machine that lacks something. `finding` holds it as data.

    It is a `RuntimeError` because that is what PyTorch raises for the same mistakes.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclass(frozen=True)
class Rule:
    """A kind of error: a code that is never reused and a name that says what is wrong."""

    code: str
    name: str
    registry: ClassVar[dict[str, Rule]] = {}

    def __post_init__(self) -> None:
        assert self.code not in Rule.registry, f"{self.code} is taken"
        Rule.registry[self.code] = self

    def error(self, message: str, *, help: str | None = None, **evidence: object) -> PullbackError:
        """Return the exception to raise; evidence that is None is left out."""
        shown = tuple((key, str(value)) for key, value in evidence.items() if value is not None)
        return PullbackError(
            Finding(code=self.code, name=self.name, message=message, evidence=shown, help=help)
        )


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest known name, if one is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None
