"""Where a kernel's code is, as an author says it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


def source(
    code: str | Path,
    *,
    call: str,
    strided: bool = False,
    flags: Sequence[str] = (),
    dtypes: Sequence[str] | None = None,
) -> Source:
    """Say where a C++ or CUDA kernel is and how it is called.

    Args:
        code: a file's name, relative to the Python file that names it or to the working folder;
            or the code itself, if it has a line break, a brace or a semicolon.
        call: a C++ expression. In it every tensor of the line is a typed pointer (`const` for
            inputs; null for an optional input that is None and for a gradient that is not
            needed), every named dimension is an integer, the scalars have their names, `T` is the
            dtype that the tensors share, `batch` is the product of `...`, `numel(x)`,
            `size(x, d)` and `stride(x, d)` ask a tensor, and with CUDA `stream` is PyTorch's
            current stream.
        strided: whether the kernel takes inputs with any strides. Without it they arrive
            contiguous and expanded over `...`.
        flags: for the compiler, after pullback's own, such as "-fopenmp" or "-I/usr/include/x".
        dtypes: what a template is compiled for, such as ["float32", "float16"]. Without it a
            template is compiled for float32 and float64, and functions for what they take.

    Returns:
        What `pb.operator` takes as `cpu=` and `cuda=`.
    """
    text = str(code)
    inline = isinstance(code, str) and any(mark in text for mark in "\n{;")
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    named = caller.f_globals.get("__file__") if caller else None
    return Source(
        file=None if inline else text,
        text=text if inline else None,
        folder=str(Path(named).parent.absolute()) if named else str(Path.cwd()),
        call=call,
        strided=strided,
        flags=tuple(flags),
        dtypes=None if dtypes is None else tuple(dtypes),
    )
