"""A kernel's code, as its author declares it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pullback.define.line import DTYPES, UnknownDtype
from pullback.diagnostic import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kernel's file or text, and the C++ expression that calls it.

    Attributes:
        file: the name as given, or None for `text`.
        text: the code itself, or None for `file`.
        folder: of the Python file that named it; where a relative name is looked up first.
        call: a C++ expression, `add2(c, a, b, numel(c))`.
        strided: whether the kernel takes inputs with any strides; otherwise they are contiguous.
        flags: for the compiler, after pullback's own.
        dtypes: the dtypes it is compiled for, of those the tensors of the line can share.
    """

    file: str | None
    text: str | None
    folder: str
    call: str
    strided: bool = False
    flags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.dtypes or ():
            if name not in SHARED_DTYPES:
                raise UnknownDtype.error(
                    f"a kernel is to be compiled for '{name}', which is no dtype it can share",
                    have=", ".join(SHARED_DTYPES),
                    help=did_you_mean(name, SHARED_DTYPES),
                )


SHARED_DTYPES = tuple(name for name in DTYPES if "float" in name or "complex" in name)


def is_inline(code: str | Path) -> bool:
    """Tell code from a file's name: it has a line break, a brace or a semicolon."""
    return isinstance(code, str) and any(mark in code for mark in "\n{;")


def folder_of(frame: FrameType | None) -> str:
    """Return the folder of the Python file that a call comes from, else the working folder."""
    file = frame.f_globals.get("__file__") if frame else None
    return str(Path(file).parent.absolute()) if file else str(Path.cwd())
