"""`pullback cuda run|race|memory FILE`: CUDA on the CPU, and what its kernels do wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pullback.cli.screen import Format, FormatOption, answer, progress, say, screen
from pullback.kernels.cuda_on_cpu.mode import Mode

FINDINGS = 1

# A breakpoint in a library that is not loaded yet is kept without a question.
GDB = ("gdb", "-q", "-ex", "set breakpoint pending on", "--args")
FOR_GDB = ("-O0", "-g")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

File = Annotated[
    Path, typer.Argument(help="A .cu file with a main(), or a Python script.", show_default=False)
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(help="What it is given; '--' before them if they begin with '-'."),
]
Order = Annotated[
    str,
    typer.Option(
        help="In which the threads of a block run: forward, reverse, random, random:SEED; all runs"
        " it in each and compares the output.",
    ),
]
Workers = Annotated[int, typer.Option(min=0, help="Threads that run blocks; 0: one a core.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds until a launch is stopped; 0: never. Without it: 60 in the checks.",
    ),
]
Flag = Annotated[
    list[str] | None,
    typer.Option(help="For the compiler of a .cu file, such as -DN=4; can be repeated."),
]
Gdb = Annotated[bool, typer.Option("--gdb", help="Start it in gdb, compiled for it.")]


@app.callback()
def cuda() -> None:
    """Run and debug CUDA kernels without a GPU.

    Exit code 0: well. 1: a kernel is at fault, or the program ended badly. 2: it could not run.
    """


@app.command()
def run(  # noqa: PLR0913, PLR0917  (each is an option)
    file: File,
    arguments: Arguments = None,
    order: Order = "forward",
    workers: Workers = 0,
    timeout: Timeout = None,
    flag: Flag = None,
    gdb: Gdb = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Run it.

    Deadlocks, barriers that not all threads reach, failed assertions and null pointers are found
    without any check.
    """
    mode = Mode(order=order, workers=workers, timeout=timeout)
    if gdb:
        # One worker: a step in one block does not end in another. Nothing is timed.
        mode = Mode(order=order, workers=1, timeout=0)
    flags = [*(flag or []), *(FOR_GDB if gdb else ())]
    show(file, arguments, flags, mode, format, GDB if gdb else ())


@app.command()
def race(  # noqa: PLR0913, PLR0917  (each is an option)
    file: File,
    arguments: Arguments = None,
    order: Order = "forward",
    timeout: Timeout = None,
    flag: Flag = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Find accesses of two threads to the same memory that nothing orders.

    Both are shown with their lines and threads. Each access is looked at: small inputs only.
    """
    show(file, arguments, flag, Mode(check="race", order=order, timeout=timeout), format)


@app.command()
def memory(  # noqa: PLR0913, PLR0917  (each is an option)
    file: File,
    arguments: Arguments = None,
    workers: Workers = 0,
    timeout: Timeout = None,
    flag: Flag = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Find accesses out of bounds.

    Of global, shared and local memory; reads of shared memory that no thread has written; vectors
    at addresses they cannot be at. By AddressSanitizer.
    """
    show(file, arguments, flag, Mode(check="memory", workers=workers, timeout=timeout), format)


def show(  # noqa: PLR0913, PLR0917  (what `Start` takes)
    file: Path,
    arguments: Sequence[str] | None,
    flags: Sequence[str] | None,
    mode: Mode,
    format: Format,
    under: Sequence[str] = (),
) -> None:
    """Run a file and say what was found; its own output goes where it always does.

    As JSON what it writes is a part of the record.
    """
    from pullback.cuda import programs  # noqa: PLC0415  (--help does not wait for it)

    start = programs.Start(
        file=file, mode=mode, arguments=arguments or (), flags=flags or (), under=under
    )
    as_json = format == Format.JSON
    report = programs.start(start, announce=progress, capture=as_json)
    if as_json:
        answer(
            ok=report.ok,
            findings=[finding.to_dict() for finding in report.findings],
            launches=report.launches,
            returncode=report.returncode,
            output=report.output,
        )
    else:
        say(screen(), str(report))
    if not report.ok:
        raise typer.Exit(FINDINGS)
