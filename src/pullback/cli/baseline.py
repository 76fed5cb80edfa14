"""A baseline: the faults that a project had when it began to check, which fail no later check.

A fault is known by its target and its code, not by its line: what stands above it may change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.diagnostic import Finding, Rule

BaselineUnread = Rule("PB807", "baseline-unread")

VERSION = 1


@dataclass(frozen=True)
class Baseline:
    """Faults that are known: pairs of a target, "src/ops.py:Square", and a code."""

    known: frozenset[tuple[str, str]] = frozenset()


def read(path: Path) -> Baseline:
    """Return what a file has.

    Raises:
        PullbackError: PB807, it is not there, or is no baseline.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
        if record["pullback_baseline"] != VERSION:
            raise ValueError(f"it is of version {record['pullback_baseline']}, not {VERSION}")
        rows = [(str(row["target"]), str(row["code"])) for row in record["faults"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BaselineUnread.error(
            f"{path} is no baseline that can be read",
            reason=getattr(error, "strerror", None) or f"{type(error).__name__}: {error}",
            help="write one with --write-baseline",
        ) from None
    return Baseline(frozenset(rows))


def text_of(faults: Iterable[tuple[str, Finding]]) -> str:
    """Return a baseline of faults, with their targets, as text in an order that a diff can show."""
    rows = sorted({(place, fault.code, fault.name) for place, fault in faults})
    listed = [{"target": place, "code": code, "name": name} for place, code, name in rows]
    return json.dumps({"pullback_baseline": VERSION, "faults": listed}, indent=1) + "\n"
