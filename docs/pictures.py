"""Writes docs/assets/tour.svg, a still of `pullback tour`: `python docs/pictures.py`.

Its times are those of the machine that runs this.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from pullback.cli.tour import chapters

PICTURE = Path(__file__).with_name("assets") / "tour.svg"
# An operator is defined, its gradient is tested, and the graph of a model with it is shown.
SHOWN = ("1", "2", "5")
WIDTH = 84
# Without the fonts that Rich would have a browser fetch from elsewhere.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def record() -> str:
    """Run the tour, and return what it prints, with the codes of its colours."""
    console = Console(
        record=True, force_terminal=True, highlight=False, file=io.StringIO(), width=WIDTH
    )
    with tempfile.TemporaryDirectory(prefix="pullback-tour-") as folder:
        chapters.tell(console, Path(folder))
        return console.export_text(styles=True)


def draw(text: str) -> str:
    """Return a picture of a terminal with the chapters that are shown."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    console.print(Text.assemble(("$ ", "bold green"), "pullback tour\n"))
    parts = re.split(r"^(?=(?:\x1b\[[\d;]*m)?(\d)  )", text, flags=re.MULTILINE)
    for number, chapter in zip(parts[1::2], parts[2::2], strict=True):
        if number in SHOWN:
            console.print(Text.from_ansi(chapter.rstrip()), "", sep="\n")
    console.print("…")
    return console.export_svg(title="pullback tour", code_format=FORMAT, unique_id="tour")


if __name__ == "__main__":
    PICTURE.write_text(draw(record()), encoding="utf-8")
