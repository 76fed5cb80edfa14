"""`pullback build FILE`: the operators of a Python file, into the cache, a wheel or a project."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from pullback.cli.screen import clock, complain, say, screen, table
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.diagnostic import PullbackError
from pullback.kernels import cache, glue, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.plan import BuildPlan

if TYPE_CHECKING:
    from pullback.define.math.formula import Formula

FINDINGS, CANNOT_RUN = 1, 2


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One kernel: where it is, or why it is not."""

    operator: str
    device: str
    compiler: str = ""
    library: Path | None = None
    time: str = ""
    note: str = ""
    error: PullbackError | None = None


@dataclass
class CacheBuilder:
    """Compiles in place of `pb.operator`, so that one failure does not stop the rest."""

    architectures: Sequence[str | None]
    rows: list[KernelRow] = field(default_factory=list[KernelRow])

    def compile_kernels(self, definition: Definition) -> dict[glue.Device, int]:
        """Compile a definition's kernels, note each, and return those that can run here."""
        import torch  # noqa: PLC0415

        from pullback.bind import native  # noqa: PLC0415
        from pullback.bind.kinds import kind_of  # noqa: PLC0415

        name = definition.line.qualname
        if reason := kind_of(definition).uncompiled:
            self.rows.append(KernelRow(operator=name, device="any", note=reason))
        if definition.pointwise:
            self.rows.append(self.looped(definition.pointwise))
        addresses: dict[glue.Device, int] = {}
        for device, source in definition.sources.items():
            for architecture in self.architectures if device == "cuda" else [None]:
                row = self.built(definition, source, device, architecture)
                self.rows.append(row)
                if row.library and (device == "cpu" or torch.cuda.is_available()):
                    library = compilation.open_library(row.library)
                    entry = getattr(library, glue.symbol_of(definition.line, device))
                    addresses[device] = native.address_of(entry)
        return addresses

    def looped(self, formula: Formula) -> KernelRow:
        """Compile a formula's loop for float32; those for other dtypes are when they are called."""
        from pullback.bind.loops import compiled  # noqa: PLC0415
        from pullback.kernels.loops.pointwise import Loop  # noqa: PLC0415

        line = formula.line
        everything = (1 << len(line.outputs)) - 1, (1 << len(line.tensors)) - 1
        loop = Loop(formula=formula, dtype="float32", wanted=everything[0], present=everything[1])
        try:
            return self.compiled(line.qualname, "cpu float32", compiled.plan_of(loop))
        except PullbackError as error:
            return KernelRow(operator=line.qualname, device="cpu", error=error)

    def compiled(self, name: str, device: str, plan: BuildPlan) -> KernelRow:
        """Compile a plan, unless it is in the cache."""
        with clock() as took:
            library = cache.look_up(plan)
            time = "cached" if library else ""
            library = library or compilation.compile(plan)
        return KernelRow(
            operator=name,
            device=device,
            compiler=str(plan.compiler),
            library=library,
            time=time or str(took),
        )

    def built(
        self, definition: Definition, source: Source, device: glue.Device, asked: str | None
    ) -> KernelRow:
        """Compile one kernel."""
        from pullback.bind import gpu  # noqa: PLC0415

        name = definition.line.qualname
        architecture = asked or gpu.architecture(device)
        try:
            chosen = architecture if device == "cuda" else None
            plan = glue.plan_of(definition.line, source, device, chosen)
            return self.compiled(name, f"{device} {chosen}" if chosen else device, plan)
        except PullbackError as error:
            if device == "cuda" and error.finding.code == toolchain.CompilerMissing.code:
                note = "skipped: no CUDA compiler can be used, see pullback info"
                return KernelRow(operator=name, device=device, note=note)
            return KernelRow(operator=name, device=device, error=error)


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
) -> None:
    """Build the operators in a Python FILE: into the cache, a wheel, or a project.

    FILE is imported, not run as a program: code under `if __name__ == "__main__"` does not run.
    CUDA kernels are compiled if there is nvcc; a GPU is not needed. With --as jit, a kernel that
    fails is shown, and the others are still built.
    """
    from pullback.deploy import build as deploy  # noqa: PLC0415  (so that --help need not wait)
    from pullback.deploy import definitions, staging  # noqa: PLC0415

    definitions.require_existing(file)
    console = screen()
    if check and is_built(file):
        return print_audit(console, file)
    if as_ == "jit" and check:
        raise deploy.OptionUnused.error(
            "--check is for what leaves this machine, and --as jit fills its cache",
            help=f"pullback build {file} --as wheel --check",
        )
    if as_ == "jit" and not (into or name or version or for_ or sizes):
        return compile_into_cache(console, file, arch)
    with show_notices(console):
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
    say(console, f"built {staging.format_folder(path.absolute())}")
    if check:
        print_audit(console, path)


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


def print_audit(console: Console, path: Path) -> None:
    """Print what ties a build result to some systems."""
    from pullback.deploy import audit  # noqa: PLC0415

    report = audit.audit(path)
    shown = table("library", "PyTorch", "Python", "GPU", "system")
    for row in report.rows:
        shown.add_row(row.library, row.torch, row.python, row.gpu, row.system)
    console.print(shown)
    if report.summary:
        say(console, f"\n{report.summary}")
    for finding in report.findings:
        say(console, f"\n{finding}")
    if report.findings:
        raise typer.Exit(FINDINGS)


@contextmanager
def show_notices(console: Console) -> Generator[None]:
    """Print a build's notices."""
    from pullback.deploy.wheel import ShippingNotice  # noqa: PLC0415  (as above)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ShippingNotice)
        yield
    for each in said:
        if issubclass(each.category, ShippingNotice):
            say(console, f"note: {each.message}")


def compile_into_cache(console: Console, file: Path, arch: str | None) -> None:
    """Compile every kernel of a file, and show each."""
    from pullback.deploy import target  # noqa: PLC0415  (as above)
    from pullback.deploy.definitions import load, nothing_in  # noqa: PLC0415

    builder = CacheBuilder(target.machine_code(arch.split(",")) if arch else [None])
    stopped: PullbackError | None = None
    with build_through(builder):
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
    if not builder.rows:
        raise nothing_in(file)
    made = sum(1 for row in builder.rows if row.library)
    what = "kernel" if made + len(failed) == 1 else "kernels"
    say(console, f"\n{made} of {made + len(failed)} {what} built")
    if failed:
        raise typer.Exit(FINDINGS)


@contextmanager
def build_through(builder: CacheBuilder) -> Generator[None]:
    """Let `pb.operator` compile through the builder."""
    from pullback.bind import entry_points  # noqa: PLC0415

    own = entry_points.compile_kernels
    entry_points.compile_kernels = builder.compile_kernels
    try:
        yield
    finally:
        entry_points.compile_kernels = own


def show(console: Console, rows: list[KernelRow]) -> None:
    """Print what was built."""
    if not rows:
        return
    shown = table("operator", "device", "compiler", "time", "library", right=("time",))
    for row in rows:
        found = Text("FAIL", style="red bold") if row.error else Text(row.note)
        library = Text(str(row.library), style="dim", overflow="fold") if row.library else found
        shown.add_row(row.operator, row.device, row.compiler, row.time, library)
    console.print(shown)
