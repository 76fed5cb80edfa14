"""Run a plan: the cached library if it still holds, else the compiler, once."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pullback.diagnostic import PullbackError, Rule, did_you_mean
from pullback.kernels import cache
from pullback.kernels.cuda_on_cpu import sanitizer
from pullback.kernels.plan import BuildPlan
from pullback.kernels.toolchain import CompilerMissing, first_error

Announce = Callable[[str], AbstractContextManager[Any]]
# A unit's file -> the header it reads first, precompiled.
Headers = Mapping[str, Path]
Ahead = Callable[[], Headers]

CompileFailed = Rule("PB202", "compile-failed")
SourceMissing = Rule("PB203", "source-missing")
CannotWrite = Rule("PB204", "cannot-write")
CompilerKilled = Rule("PB205", "compiler-killed")
LibraryNotLoadable = Rule("PB206", "library-not-loadable")

LIBRARY = "library.so"
MOST_SHOWN = 12  # files of a folder
# Files that are edited while they compile are compiled again, this many times.
ATTEMPTS = 5
# A file's time is that of the last tick of the system's clock, up to 10 ms ago.
TICK = 10_000_000

# A disk with less room than this is full.
ROOM = 2**16
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File size limit exceeded")
# A precompiled header that is damaged, or too much for the memory.
NOT_THE_AUTHORS_FAULT = re.compile(r"internal compiler error|\.gch\b|compiler-killed")
KILLED = re.compile(r"(\w+) signal terminated program|died due to signal (\d+)")


def compile(
    plan: BuildPlan, *, announce: Announce | None = None, ahead: Ahead | None = None
) -> Path:
    """Return the path of the plan's library, compiled if need be.

    Args:
        plan: what to compile.
        announce: returns a context that lasts as long as the compiler runs, if it has to; it
            takes a line to show.
        ahead: precompiles headers, if the compiler has to run.

    Raises:
        PullbackError: PB202, it does not compile; PB203, a source is not there; PB204, the disk
            is full; PB205, the compiler was killed.
    """
    if library := cache.look_up(plan):
        return library
    _require_sources(plan)
    with explain_write_errors(plan), cache.lock(plan):
        if library := cache.look_up(plan):
            return library
        headers = ahead() if ahead else {}
        line = f"compiling {plan.name} with {plan.compiler}"
        with announce(line) if announce else nullcontext():
            return _build(plan, headers)


class CompiledLibrary(ctypes.CDLL):
    """A library that was compiled here, or for here: it is only called for its own device."""


def open_library(path: Path) -> CompiledLibrary:
    """Load a library.

    Raises:
        PullbackError: PB206, with the loader's message.
    """
    try:
        return CompiledLibrary(str(path))
    except OSError as error:
        raise not_loadable(path, str(error)) from None


def not_loadable(path: Path, said: str) -> PullbackError:
    """Return the error for a library that the loader refuses, with the loader's message."""
    reason = said.removeprefix(f"{path}: ")
    symbol = re.search(r"undefined symbol: (\w+)", reason)
    cure = "its folder is mounted noexec: set PULLBACK_CACHE to another" if noexec(path) else None
    return LibraryNotLoadable.error(
        f"{path.name} cannot be loaded",
        reason=reason,
        missing=_demangle(symbol[1]) if symbol else None,
        at=path,
        help="define it, or link the library that does" if symbol else cure,
    )


def noexec(path: Path) -> bool:
    """Tell whether a file is where nothing may be run; the loader's message is not always clear."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _build(plan: BuildPlan, headers: Headers) -> Path:
    """Compile until the author's files are the same before and after."""
    known: Iterable[Path] = plan.sources
    for _ in range(ATTEMPTS):
        _require_sources(plan)
        before = {path: cache.digest(path) for path in known}
        started = time.time_ns() - TICK
        with cache.workspace(plan) as where:
            translated, flags = _write_units(plan, where)
            _compile_and_link(replace(plan, flags=(*plan.flags, *flags)), where, headers)
            known = {*plan.sources, *translated, *_included_files(plan, where)}
            after = {path: sha for path in known if (sha := cache.digest(path))}
            if len(after) == len(known) and not any(
                _has_changed(path, sha, before, started) for path, sha in after.items()
            ):
                return cache.store(plan, where / LIBRARY, after)
    raise CompileFailed.error(
        f"{plan.name} changed while it compiled, {ATTEMPTS} times",
        files=", ".join(str(path) for path in known),
        help="compile when whatever writes these files has finished",
    )


