"""What was found out so far, as `gpu.json` and as `gpu.md`, written anew after each part."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.rows import OURS, Fact, Row, Timing, to_json

PEERS = {"loops": "loops", "eager": "eager", "fused": "fused", "compile": "compile"}
PEERS |= {"KeOps": "KeOps", "copy": "copy"}
WORDS = {True: "yes", False: "**no**", None: ""}


@dataclass(kw_only=True)
class Part:
    """What became of one part.

    Attributes:
        name: of the part.
        rows: what it found.
        seconds: that it took, and that it might take.
        failed: what went wrong, and what was cut off.
        before: what nvidia-smi said when it began.
    """

    name: str
    rows: list[Row] = field(default_factory=list[Row])
    seconds: tuple[float, float] = (0.0, 0.0)
    failed: list[str] = field(default_factory=list[str])
    before: str = ""


@dataclass(kw_only=True)
class Report:
    """All parts so far.

    Attributes:
        rehearsal: whether it ran on the CPU.
        missing: lines about the machine.
        parts: in order.
    """

    rehearsal: bool
    missing: list[str]
    parts: list[Part] = field(default_factory=list[Part])

    def write(self, folder: Path) -> None:
        """Write both files; at any moment each is whole."""
        data = {
            "rehearsal": self.rehearsal,
            "missing": self.missing,
            "parts": [
                {
                    "name": part.name,
                    "seconds": part.seconds,
                    "failed": part.failed,
                    "before": part.before,
                    "rows": [to_json(row) for row in part.rows],
                }
                for part in self.parts
            ],
        }
        replace(folder / "gpu.json", json.dumps(data, indent=1) + "\n")
        replace(folder / "gpu.md", "\n".join(self.lines()) + "\n")

    def lines(self) -> Iterator[str]:
        """Yield the page."""
        yield (
            "# A rehearsal on the CPU: no figure here means anything"
            if self.rehearsal
            else ("# pullback on a GPU")
        )
        yield ""
        yield from (f"- {line}" for line in self.missing)
        yield ""
        yield from self.short()
        for part in self.parts:
            took, might = part.seconds
            yield ""
            yield f"## {part.name}: {took:.0f} of {might:.0f} s"
            yield ""
            if part.before:
                yield f"Before it: {part.before}"
                yield ""
            yield from (f"- **{line}**" for line in part.failed)
            yield from facts([row for row in part.rows if isinstance(row, Fact)])
            yield from timings([row for row in part.rows if isinstance(row, Timing)])

    def short(self) -> Iterator[str]:
        """Yield what fell short, first of all."""
        yield "## What fell short"
        yield ""
        lines = [f"{part.name}: {line}" for part in self.parts for line in part.failed]
        for part in self.parts:
            lines += [f"{part.name}: {why(row)}" for row in part.rows if row.good is False]
        yield from (f"- {line}" for line in lines or ["nothing so far"])
        yield from (f"- {line}" for part in self.parts for line in drifts(part))


def why(row: Row) -> str:
    """Return what a row lacks."""
    if isinstance(row, Fact):
        return f"{row.name}: {row.value}{': ' * bool(row.note)}{row.note}"
    if OURS not in row.seconds:
        return f"{row.case}, {row.way}: ours has no time: {'; '.join(row.notes[-2:])}"
    assert row.share is not None
    assert row.expected is not None
    reached = f"{100 * row.share:.0f} % of {row.bound}, {100 * row.expected:.0f} % expected"
    doubt = "; under half of it: to be explained first" if row.share < row.expected / 2 else ""
    return f"{row.case}, {row.way}: {reached}{doubt}"


def drifts(part: Part) -> Iterator[str]:
    """Yield by how much the clock has changed, where a case was measured first and last."""
    rows = {(row.case, row.way): row for row in part.rows if isinstance(row, Timing)}
    for (case, way), row in rows.items():
        other = rows.get((f"{case} again", way))
        if other and OURS in row.seconds and OURS in other.seconds:
            change = other.seconds[OURS].median / row.seconds[OURS].median - 1
            if abs(change) > 0.05:
                yield f"the clock has drifted: {case}, {way}: {100 * change:+.0f} % at the end"


def facts(rows: Sequence[Fact]) -> Iterator[str]:
    """Yield a table of facts."""
    if rows:
        yield ""
        yield "| | | as expected | |"
        yield "|---|---|---|---|"
    for row in rows:
        cells = (row.name, row.value, WORDS[row.good], row.note)
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def timings(rows: Sequence[Timing]) -> Iterator[str]:
    """Yield a table of times, and the notes under it."""
    if not rows:
        return
    peers = [name for name in names(rows) if name != OURS]
    yield ""
    yield f"| | {OURS}, µs | {' | '.join(f'{p}, ×' for p in peers)} | share | expected | | error |"
    yield "|---|" + "---|" * (len(peers) + 5)
    for row in rows:
        ours = row.seconds.get(OURS)
        shown = f"{1e6 * ours.median:.1f} ± {1e6 * ours.spread:.1f}" if ours else ""
        ratios = [f"{ratio:.2f}" if (ratio := row.ratio(p)) else "" for p in peers]
        share = f"{100 * row.share:.0f} % of {row.bound}" if row.share is not None else ""
        wanted = f"{100 * row.expected:.0f} %" if row.expected is not None else ""
        error = f"{row.errors[OURS]:.1e}" if OURS in row.errors else ""
        cells = (f"{row.case}, {row.way}", shown, *ratios, share, wanted, WORDS[row.good], error)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "×: how many times as long as ours a peer takes."
    yield ""
    notes: dict[str, dict[str, None]] = {}
    for row in rows:
        compiling = [f"torch.compile took {row.compiling:.1f} s"] if row.compiling else []
        notes.setdefault(row.case, {}).update(dict.fromkeys([*compiling, *row.notes]))
    yield from (f"- {case}: {'; '.join(found)}" for case, found in notes.items() if found)


def names(rows: Sequence[Timing]) -> list[str]:
    """Return the candidates in the order of the columns."""
    found = dict.fromkeys(name for row in rows for name in row.seconds)
    known = [name for name in (OURS, *PEERS) if name in found]
    return [*known, *(name for name in found if name not in known)]


def replace(file: Path, text: str) -> None:
    """Write a file such that it is never half written."""
    new = file.with_name(f".{file.name}.new")
    with new.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
