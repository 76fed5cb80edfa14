"""`pb.source`: a kernel with `call=`, or, without, an extension that includes PyTorch's headers.

The second kind is what `torch.utils.cpp_extension.load` takes. It is compiled like kernels, with
the same cache, locks, tracking of headers and messages. Those in CUDA are in `extension_cuda`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import overload

from pullback.bind import loading, runtime
from pullback.bind.build import (
    BESIDE_TEXT,
    MODULE,
    Build,
    build_of,
    include_flags,
    text_of,
    unit_of,
)
from pullback.define.source import Source, folder_of, is_inline
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import compile as compilation
from pullback.kernels import precompile, toolchain
from pullback.kernels.plan import BuildPlan

CallMissing = Rule("PB211", "call-missing")
SeveralSources = Rule("PB212", "several-sources")

FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-pipe", "-shared")
# What shows that a file is an extension: it includes PyTorch, or defines a Python module.
MARKS = re.compile(r"\b(torch|ATen|c10|pybind11)/|\b(TORCH_|PYBIND11_)\w+|\bPyInit_|\bPython\.h")
# Headers that include most of PyTorch, and each all that follow it. The first that a file includes
# is precompiled. They are few, so that the cache keeps few.
PRECOMPILED = (
    "torch/extension.h",
    "torch/torch.h",
    "torch/all.h",
    "torch/script.h",
    "torch/types.h",
    "ATen/ATen.h",
    "torch/library.h",
)
# Headers that the widest one does not include.
BESIDE = {"ATen/ATen.h": {"torch/library.h"}}


@overload
def source(
    code: str | Path,
    *,
    call: str,
    strided: bool = False,
    flags: Sequence[str] = (),
    dtypes: Sequence[str] | None = None,
) -> Source: ...


@overload
def source(
    code: str | Path, *more: str | Path, flags: Sequence[str] = (), precompiled: bool = True
) -> ModuleType: ...


def source(  # noqa: PLR0913  (two functions under one name)
    code: str | Path,
    *more: str | Path,
    call: str | None = None,
    strided: bool = False,
    flags: Sequence[str] = (),
    dtypes: Sequence[str] | None = None,
    precompiled: bool = True,
) -> Source | ModuleType:
    """Say where a C++ or CUDA kernel is and how it is called; or compile and load an extension.

    Args:
        code: a file's name, relative to the Python file that names it or to the working folder;
            or the code itself, if it has a line break, a brace or a semicolon.
        more: further files of an extension.
        call: a C++ expression. In it every tensor of the line is a typed pointer (`const` for
            inputs; null for an optional input that is None and for a gradient that is not
            needed), every named dimension is an integer, the scalars have their names, `T` is the
            dtype that the tensors share, `batch` is the product of `...`, `numel(x)`,
            `size(x, d)` and `stride(x, d)` ask a tensor, and with CUDA `stream` is PyTorch's
            current stream. Without `call` the code is an extension: C++ and CUDA that includes
            PyTorch's headers and registers operators (`TORCH_LIBRARY`) or defines a Python module
            (`PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)`). Where there is no GPU, its kernels run on
            the CPU.
        strided: whether the kernel takes inputs with any strides. Without it they arrive
            contiguous and expanded over `...`.
        flags: for the compiler, after pullback's own, such as "-fopenmp" or "-I/usr/include/x";
            for an extension "-L" and "-l" as well.
        dtypes: what a template is compiled for, such as ["float32", "float16"]. Without it a
            template is compiled for float32 and float64, and functions for what they take.
        precompiled: whether PyTorch's headers are precompiled for an extension, which is done
            once and takes up to 800 MB in the cache.

    Returns:
        With `call`, what `pb.operator` takes as `cpu=` and `cuda=`. Without, the extension's
        Python module; a module with its `operators` if it defines none.

    Raises:
        PullbackError: PB201 to PB206, an extension does not compile; PB211 to PB215; PB234, an
            extension in CUDA cannot run on the CPU.
    """
    folder = folder_of(sys._getframe(1))
    files = (code, *more)
    if call is None:
        if strided or dtypes is not None:
            raise _call_missing(files, "strided= and dtypes= are for kernels")
        return _load(build_of(files, folder, flags), precompiled=precompiled)
    if more:
        raise SeveralSources.error(
            f"a kernel with call= is one file, and {len(files)} are given",
            help="include the others in it; or leave call= out, if they are an extension",
        )
    text = str(code)
    return Source(
        file=None if is_inline(code) else text,
        text=text if is_inline(code) else None,
        folder=folder,
        call=call,
        strided=strided,
        flags=tuple(flags),
        dtypes=None if dtypes is None else tuple(dtypes),
    )


def _load(build: Build, *, precompiled: bool) -> ModuleType:
    from pullback.bind import extension_cuda  # noqa: PLC0415  (kernels with call= do without)

    texts = [text_of(file) for file in build.files]
    # A missing file is reported when it is compiled.
    if None not in texts and not any(MARKS.search(text or "") for text in texts):
        raise _call_missing(build.files, "the code includes none of PyTorch's headers")
    if extension_cuda.is_cuda(build.files):
        return extension_cuda.load(build, precompiled=precompiled)
    plan = plan_of(build)
    ahead = functools.partial(precompile_headers, plan) if precompiled else None
    return loading.load(compilation.compile(plan, announce=runtime.announce, ahead=ahead))


def plan_of(build: Build) -> BuildPlan:
    """Return the build plan of an extension in C++.

    Raises:
        PullbackError: PB201, no compiler.
    """
    return BuildPlan(
        name=build.word,
        compiler=toolchain.find("c++"),
        units=tuple(unit_of(index, file) for index, file in enumerate(build.files)),
        sources=build.paths,
        flags=(*FLAGS, *include_flags(), *build.quoted, *build.compiling, build.module),
        link=(*runtime.link_flags(), *build.linking),
        abi=runtime.abi(),
    )


def precompile_headers(plan: BuildPlan) -> dict[str, Path]:
    """Return the precompiled header of each unit that can begin with it."""
    headers_of: dict[str, list[str]] = {}
    for unit in plan.units:
        # A unit includes its file, or is inline code.
        headers = precompile.leading_headers(Path(unit.file), unit.text, PRECOMPILED.__contains__)
        if headers:
            headers_of[unit.file] = headers
    if not headers_of or not precompile.can(plan.compiler):
        return {}
    names = {name for headers in headers_of.values() for name in headers}
    widest = min(names, key=PRECOMPILED.index)
    includes = sorted({widest} | names & BESIDE.get(widest, set()))
    # These flags do not affect PyTorch's headers, so extensions share the precompiled header.
    flags = [flag for flag in plan.flags if not flag.startswith((MODULE, BESIDE_TEXT))]
    header_plan = precompile.plan_of(includes, plan.compiler, flags, plan.abi)
    header = precompile.precompile_header(header_plan, runtime.announce)
    return dict.fromkeys(headers_of, header) if header else {}


def _call_missing(files: Sequence[str | Path], reason: str) -> PullbackError:
    names = ", ".join("inline code" if is_inline(file) else Path(file).name for file in files)
    return CallMissing.error(
        f"a source without call= is an extension that includes PyTorch's headers, and {reason}",
        source=names,
        help='say how the kernel is called, such as call="add(c, a, b, numel(c))"',
    )
