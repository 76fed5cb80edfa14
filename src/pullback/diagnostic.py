"""Errors as data: a `Rule` says what is wrong, a `Finding` where, a `PullbackError` raises it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

Level = Literal["fault", "advice"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong: what, the evidence, the cure.

    Attributes:
        code: of its `Rule`, "PB504"; never reused.
        name: what is wrong, in two or three words.
        message: what is wrong, in one sentence that stands alone.
        evidence: what was seen, as pairs of a short key and text or numbers.
        help: the cure.
        level: "fault", a call goes wrong; "advice", waste or a missing feature.
        where: the line of the author's code, "ops.py:14 in backward: return grad * x".
        file: the whole path of the file that `where` names, if it is known.
    """

    code: str
    name: str
    message: str
    evidence: tuple[tuple[str, str], ...] = ()
    help: str | None = None
    level: Level = "fault"
    where: str | None = None
    file: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it as a plain dict, without the path: that is this machine's."""
        return {
            "code": self.code,
            "name": self.name,
            "level": self.level,
            "message": self.message,
            "evidence": dict(self.evidence),
            "where": self.where,
            "help": self.help,
        }

    def __str__(self) -> str:
        """Render as in a terminal: the message, then aligned place, evidence and help."""
        rows = [
            *([("at", self.where)] if self.where else []),
            *self.evidence,
            *([("help", self.help)] if self.help else []),
        ]
        width = max((len(key) for key, _ in rows), default=0) + 1
        # A value of several lines (a compiler's message) is indented under its key.
        indent = "\n" + " " * (width + 5)
        lines = [
            f"    {key + ':':<{width}} {value.replace(chr(10), indent)}" for key, value in rows
        ]
        return "\n".join([f"{self.name} [{self.code}]: {self.message}", *lines])


HEAD = re.compile(r"(?P<name>[a-z][a-z0-9+-]*) \[(?P<code>PB\d+)\]: (?P<message>.*)")
ROW = re.compile(r" {4}(?P<key>\S[^:]*): *(?P<value>.*)")


def parse(text: str) -> Finding | None:
    """Return the finding in a text, as C++ writes it: `str(parse(text)) == text`.

    Returns None if there is none. A place comes back as evidence.
    """
    first, *lines = text.rstrip().split("\n")
    head = HEAD.fullmatch(first)
    if head is None:
        return None
    texts, keys, margin = [head["message"]], list[str](), ""
    for line in lines:
        if row := ROW.fullmatch(line):
            keys.append(row["key"])
            texts.append(row["value"])
            margin = " " * row.start("value")
        else:
            # Continues the value above, or the message: it is indented to where that began.
            texts[-1] += f"\n{line.removeprefix(margin)}"
    rows = tuple(zip(keys, texts[1:], strict=True))
    return Finding(
        code=head["code"],
        name=head["name"],
        message=texts[0],
        evidence=tuple(row for row in rows if row[0] != "help"),
        help=next((value for key, value in rows if key == "help"), None),
    )


# The start of a word that is spoken with a vowel: "an ndarray", but not "an uint8", "an UnionType".
VOWEL = re.compile(r"(?i)(?!uint|uni|use)[aeiou]|nd")


class PullbackError(RuntimeError):
    """A user's mistake, or something that the machine lacks. `finding` holds it as data.

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


def an(word: object) -> str:
    """Return a word with its article: "an int", "a Tensor", "a uint8"."""
    return f"{'an' if re.match(VOWEL, str(word)) else 'a'} {word}"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest known name, if one is near."""
    names = list(known)
    # Two letters in the wrong order are the likeliest slip, and no match of difflib's.
    swapped = [each for each in names if sorted(each) == sorted(name)]
    close = difflib.get_close_matches(name, swapped or names, n=1)
    return f"did you mean '{close[0]}'?" if close else None
