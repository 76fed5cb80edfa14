"""`pullback build FILE`: compile every kernel of the operators that a Python file defines."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from pullback.cli.screen import clock, complain, say, screen, table
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.diagnostic import PullbackError, Rule
from pullback.kernels import cache, glue, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.plan import Plan

if TYPE_CHECKING:
    from pullback.define.formula.formula import Formula

FileMissing = Rule("PB801", "file-missing")
FileStopped = Rule("PB802", "file-stopped")

FINDINGS, CANNOT_RUN = 1, 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kernel: where it is, or why it is not."""

    operator: str
    device: str
    compiler: str = ""
    library: Path | None = None
    time: str = ""
    note: str = ""
    error: PullbackError | None = None


@dataclass
class Builder:
    """Compiles in place of `pb.operator`'s own way, so that one failure does not stop the rest."""

    architecture: str | None
    rows: list[Row] = field(default_factory=list[Row])

    def compile_kernels(self, definition: Definition) -> dict[glue.Device, int]:
        """Compile a definition's kernels, note each, and return those that can run here."""
        import torch  # noqa: PLC0415

        from pullback.bind import native  # noqa: PLC0415

        name = definition.line.qualname
        if definition.python:
            note = "in Python: nothing to compile"
            self.rows.append(Row(operator=name, device="any", note=note))
        if definition.formula:
            self.rows.append(self.looped(definition.formula))
        addresses: dict[glue.Device, int] = {}
        sources: dict[glue.Device, Source | None] = {
            "cpu": definition.cpu,
            "cuda": definition.cuda,
        }
        for device, source in sources.items():
            if source is None:
                continue
            row = self.built(definition, source, device)
            self.rows.append(row)
            if row.library and (device == "cpu" or torch.cuda.is_available()):
                library = compilation.open_library(row.library)
                entry = getattr(library, glue.symbol_of(definition.line, device))
                addresses[device] = native.address_of(entry)
        return addresses

    def looped(self, formula: Formula) -> Row:
        """Compile a formula's loop for float32; those for other dtypes are when they are called."""
        from pullback.bind.formula import loops  # noqa: PLC0415
        from pullback.kernels.codegen import Loop  # noqa: PLC0415

        line = formula.line
        everything = (1 << len(line.outputs)) - 1, (1 << len(line.tensors)) - 1
        loop = Loop(formula=formula, dtype="float32", wanted=everything[0], present=everything[1])
        try:
            return self.compiled(line.qualname, "cpu float32", loops.plan_of(loop))
        except PullbackError as error:
            return Row(operator=line.qualname, device="cpu", error=error)

    def compiled(self, name: str, device: str, plan: Plan) -> Row:
        """Compile a plan, unless it is in the cache."""
        with clock() as took:
            library = cache.lookup(plan)
            time = "cached" if library else ""
            library = library or compilation.compile(plan)
        return Row(
            operator=name,
            device=device,
            compiler=str(plan.compiler),
            library=library,
            time=time or str(took),
        )

    def built(self, definition: Definition, source: Source, device: glue.Device) -> Row:
        """Compile one kernel."""
        from pullback.bind import register  # noqa: PLC0415

        name = definition.line.qualname
        architecture = self.architecture or register.architecture(device)
        try:
            chosen = architecture if device == "cuda" else None
            plan = glue.plan_of(definition.line, source, device, chosen)
            return self.compiled(name, f"{device} {chosen}" if chosen else device, plan)
        except PullbackError as error:
            if device == "cuda" and error.finding.code == toolchain.CompilerMissing.code:
                note = "skipped: no CUDA compiler can be used, see pullback info"
                return Row(operator=name, device=device, note=note)
            return Row(operator=name, device=device, error=error)


def build(
    file: Annotated[Path, typer.Argument(help="A Python file that defines operators.")],
    arch: Annotated[
        str | None, typer.Option(help="The GPU to compile CUDA for: sm_90. Default: this one's.")
    ] = None,
) -> None:
    """Compile every kernel of the operators in a Python FILE.

    FILE is imported, not run as a program: what stands under `if __name__ == "__main__"` is left
    out. CUDA kernels are compiled where there is nvcc, a GPU is not needed. A kernel that fails is
    shown, and the others are still built.
    """
    if not file.is_file():
        raise FileMissing.error(f"there is no file {file}", looked=file.absolute())
    console = screen()
    builder = Builder(arch)
    stopped: PullbackError | None = None
    with building(builder):
        try:
            load(file)
        except PullbackError as error:
            stopped = error
    show(console, builder.rows)
    failed = [row for row in builder.rows if row.error]
    for row in failed:
        say(console, f"\n{row.error}")
    if stopped:
        complain(f"\n{stopped}")
        raise typer.Exit(CANNOT_RUN)
    made = sum(1 for row in builder.rows if row.library)
    what = "kernel" if made + len(failed) == 1 else "kernels"
    say(console, f"\n{made} of {made + len(failed)} {what} built")
    if failed:
        raise typer.Exit(FINDINGS)


@contextmanager
def building(builder: Builder) -> Generator[None]:
    """Let `pb.operator` compile through the builder."""
    from pullback.bind import register  # noqa: PLC0415

    own = register.compile_kernels
    register.compile_kernels = builder.compile_kernels
    try:
        yield
    finally:
        register.compile_kernels = own


def load(file: Path, prefix: str = "pullback_build") -> ModuleType:
    """Import a file by its path, with its folder first on the path as Python itself does.

    Args:
        file: ends in .py.
        prefix: of the module's name.

    Raises:
        PullbackError: PB802, it raised; pullback's own errors come as they are.
    """
    path = file.resolve()
    # Its own name might be that of a module that is in use: json.py.
    name = f"{prefix}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileMissing.error(f"{file} is not a Python file", help="its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except PullbackError:
        raise
    except (Exception, SystemExit) as error:
        raise FileStopped.error(
            f"{file} stopped with {type(error).__name__}: {error}",
            at=line_of(error, path),
            help="operators that it defines later were not seen",
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def line_of(error: BaseException, path: Path) -> str | None:
    """Return the last line of the file that the error came through."""
    place, frame = None, error.__traceback__
    while frame:
        if frame.tb_frame.f_code.co_filename == str(path):
            place = f"{path.name}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


def show(console: Console, rows: list[Row]) -> None:
    """Print what was built."""
    if not rows:
        return
    shown = table("operator", "device", "compiler", "time", "library", right=("time",))
    for row in rows:
        found = Text("FAIL", style="red bold") if row.error else Text(row.note)
        library = Text(str(row.library), style="dim", overflow="fold") if row.library else found
        shown.add_row(row.operator, row.device, row.compiler, row.time, library)
    console.print(shown)
