"""Many small CUDA programs as one: compiled at once, and each run by its name."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path

from pullback.kernels import cache

INCLUDE = re.compile(r'^#include (?:(<.+>)|"(.+)")', re.MULTILINE)


@functools.cache
def together(name: str, files: tuple[Path, ...], *, twins: bool = False) -> Path:
    """Return a program whose first argument says which of these it is.

    It is kept beside the libraries: another worker, and the next run, find what was compiled of it.

    Args:
        name: of the file.
        files: each with a `main`; their stems are what they are called by.
        twins: whether each has a twin, called STEM_repaired, for which REPAIRED is defined.
    """
    kinds = ["", "_repaired"] if twins else [""]
    parts = [begin(files)]
    for kind in kinds:
        parts += ["#define REPAIRED"] if kind else []
        parts += [f'namespace {file.stem}{kind}_ {{\n#include "{file}"\n}}' for file in files]
    parts.append(choice([file.stem + kind for kind in kinds for file in files]))
    path = cache.folder() / f"{name}.cu"
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text("\n".join(parts))
    return written.replace(path)


def begin(files: Iterable[Path]) -> str:
    """Return the headers of all files, which must not be read inside a namespace."""
    found = [(file, match) for file in files for match in INCLUDE.finditer(file.read_text())]
    names = [match[1] or f'"{file.parent / match[2]}"' for file, match in found]
    return "\n".join(f"#include {name}" for name in dict.fromkeys([*names, "<string_view>"]))


def choice(names: Iterable[str]) -> str:
    """Return the `main` that calls one of them."""
    rows = "".join(f'  if (name == "{name}") return {name}_::main();\n' for name in names)
    return (
        f"int main(int, char** words) {{\n  std::string_view name(words[1]);\n{rows}return 2; }}\n"
    )
