"""Run a CUDA program or a Python script on the CPU, in a process of its own, and report."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from pullback.cuda import orders, report
from pullback.cuda.report import Report
from pullback.diagnostic import PullbackError, Rule, did_you_mean
from pullback.kernels import compile as compilation
from pullback.kernels.compile import Announce
from pullback.kernels.cuda_on_cpu import library, program, sanitizer
from pullback.kernels.cuda_on_cpu.environment import FINDINGS
from pullback.kernels.cuda_on_cpu.mode import EACH_ORDER, Check, Mode

ProgramMissing = Rule("PB237", "program-missing")
NothingToRun = Rule("PB238", "nothing-to-run")

NO_MAIN = "undefined reference to `main'"


class Options(TypedDict, total=False):
    """How kernels run, beside what is looked for: see `Mode`."""

    order: str
    workers: int
    timeout: float | None


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is run, and how.

    Attributes:
        file: a `.cu` file with a `main`, or a Python script.
        mode: how kernels run; in order "all", the program runs in each.
        arguments: of the program.
        flags: for the compiler of a `.cu` file.
        under: the command of a debugger, which is started instead and gets the program's command.
    """

    file: Path
    mode: Mode
    arguments: Sequence[str] = ()
    flags: Sequence[str] = ()
    under: Sequence[str] = ()


def run(
    file: str | Path,
    arguments: Sequence[str] = (),
    *,
    check: Check = "none",
    flags: Sequence[str] = (),
    **options: Unpack[Options],
) -> Report:
    """Run a `.cu` file that has a `main`, or a Python script, with its CUDA kernels on the CPU.

    Args:
        file: `.cu` or `.py`.
        arguments: of the program.
        check: "race", "memory" or "none".
        flags: for the compiler of a `.cu` file, such as "-DN=4".
        options: `order` of the threads of a block, "forward", "reverse", "random", "random:SEED",
            or "all", which runs the program in each of the first three and compares what it
            writes; `workers`, CPU threads that run blocks; `timeout`, seconds until a launch is
            stopped, in the checks 60 by default, 0 for never.

    Raises:
        PullbackError: PB237, there is no such file; PB238, nothing in it can be run; PB2xx, it
            does not compile.
    """
    mode = Mode(check=check, **options)
    return start(Start(file=Path(file), mode=mode, arguments=arguments, flags=flags), capture=True)


def race(
    file: str | Path,
    arguments: Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    **options: Unpack[Options],
) -> Report:
    """Run a program or a script and look for accesses that nothing orders: see `run`."""
    return run(file, arguments, check="race", flags=flags, **options)


def memory(
    file: str | Path,
    arguments: Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    **options: Unpack[Options],
) -> Report:
    """Run a program or a script and look for accesses out of bounds: see `run`."""
    return run(file, arguments, check="memory", flags=flags, **options)


def start(what: Start, *, announce: Announce | None = None, capture: bool = False) -> Report:
    """Run a program or a script, see `run`.

    Args:
        what: to run.
        announce: shows that the compiler runs.
        capture: whether its output is kept in the report and not shown.

    Raises:
        PullbackError: as `run`.
    """
    command = [*what.under, *_command(what, announce), *what.arguments]
    if what.mode.order != "all":
        return _run_once(what, command, capture=capture)
    modes = [replace(what.mode, order=order) for order in EACH_ORDER]
    each = [_run_once(replace(what, mode=mode), command, capture=True) for mode in modes]
    if not capture:
        sys.stdout.write(each[0].output)
        sys.stdout.flush()
    found = [finding for one in each for finding in one.findings]
    if not found and (
        unlike := orders.compare_outputs({one.mode.order: one.output for one in each})
    ):
        found.append(unlike)
    return replace(
        each[0],
        mode=what.mode,
        findings=tuple(dict.fromkeys(found)),
        launches=sum(one.launches for one in each),
        returncode=next((one.returncode for one in each if one.returncode), 0),
    )


def _command(what: Start, announce: Announce | None) -> list[str]:
    """Return what starts a file; a program is compiled."""
    file = what.file
    if not file.is_file():
        raise _missing(file)
    if file.suffix == ".py":
        # Its operators are linked to this; compile it before the script waits for it.
        library.runtime(what.mode.check, announce)
        return [sys.executable, "-m", "pullback.cuda", str(file)]
    if file.suffix != ".cu":
        raise NothingToRun.error(
            f"{file.name} is neither a CUDA program nor a Python script",
            help="its name ends in .cu or .py",
        )
    plan = program.plan_of(file.absolute(), what.mode.check, what.flags)
    try:
        made = compilation.compile(plan, announce=announce)
    except PullbackError as error:
        if NO_MAIN not in _log_of(error):
            raise
        raise NothingToRun.error(
            f"{file.name} has no main(), so there is nothing to run",
            at=file.absolute(),
            help="give it one, or run a Python script that calls its operator:"
            " pullback cuda run SCRIPT.py",
        ) from None
    made.chmod(0o700)  # the cache keeps libraries, which nobody starts
    return [str(made)]


def _log_of(error: PullbackError) -> str:
    log = dict(error.finding.evidence).get("log")
    return f"{error}\n{Path(log).read_text(errors='replace') if log else ''}"


def _missing(file: Path) -> PullbackError:
    folder = file.absolute().parent
    near = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    runnable = sorted(name for name in near if name.endswith((".cu", ".py")))
    return ProgramMissing.error(
        f"there is no file {file}", looked=folder, help=did_you_mean(file.name, runnable)
    )


def _run_once(what: Start, command: Sequence[str], *, capture: bool) -> Report:
    """Run a process to its end; its errors are shown, its output as well unless captured."""
    with tempfile.TemporaryDirectory(prefix="pullback-") as folder:
        found = Path(folder) / "findings"
        own = {**what.mode.environment(), FINDINGS: str(found)}
        if what.mode.check == "memory":
            own |= sanitizer.environment() if what.file.suffix == ".py" else sanitizer.options()
        ended = subprocess.run(
            command,
            env={**os.environ, **own},
            stdout=subprocess.PIPE if capture else None,
            text=True,
            errors="replace",
            check=False,
        )
        findings, launches = report.read(found)
    return Report(
        file=what.file,
        mode=what.mode,
        findings=findings,
        launches=launches,
        returncode=ended.returncode,
        output=ended.stdout or "",
    )
