"""The command line: one command a file. PyTorch is imported by the commands that need it."""

from __future__ import annotations

import errno
import io
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pullback.cli import build, cache, check, cuda, doctor, explain, new, tour
from pullback.cli.screen import AS_JSON, answer, complain
from pullback.diagnostic import PullbackError, Rule

CANNOT_RUN = 2
FileUnusable = Rule("PB808", "file-unusable")


class Commands(TyperGroup):
    """The commands, with the exit codes and texts of errors that all of them share."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own context and result)
        """Run a command; a user's error is its text, ours is a traceback and a request."""
        try:
            return super().invoke(ctx)
        except PullbackError as error:
            found = error
        except Exception as error:
            if is_typers(error):
                raise
            found = of_file(error)
            if found is None:
                tell_fault()
        if found and ctx.meta.get(AS_JSON):
            answer(ok=False, errors=[found])
        elif found:
            complain(str(found))
        raise typer.Exit(CANNOT_RUN)


def tell_fault() -> None:
    """Say of the error that is handled that it is ours."""
    complain(traceback.format_exc())
    complain("This is a fault of pullback. Report it with the text above and the output of")
    complain("'pullback doctor', so that it can be fixed.")


def of_file(error: Exception) -> PullbackError | None:
    """Return the user's error where a file cannot be read or written; None for any other."""
    if not isinstance(error, OSError):
        return None
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    path = error.filename2 or error.filename
    if path is None and not is_full:
        return None
    return FileUnusable.error(
        f"{path}: {error.strerror}" if path else str(error.strerror),
        help="make room there, or name another path",
    )


def is_typers(error: Exception) -> bool:
    """Tell whether typer raised it to end the program: a usage error, an exit, an abort."""
    return any(base.__module__.startswith(("click.", "typer.")) for base in type(error).__mro__)


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(wanted: bool) -> None:
    """Print the versions and stop; PyTorch is asked for its own without importing it."""
    if wanted:
        typer.echo(f"pullback {version_of('pullback')}, torch {version_of('torch')}")
        raise typer.Exit


def version_of(package: str) -> str:
    """Return an installed package's version."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@app.callback()
def pullback(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Print the versions and stop."
        ),
    ] = False,
) -> None:
    """Write your own differentiable PyTorch operators: one line, one operator."""


for command in (tour.tour, new.new, build.build, check.check, explain.explain, doctor.doctor):
    app.command()(command)
app.add_typer(cuda.app, name="cuda")
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that has no ² or │ shows a question mark.
            stream.reconfigure(errors="replace")
    app(prog_name="pullback")
