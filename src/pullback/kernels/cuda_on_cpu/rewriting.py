"""The rules' changes to one file, collected by place and applied at the end.

Tokens are replaced one by one and the gaps between them stay, so every token that is not touched
keeps its line, in the middle of a macro too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pullback.kernels.cuda_on_cpu.tokens import TokenizedSource, TokenStream


@dataclass(frozen=True)
class Problem:
    """Something that cannot be translated, or should be written differently."""

    file: Path
    line: int
    text: str


class Rewriting:
    """The changes to one file."""

    def __init__(self, source: TokenizedSource, path: Path) -> None:
        self.source = source
        self.path = path
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self._replaced: dict[int, tuple[int, str]] = {}  # start -> end, text
        self._inserted: dict[int, str] = {}

    def replace(self, stream: TokenStream, index: int, new: str) -> None:
        """Replace a token by a text without a line end."""
        self.replace_part(stream.starts[index], stream.end(index), new)

    def replace_part(self, start: int, end: int, new: str) -> None:
        """Replace a part of one token by a text; its own line ends stay."""
        lines = self.source.text[start:end].splitlines(keepends=True)
        # A string literal may end a line by `\` and continue in the next one.
        kept = "".join(
            "\\" * line.rstrip("\r\n").endswith("\\") + _line_ending(line) for line in lines
        )
        self._replaced[start] = (end, new + kept)

    def erase(self, stream: TokenStream, indices: Iterable[int]) -> None:
        """Remove tokens."""
        for index in indices:
            start, end = stream.starts[index], stream.end(index)
            around = self.source.text[start - 1 : start] + self.source.text[end : end + 1]
            # The words on both sides have to stay apart.
            self.replace(stream, index, " " if around.isidentifier() else "")

    def before(self, stream: TokenStream, index: int, new: str) -> None:
        """Insert a text before a token."""
        self._insert(stream.starts[index], new)

    def after(self, stream: TokenStream, index: int, new: str) -> None:
        """Insert a text after a token."""
        self._insert(stream.end(index), new)

    def problem(self, stream: TokenStream, index: int, text: str) -> None:
        """Note something that cannot be translated."""
        line = self.source.line(stream.starts[index])
        self.problems.append(Problem(self.path, line, text))

    def note(self, stream: TokenStream, index: int, text: str) -> None:
        """Note something that is translated but that its author should change."""
        line = self.source.line(stream.starts[index])
        self.notes.append(Problem(self.path, line, text))

    def result(self) -> str:
        """Return the new text."""
        text, parts, done = self.source.text, list[str](), 0
        for start in sorted({*self._replaced, *self._inserted}):
            if start < done:
                continue
            parts += (text[done:start], self._inserted.get(start, ""))
            end, new = self._replaced.get(start, (start, ""))
            parts.append(new)
            done = end
        return "".join((*parts, text[done:]))

    def _insert(self, place: int, new: str) -> None:
        self._inserted[place] = self._inserted.get(place, "") + new


def _line_ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
