"""An extension to build: the author's files and flags, in C++ and in CUDA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pullback.bind import runtime
from pullback.define.source import is_inline
from pullback.kernels import glue
from pullback.kernels.plan import WITH_FOLDER, TranslationUnit

MODULE = "-DTORCH_EXTENSION_NAME="
# Precedes the folder in which inline code finds the headers that it includes in quotes.
BESIDE_TEXT = "-iquote"
# Python looks for a module's init function. One that is written without Python's macro has to be
# declared visible, because -fvisibility=hidden hides the rest.
INITIALISES = re.compile(r"\bPyObject\s*\*\s*(PyInit_\w+)\s*\(")
SHOWN = 'struct _object;\nextern "C" __attribute__((visibility("default"))) _object* {}();\n'
FOR_LINKING = ("-l", "-L", "-Wl,")


@dataclass(frozen=True, kw_only=True)
class Build:
    """An extension to build.

    Attributes:
        name: of the Python module, with its package.
        files: the author's files, or inline C++.
        folder: where inline code finds the headers that it includes in quotes.
        compiling: the author's flags for g++ or nvcc; folders in them are absolute.
        linking: the author's flags for the linker, likewise.
    """

    name: str
    files: tuple[str | Path, ...]
    folder: str
    compiling: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The author's files."""
        return tuple(file for file in self.files if isinstance(file, Path))

    @property
    def folders(self) -> list[Path]:
        """The folders of the files, where they find the headers beside them."""
        return [*(path.parent for path in self.paths), *([Path(self.folder)] * self._has_text)]

    @property
    def quoted(self) -> tuple[str, ...]:
        """The flag with which inline code finds the headers beside it."""
        return (BESIDE_TEXT + self.folder,) * self._has_text

    @property
    def module(self) -> str:
        """The flag that names the Python module, without its package."""
        return MODULE + self.name.rpartition(".")[2]

    @property
    def word(self) -> str:
        """The name as one word, for messages and files."""
        return re.sub(r"\W", "_", self.name)

    @property
    def _has_text(self) -> bool:
        return len(self.paths) < len(self.files)


def build_of(files: Sequence[str | Path], folder: str, flags: Sequence[str]) -> Build:
    """Return the extension that `pb.source` is to build.

    Args:
        files: names of files, or inline C++.
        folder: where relative names, also those in flags, are looked up first.
        flags: the author's.
    """
    given = [file if is_inline(file) else glue.locate(str(file), folder) for file in files]
    stems = [file.stem for file in given if isinstance(file, Path)]
    compiling, linking = _split_flags(flags, folder)
    return Build(
        name=re.sub(r"\W", "_", stems[0]) if stems else "extension",
        files=tuple(given),
        folder=folder,
        compiling=tuple(compiling),
        linking=tuple(linking),
    )


def text_of(file: str | Path) -> str | None:
    """Return the text of a file, or inline code as it is; None if the file cannot be read."""
    if isinstance(file, str):
        return file
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def unit_of(
    index: int, file: str | Path, *, suffix: str = "cpp", begin: str = ""
) -> TranslationUnit:
    """Return a unit that includes a file, or repeats inline code; messages name its own lines."""
    begin += "".join(map(SHOWN.format, dict.fromkeys(INITIALISES.findall(text_of(file) or ""))))
    if isinstance(file, str):
        text = f'{begin}#line 1 "source of the extension"\n{file}\n'
        return TranslationUnit(f"{index}-inline.{suffix}", text)
    return TranslationUnit(f"{index}-{file.stem}.{suffix}", f'{begin}#include "{file}"\n')


def include_flags() -> tuple[str, ...]:
    """Return the include flags of an extension: <torch/torch.h> has a folder of its own."""
    api = runtime.ROOT / "include" / "torch" / "csrc" / "api" / "include"
    return (*runtime.include_flags(), "-isystem", str(api))


def _split_flags(flags: Sequence[str], folder: str) -> tuple[list[str], list[str]]:
    """Split flags into those for compiling and those for linking; make their folders absolute."""
    compiling: list[str] = []
    linking: list[str] = []
    words = iter(flags)
    for word in words:
        flag = next((each for each in (*WITH_FOLDER, "-L") if word.startswith(each)), None)
        if flag is None:
            (linking if word.startswith(FOR_LINKING) else compiling).append(word)
            continue
        # "-I folder" may be two words.
        path = word.removeprefix(flag) or next(words, "")
        (linking if flag == "-L" else compiling).extend([flag, str(Path(folder, path))])
    return compiling, linking
