"""Units and every file of the author's that they include -> translated copies.

A copy names its original by `#line`, so messages, `__FILE__` and debug information name the
author's file. Copies include one another by relative names, so the folder may move.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.rewriting import Problem, Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenizedSource, read
from pullback.kernels.cuda_on_cpu.translate import WORTH_READING, rewrite
from pullback.kernels.plan import TranslationUnit

SHADOW = "shadow"
# `reinterpret_cast<float4*>(p)`, `(float4*)p`, `*(int*)&x`.
CAST = re.compile(
    r"\breinterpret_cast\b|\(\s*(?:[\w:]+\s+)*[\w:<>]+\s*(?:const\s*)?\*+\s*\)\s*[&(\w]"
)
# UTF-8's byte order mark may only be at the start of a file, where we put `#line`.
MARK = "\ufeff"


@dataclass(frozen=True)
class Translated:
    """The result of a translation.

    Attributes:
        read: the author's files that were read.
        problems: those that the compiler would not report.
        notes: code that was translated and should be written differently.
        casts: whether a pointer is cast to another type anywhere in the author's code.
    """

    read: frozenset[Path]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    casts: bool


def translate(
    units: Sequence[TranslationUnit],
    where: Path,
    *,
    folders: Sequence[Path],
    stop_at: Sequence[Path],
    torch: bool,
) -> Translated:
    """Write the units, and copies of what they include, into a folder.

    Args:
        units: generated; they include the author's files by absolute path.
        where: the units are written into it under their names, the copies into its folder `shadow`.
        folders: where the compiler looks for headers, in its order, as far as that matters: a
            header in none of them is left to the compiler.
        stop_at: files below these folders stay as they are.
        torch: whether PyTorch's names for CUDA become those for the CPU.
    """
    tree = _Tree(tuple(folders), tuple(folder.resolve() for folder in stop_at))
    generated = [_File(where / unit.file, read(unit.text), None) for unit in units]
    for file in generated:
        tree.visit(file)
    facts = Facts()
    files = [*generated, *tree.files.values()]
    facts.learn(stream for file in files for stream in file.source.streams)
    (where / SHADOW).mkdir(parents=True, exist_ok=True)
    problems: list[Problem] = []
    notes: list[Problem] = []
    for file in files:
        out = Rewriting(file.source, file.path)
        rewrite(out, facts, torch=torch)
        problems += out.problems
        notes += out.notes
        _link(file, out)
        _write(file, out.result(), where)
    return Translated(
        frozenset(file.path for file in tree.files.values()),
        tuple(problems),
        tuple(notes),
        any(CAST.search(file.source.text) for file in files),
    )


@dataclass
class _File:
    """A file to translate.

    Attributes:
        path: the author's, or where a generated one goes.
        source: its content.
        shadow: the name of its copy; None for a generated file.
        includes: the place of an include's name in the text -> the included file.
    """

    path: Path
    source: TokenizedSource
    shadow: str | None
    includes: dict[tuple[int, int], _File] = field(default_factory=dict[tuple[int, int], "_File"])


class _Tree:
    """The files reachable from the units, each once."""

    def __init__(self, folders: tuple[Path, ...], stop_at: tuple[Path, ...]) -> None:
        self.folders = folders
        self.stop_at = stop_at
        self.files: dict[Path, _File] = {}  # by real path

    def visit(self, root: _File) -> None:
        """Find the files that a file includes, recursively."""
        waiting = [root]
        while waiting:
            file = waiting.pop()
            for name, quoted, place in _find_includes(file.source):
                path = self.find(name, file.path.parent if quoted else None)
                if path is None:
                    continue
                real = path.resolve()
                if real not in self.files:
                    self.files[real] = self.open(path)
                    waiting.append(self.files[real])
                file.includes[place] = self.files[real]

    def find(self, name: str, beside: Path | None) -> Path | None:
        """Return the author's file of a name; None if it is not the author's, or does not exist."""
        for folder in (*([beside] if beside else []), *self.folders):
            path = folder / name
            if path.is_file():
                stops = any(path.resolve().is_relative_to(stop) for stop in self.stop_at)
                return None if stops else path
        return None

    def open(self, path: Path) -> _File:
        """Read a file of the author's."""
        text = path.read_bytes().decode("utf-8", errors="surrogateescape").removeprefix(MARK)
        name = re.sub(r"[^\w.+-]", "_", path.name)
        return _File(path, _source(text), f"{len(self.files)}-{name}")


def _source(text: str) -> TokenizedSource:
    """Split a text into tokens; none if it has nothing to rewrite."""
    return (
        read(text)
        if WORTH_READING.search(text) or "include" in text
        else TokenizedSource(text, (), ())
    )


def _find_includes(source: TokenizedSource) -> Iterator[tuple[str, bool, tuple[int, int]]]:
    """Yield name, form and place of each header that a file includes or tests for."""
    for include in source.includes:
        yield include.name, include.quoted, (include.start, include.end)
    for stream in source.streams:
        for index in stream.find("__has_include"):
            name = stream.word(index + 2)
            if stream.word(index + 1) == "(" and name.startswith('"'):
                yield name.strip('"'), True, (stream.starts[index + 2], stream.end(index + 2))


def _link(file: _File, out: Rewriting) -> None:
    """Let a file include the copies."""
    for (start, end), included in file.includes.items():
        folder = "" if file.shadow else f"{SHADOW}/"
        out.replace_part(start, end, f'"{folder}{included.shadow}"')


def _write(file: _File, text: str, where: Path) -> None:
    if file.shadow:
        name = str(file.path.absolute()).replace("\\", r"\\").replace('"', r"\"")
        text = f'#line 1 "{name}"\n{text}'
    path = where / SHADOW / file.shadow if file.shadow else where / file.path.name
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