def _has_changed(path: Path, sha: str, before: dict[Path, str | None], started: int) -> bool:
    """Tell whether a file has changed since it was compiled; for a new one only its time tells."""
    if path in before:
        return before[path] != sha
    try:
        return path.stat().st_mtime_ns >= started
    except OSError:
        return True


def _write_units(plan: BuildPlan, where: Path) -> tuple[frozenset[Path], tuple[str, ...]]:
    """Write the units for the compiler.

    Returns:
        The author's files that were translated for it, and flags that follow from their code.
    """
    if plan.translation:
        from pullback.kernels.cuda_on_cpu import units  # noqa: PLC0415  (only CUDA needs it)

        return units.write(plan.name, plan.units, plan.translation, where)
    for unit in plan.units:
        (where / unit.file).write_text(unit.text, encoding="utf-8")
    return frozenset(), ()


def _compile_and_link(plan: BuildPlan, where: Path, headers: Headers) -> None:
    """Compile, and once more if the fault may be that of a precompiled header."""
    try:
        _run_compiler(plan, where, headers)
    except PullbackError as error:
        if not headers or not NOT_THE_AUTHORS_FAULT.search(str(error)):
            raise
        _run_compiler(plan, where, {})


def _run_compiler(plan: BuildPlan, where: Path, headers: Headers) -> None:
    """Compile and link with one command, or one for each unit and one to link, if need be."""
    command, end = [*plan.compiler.command, *plan.flags], [*plan.link, "-o", LIBRARY]
    first = {file: ["-include", str(header)] for file, header in headers.items()}
    units = [
        [*first.get(unit.file, []), unit.file, "-MMD", "-MF", f"{unit.file}.d"]
        for unit in plan.units
    ]
    if len(units) == 1 and not plan.compile_flags and not plan.link_for:
        run(plan, where, [[*command, *units[0], *end]])
        return
    objects = [f"{unit.file}.o" for unit in plan.units]
    compiling = zip(units, objects, strict=True)
    one = [*command, *plan.compile_flags, "-c"]
    run(plan, where, [[*one, *unit, "-o", made] for unit, made in compiling])
    run(plan, where, [[*command, *objects, *_link_for(plan, where, objects), *end]])


def _link_for(plan: BuildPlan, where: Path, objects: Iterable[str]) -> tuple[str, ...]:
    """Return what is linked because of what objects name."""
    prefix, flags = plan.link_for or ("", ())
    named = flags and any(prefix.encode() in (where / made).read_bytes() for made in objects)
    return flags if named else ()


def run(plan: BuildPlan, where: Path, commands: list[list[str]]) -> None:
    """Run commands, as many at once as there are cores; stop all when one fails."""
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    watchers: list[subprocess.Popen[bytes]] = []
    width = len(os.sched_getaffinity(0))
    try:
        for index, command in enumerate(commands):
            if index >= width:
                _wait(plan, where, *running[index - width])
            log = where / f"{index}.log"
            running.append((_start(command, where, log), log))
            watchers += _watchers(running[-1][0])
        for process, log in running:
            _wait(plan, where, process, log)
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.communicate()
        for process, _ in running:
            _kill(process)


