"""The matrix: its rows, its ways, and the page in the docs that is made of them.

`python tests/everywhere/matrix.py` writes the page anew. It says what the tests of the same data
have shown, so writing it runs nothing.
"""

from __future__ import annotations

from pathlib import Path

from modes import MODES
from rows import KINDS, Row
from traced import TRACED
from ways import EAGER, Refusal, Way

PAGE = Path(__file__).parents[2] / "docs/everywhere.md"
BEGIN, END = "<!-- begin: tests/everywhere/matrix.py -->", "<!-- end -->"

WAYS = (*EAGER, *TRACED, *MODES)
CELLS = tuple((way, row) for way in WAYS for row in way.only)


def table() -> str:
    """Return the table and its footnotes."""
    notes: list[Refusal] = []
    lines = [f"| | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    for way in WAYS:
        cells = [cell(way, [r for r in way.only if r.kind == kind], notes) for kind in KINDS]
        lines.append(f"| {way.name} | {' | '.join(cells)} |")
    lines.append("")
    for number, note in enumerate(notes, 1):
        lines.append(f"{number}. {note.says}. Instead: {note.instead}.")
    return "\n".join(lines)


def cell(way: Way, rows: list[Row], notes: list[Refusal]) -> str:
    """Return the cell of a way and a kind: works, raises, or what of it raises."""
    refusals = [way.refusal(row) for row in rows]
    found = list(dict.fromkeys(refusal for refusal in refusals if refusal is not None))
    for refusal in found:
        if refusal not in notes:
            notes.append(refusal)
    marks = "".join(f"<sup>{notes.index(refusal) + 1}</sup>" for refusal in found)
    if not rows:
        return ""
    if None not in refusals:
        return f"raises{marks}"
    return f"yes, or raises{marks}" if found else "yes"


def page(text: str) -> str:
    """Return the page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
