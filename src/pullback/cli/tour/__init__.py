"""`pullback tour`: from one line to a trained model, in a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pullback.cli.screen import complain, screen
from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain

STILL_WORKS = """
What works without a C++ compiler: operators in Python, pb.operator(..., python=function), with the
same checks and derivatives; pb.graph; pullback doctor, which says what it looked for."""


def tour(
    folder: Annotated[
        Path | None, typer.Option(help="Where to write its files. Default: a temporary folder.")
    ] = None,
) -> None:
    """Define, compile, verify, train with and time an operator, in a minute."""
    try:
        toolchain.find("c++")
    except PullbackError as error:
        complain(f"{error}\n{STILL_WORKS}")
        raise typer.Exit(2) from None
    from pullback.cli.tour import chapters  # noqa: PLC0415  (it imports torch)

    where = folder or Path(tempfile.mkdtemp(prefix="pullback-tour-"))
    failed = chapters.tell(screen(), where)
    if failed:
        raise typer.Exit(1)
