"""`pullback new NAME`: a project with an operator, a kernel and a test that passes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pullback.cli.screen import Format, FormatOption, answer, say, screen

# A project like any other, but for its name, and for files that would act on this one.
PROJECT = Path(__file__).parent / "project"
NAME = "my_operators"
ELSEWHERE = {"gitignore": ".gitignore", "workflow.yml": ".github/workflows/test.yml"}


def new(
    name: Annotated[str, typer.Argument(help="The package, as Python imports it.")],
    into: Annotated[
        Path | None, typer.Option(help="The folder to write into, if not NAME.")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Write a project: operators, a kernel, a test that passes, a CI file, a README."""
    from pullback.deploy import definitions, staging  # noqa: PLC0415  (they import torch)

    definitions.require_name(name)
    if find_spec(name) is not None:
        raise definitions.name_taken(name, "an installed module has it")
    folder = into or Path(name)
    with staging.stage_folder(folder) as work:
        written = [write(path, work, name) for path in files()]
    shown = [str(path) for path in sorted(written)]
    if format == Format.JSON:
        answer(ok=True, folder=str(folder), files=shown)
        return
    console = screen()
    for path in shown:
        say(console, f"  {folder / path}")
    say(console, f'\nnow: cd {folder} && pip install -e ".[test]" && pytest')


def files() -> Iterator[Path]:
    """Yield the files of the project that is copied."""
    for path in sorted(PROJECT.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path


def write(path: Path, folder: Path, name: str) -> Path:
    """Write a file under the new name, and return where in the folder."""
    inside = path.relative_to(PROJECT).as_posix().replace(NAME, name)
    target = Path(ELSEWHERE.get(inside, inside))
    (folder / target).parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8").replace(NAME, name)
    (folder / target).write_text(text, encoding="utf-8")
    return target