def _start(command: list[str], where: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a compiler in a process group of its own, so that its children can be killed too."""
    # Its messages are parsed, so they have to be in English; its temporary files go with ours.
    own = sanitizer.strip_sanitizer(os.environ)
    environment = {**own, "LC_ALL": "C", "TMPDIR": str(where)}
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                command,
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        except OSError as error:
            raise CompilerMissing.error(
                f"{command[0]} cannot be started", reason=error.strerror
            ) from error


def _watchers(process: subprocess.Popen[bytes]) -> list[subprocess.Popen[bytes]]:
    """Start a process that ends a compiler and its children when this process dies, however.

    A pipe closes then, while a signal at a parent's death follows the thread that started the
    child, and reaches no grandchildren. Without a shell, or if the compiler is done already: none.
    """
    try:
        return [
            subprocess.Popen(
                ["/bin/sh", "-c", "read line; kill -9 0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=process.pid,
            )
        ]
    except OSError:
        return []


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(plan: BuildPlan, where: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    if status := process.wait():
        # The folder's name says nothing to the author, and it is gone when this is read.
        text = log.read_text(encoding="utf-8", errors="replace").replace(f"{where}/", "")
        raise _failure(plan, status, text)


def _failure(plan: BuildPlan, status: int, log: str) -> PullbackError:
    """Return why a compiler failed: the disk, a signal, or the author's code."""
    full, killed = DISK_FULL.search(log), KILLED.search(log)
    if full or -status == signal.SIGXFSZ:
        return _cannot_write(plan, full[0] if full else "File size limit exceeded")
    # The compiler's own words may have had no room either.
    if not log.strip() and shutil.disk_usage(cache.folder()).free < ROOM:
        return _cannot_write(plan, "No space left on device")
    kept: Path | None = None
    with suppress(OSError):
        kept = cache.keep_log(plan, log)
    # "internal compiler error: Segmentation fault signal terminated program" is a bug, not a kill.
    if status < 0 or (killed and killed[1] not in ("fault",)):
        return CompilerKilled.error(
            f"the compiler was killed while it compiled {plan.name}",
            signal=signal.strsignal(-status) if status < 0 else killed and (killed[1] or killed[2]),
            log=kept,
            help="most often memory ran out: compile fewer things at once, or free some",
        )
    first = first_error(log)
    return CompileFailed.error(
        f"{plan.name} does not compile",
        at=first.at,
        required_from=first.required_from,
        error=first.text,
        log=kept,
        help=_suggestion(plan, first.text),
    )


def _suggestion(plan: BuildPlan, error: str) -> str | None:
    """Say what the CPU lacks; for nvcc, what the author may have meant, as g++ does itself."""
    if plan.translation:
        from pullback.kernels.cuda_on_cpu import units  # noqa: PLC0415  (only CUDA needs it)

        return units.cure(error)
    missing = re.match(r'identifier "(\w+)" is undefined', error)
    if missing is None:
        return None
    texts = [unit.text for unit in plan.units]
    for source in plan.sources:
        with suppress(OSError):
            texts.append(source.read_text(encoding="utf-8", errors="replace"))
    names = {name for text in texts for name in re.findall(r"[A-Za-z_]\w+", text)}
    return did_you_mean(missing[1], sorted(names - {missing[1]}))


def _included_files(plan: BuildPlan, where: Path) -> set[Path]:
    """Return the author's files that were compiled, from what the compilers noted."""
    found: set[Path] = set()
    for note in where.glob("*.d"):
        rule = note.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        names = re.findall(r"(?:\\.|[^\s\\])+", re.split(r"\s*:\s", rule, maxsplit=1)[-1])
        plain = (re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in names)
        # A relative name is that of a generated unit.
        found |= {path for path in map(Path, plain) if path.is_absolute()}
    # nvcc notes its own headers too; the compiler's identity covers them.
    runtime = (path.parent for path in found if path.name == "cuda_runtime.h")
    toolkit = next(runtime, None) if plan.compiler.language == "cuda" else None
    # A precompiled header is in the cache; its own key covers it.
    others = [*cache.folders(), where, *([toolkit] if toolkit else [])]
    return {path for path in found if not any(path.is_relative_to(other) for other in others)}


def _require_sources(plan: BuildPlan) -> None:
    for source in plan.sources:
        if not source.is_file():
            near = source.parent
            have = sorted(path.name for path in near.iterdir()) if near.is_dir() else []
            raise SourceMissing.error(
                f"{plan.name} is to be compiled from {source.name}, which is not there",
                at=source,
                have=", ".join(have[:MOST_SHOWN]) or None,
                help=did_you_mean(source.name, have),
            )


@contextmanager
def explain_write_errors(plan: BuildPlan) -> Generator[None]:
    """Explain why a plan cannot be written: the disk is full (PB204), say."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES):
            raise _cannot_write(plan, error.strerror) from error
        raise


def _cannot_write(plan: BuildPlan, reason: str | None) -> PullbackError:
    return CannotWrite.error(
        f"{plan.name} cannot be written",
        reason=reason,
        folder=cache.folder(),
        help="free some space there, or set PULLBACK_CACHE to another folder",
    )


def _demangle(symbol: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None:
        return symbol
    answer = subprocess.run([tool, symbol], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or symbol
