"""Precompiled headers, in the cache: reading PyTorch's headers is most of what compiling costs.

g++ only. It checks itself that the command line fits the precompiled header, and reads the text
beside it otherwise. It does not check whether the headers are still the same, so that is done here:
by size and time, since there are ten thousand of them.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from pullback.diagnostic import PullbackError
from pullback.kernels import cache
from pullback.kernels.compile import Announce, run
from pullback.kernels.plan import BuildPlan, TranslationUnit
from pullback.kernels.toolchain import Compiler

HEADER = "precompiled.h"
NOTES = "headers.json"
# One for torch/extension.h has 800 MB, one for loops 10.
MOST_KEPT, MOST_BYTES = 12, 2**32
# Seconds until a failed attempt is repeated: the disk was full, say.
PATIENCE = 86_400.0

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'#\s*include\s*([<"])([^>"]+)[>"]')
HARMLESS = re.compile(r"#\s*pragma\s+once|#\s*line\b|$")
# Headers without an author's macros: the standard library's, PyTorch's, pybind11's.
NEUTRAL = re.compile(r"<[\w.]+$|[<\"](torch|ATen|c10|pybind11)/")
# "#ifndef NAME", "#define NAME" at the top of a header: its guard changes nothing that follows.
GUARD = re.compile(r"\s*#\s*ifndef\s+(\w+)\s+#\s*define\s+\1[ \t]*$", re.MULTILINE)


def can(compiler: Compiler) -> bool:
    """Tell whether it is g++; clang and nvcc do without."""
    return compiler.language == "c++" and "Free Software Foundation" in compiler.identity


def plan_of(
    includes: Sequence[str], compiler: Compiler, flags: Sequence[str], abi: str
) -> BuildPlan:
    """Return the plan of a precompiled header.

    Args:
        includes: headers in their order, such as "torch/extension.h".
        compiler: g++.
        flags: those that compile the code that uses it.
        abi: what the headers belong to, such as "torch 2.13.0 cp311".
    """
    text = "".join(f"#include <{name}>\n" for name in includes)
    return BuildPlan(
        name=f"precompiled-{includes[0].replace('/', '-')}",
        compiler=compiler,
        units=(TranslationUnit(HEADER, text),),
        sources=(),
        flags=tuple(flag for flag in flags if flag != "-shared"),
        abi=abi,
    )


def precompile_header(plan: BuildPlan, announce: Announce | None = None) -> Path | None:
    """Return the header to include, precompiled first if need be; None if that failed."""
    if made := _find_made(plan):
        return _mark_used(made)
    with cache.lock(plan):
        if made := _find_made(plan):
            return _mark_used(made)
        entry = cache.folder() / plan.key
        if _failed_lately(entry):
            return None
        names = ", ".join(re.findall(r"<(.+)>", plan.units[0].text))
        line = f"precompiling {names} with {plan.compiler}, once for these flags"
        with announce(line) if announce else nullcontext():
            # It only saves time: errors are reported when the author's file is compiled.
            try:
                _build(plan, entry)
            except (PullbackError, OSError):
                return None
    _drop_the_oldest()
    return _mark_used(entry)


def leading_headers(path: Path, text: str, known: Callable[[str], bool]) -> list[str] | None:
    """Return the known headers that a file includes before anything that could change them.

    A macro may, so what follows one does not count; None where nothing is left.

    Args:
        path: of the file; headers named in quotes are looked up beside it and read as well.
        text: its content.
        known: tells whether a header is one to precompile.
    """
    found: list[str] = []
    for name in _read(path, text, {path}):
        if name is None:
            break
        if known(name):
            found.append(name)
    return found or None


def _read(path: Path, text: str, seen: set[Path]) -> Iterator[str | None]:
    """Yield the headers that a file includes; None at what may be a macro or code."""
    text = COMMENT.sub(" ", text)
    for row in GUARD.sub("", text, count=1).splitlines():
        line = row.strip()
        include = INCLUDE.match(line)
        if include is None:
            if not HARMLESS.match(line):
                yield None
            continue
        beside = path.parent / include[2]
        if include[1] == '"' and beside.is_file():
            if beside not in seen:
                seen.add(beside)
                own = beside.read_text(encoding="utf-8", errors="replace")
                yield from _read(beside, own, seen)
            continue
        yield include[2] if NEUTRAL.match(include[1] + include[2]) else None


def _build(plan: BuildPlan, entry: Path) -> None:
    unit = plan.units[0]
    with cache.workspace(plan) as where:
        (where / HEADER).write_text(unit.text, encoding="utf-8")
        made = where / f"{HEADER}.gch"
        command = [*plan.compiler.command, *plan.flags, "-x", "c++-header", HEADER]
        run(plan, where, [[*command, "-MD", "-MF", "headers.d", "-o", made.name]])
        note = (where / "headers.d").read_text(encoding="utf-8").replace("\\\n", " ")
        names = re.findall(r"(?:\\.|[^\s\\])+", note.partition(":")[2])
        paths = [re.sub(r"\\(.)", r"\1", name) for name in names]
        read = {path: _state(Path(path)) for path in paths if Path(path).is_absolute()}
        notes = {"made": made.stat().st_size, "read": read}
        (where / NOTES).write_text(json.dumps(notes), encoding="utf-8")
        # The notes last: without them, or with another size, the header is not used.
        for name in (HEADER, made.name, NOTES):
            (where / name).chmod(0o600)  # whatever the umask: what others can write is not read
            (where / name).replace(cache.clear_path(entry / name, stat.S_ISREG))


def _find_made(plan: BuildPlan) -> Path | None:
    """Return the entry that has the precompiled header, if one has."""
    return next(filter(_holds, cache.entries(plan.key)), None)


def _holds(entry: Path) -> bool:
    """Tell whether the precompiled header is whole and the files that it read are unchanged."""
    if not cache.is_ours(entry, HEADER, f"{HEADER}.gch", NOTES):
        return False
    try:
        notes = json.loads((entry / NOTES).read_bytes())
        whole = (entry / f"{HEADER}.gch").stat().st_size == notes["made"]
        return whole and all(_state(Path(path)) == was for path, was in notes["read"].items())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return False


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _mark_used(entry: Path) -> Path:
    with suppress(OSError):
        os.utime(entry / f"{HEADER}.gch")
    return entry / HEADER


def _failed_lately(entry: Path) -> bool:
    try:
        return time.time() - (entry / "compile.log").stat().st_mtime < PATIENCE
    except OSError:
        return False


def _drop_the_oldest() -> None:
    """Keep those used last. Texts stay: a compiler that is about to start reads them instead."""
    with suppress(OSError):
        made = [(path.stat(), path) for path in cache.folder().glob(f"*/{HEADER}.gch")]
        made.sort(key=lambda own: -own[0].st_mtime_ns)
        sizes = itertools.accumulate(status.st_size for status, _ in made)
        for place, ((_, path), size) in enumerate(zip(made, sizes, strict=True)):
            if place >= MOST_KEPT or (size > MOST_BYTES and place):
                path.unlink(missing_ok=True)
