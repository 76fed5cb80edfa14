"""`pullback build FILE`: the operators of a Python file, into the cache, a wheel or a project."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from pullback.cli.cache_builder import CacheBuilder, KernelRow, build_through
from pullback.cli.screen import (
    Format,
    FormatOption,
    answer,
    clock,
    complain,
    mark,
    progress,
    say,
    screen,
    table,
)
from pullback.diagnostic import PullbackError

if TYPE_CHECKING:
    from pullback.cli.screen import Clock
    from pullback.deploy.audit import Audit

FINDINGS, CANNOT_RUN = 1, 2


def build(  # noqa: PLR0913  (a command's options)
    file: Annotated[
        Path,
        typer.Argument(help="A Python file or package that defines operators; or a build result."),
    ],
    *,
    as_: Annotated[
        str, typer.Option("--as", help="What to build: jit, wheel, setup or cmake.")
    ] = "jit",
    into: Annotated[
        Path | None, typer.Option(help="The folder to write into, if not dist or NAME-setup.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The package, if not named as FILE.")] = None,
    version: Annotated[str | None, typer.Option(help="Of the package.")] = None,
    arch: Annotated[str | None, typer.Option(help="GPUs to compile CUDA for: sm_80,sm_90.")] = None,
    for_: Annotated[
        list[str] | None,
        typer.Option("--for", help="A Python with another PyTorch, to build the runtime for."),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(help="Small sizes to make index loops for, besides any: d=3 or k=7,q=7."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say on which systems the result will load.")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Build the operators in a Python FILE: into the cache, a wheel, or a project.

    FILE is imported, not run as a program: code under `if __name__ == "__main__"` does not run.
    CUDA kernels are compiled if there is nvcc; a GPU is not needed. With --as jit, a kernel that
    fails is shown, and the others are still built.
    """
    from pullback.deploy import audit, definitions, staging  # noqa: PLC0415
    from pullback.deploy import build as deploy  # noqa: PLC0415  (so that --help need not wait)

    definitions.require_existing(file)
    as_json = format == Format.JSON
    if check and is_built(file):
        report = audit.audit(file)
        if as_json:
            answer(**audit_record(report))
        else:
            print_audit(screen(), report)
        return end_audit(report)
    if as_ == "jit" and check:
        raise deploy.OptionUnused.error(
            "--check is for what leaves this machine, and --as jit fills its cache",
            help=f"pullback build {file} --as wheel --check",
        )
    if as_ == "jit" and not (into or name or version or for_ or sizes):
        return compile_into_cache(file, arch, as_json=as_json)
    with collect_notices() as notices, progress(f"building {file}"), clock() as took:
        path = deploy.build(
            file,
            as_=as_,
            into=into,
            name=name,
            version=version,
            arch=arch,
            pythons=for_ or (),
            sizes=[read_sizes(text) for text in sizes or ()],
        )
    report = audit.audit(path) if check else None
    if as_json:
        found: dict[str, Any] = audit_record(report) if report else {"ok": True}
        answer(**found, built=path.absolute(), seconds=took.seconds, notices=notices)
    else:
        console = screen()
        for notice in notices:
            say(console, f"note: {notice}")
        say(console, f"built {staging.format_folder(path.absolute())}{took.remark}")
        if report:
            print_audit(console, report)
    if report:
        end_audit(report)


def read_sizes(text: str) -> dict[str, int]:
    """Return the sizes in a text such as "k=7,q=7"."""
    pairs = (word.partition("=") for word in text.split(","))
    try:
        return {name.strip(): int(number) for name, _, number in pairs}
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not like d=3 or k=7,q=7") from None


def is_built(path: Path) -> bool:
    """Tell whether a path is a build result, and not a source to build."""
    return path.suffix in (".whl", ".so") or (path.is_dir() and not (path / "__init__.py").exists())


def print_audit(console: Console, report: Audit) -> None:
    """Print what ties a build result to some systems."""
    shown = table("library", "PyTorch", "Python", "GPU", "system")
    for row in report.rows:
        shown.add_row(row.library, row.torch, row.python, row.gpu, row.system)
    console.print(shown)
    if report.summary:
        say(console, f"\n{report.summary}")
    for finding in report.findings:
        say(console, f"\n{finding}")


def audit_record(report: Audit) -> dict[str, Any]:
    """Return what ties a build result to some systems, as JSON has it."""
    return {
        "ok": not report.findings,
        "libraries": [asdict(row) for row in report.rows],
        "summary": report.summary,
        "findings": [finding.to_dict() for finding in report.findings],
    }


def end_audit(report: Audit) -> None:
    """End with the exit code of what was found."""
    if report.findings:
        raise typer.Exit(FINDINGS)


@contextmanager
def collect_notices() -> Generator[list[str]]:
    """Collect a build's notices."""
    from pullback.deploy.wheel import ShippingNotice  # noqa: PLC0415  (as above)

    notices: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ShippingNotice)
        yield notices
    notices += [str(each.message) for each in said if issubclass(each.category, ShippingNotice)]


def compile_into_cache(file: Path, arch: str | None, *, as_json: bool) -> None:
    """Compile every kernel of a file, and show each."""
    from pullback.deploy import target  # noqa: PLC0415  (as above)
    from pullback.deploy.definitions import load, nothing_in  # noqa: PLC0415

    builder = CacheBuilder(target.machine_code(arch.split(",")) if arch else [None])
    stopped: PullbackError | None = None
    with build_through(builder), progress(f"building {file}"), clock() as took:
        try:
            load(file)
        except PullbackError as error:
            stopped = error
    failed = [row.error for row in builder.rows if row.error]
    if not builder.rows and not stopped:
        raise nothing_in(file)
    if as_json:
        kernels = [row.to_dict() for row in builder.rows]
        errors = [*failed, *([stopped] if stopped else [])]
        answer(ok=not errors, errors=errors, kernels=kernels, seconds=took.seconds)
    else:
        show(screen(), builder.rows, took, stopped)
    if stopped:
        raise typer.Exit(CANNOT_RUN)
    if failed:
        raise typer.Exit(FINDINGS)


def show(
    console: Console, rows: list[KernelRow], took: Clock, stopped: PullbackError | None
) -> None:
    """Print what was built, then what failed."""
    if rows:
        shown = table("operator", "device", "compiler", "time", "library", right=("time",))
        for row in rows:
            found = mark("FAIL") if row.error else Text(row.note)
            library = Text(str(row.library), style="dim", overflow="fold") if row.library else found
            shown.add_row(row.operator, row.device, row.compiler, row.time, library)
        console.print(shown)
    failed = [row for row in rows if row.error]
    for row in failed:
        say(console, f"\n{row.error}")
    if stopped:
        complain(f"\n{stopped}")
        return
    made = sum(1 for row in rows if row.library)
    what = "kernel" if made + len(failed) == 1 else "kernels"
    say(console, f"\n{made} of {made + len(failed)} {what} built{took.remark}")
