"""Compiles a file's kernels into the cache for `pullback build`; one failure stops no other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pullback.cli.screen import clock
from pullback.define.operator import Definition
from pullback.define.source import Source
from pullback.diagnostic import PullbackError
from pullback.kernels import cache, glue, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.plan import BuildPlan

if TYPE_CHECKING:
    from pullback.define.math.formula import Formula


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

    def to_dict(self) -> dict[str, object]:
        """Return it as a plain dict; errors come apart from it."""
        return {
            "operator": self.operator,
            "device": self.device,
            "compiler": self.compiler,
            "library": self.library and str(self.library),
            "note": self.note,
            "ok": self.error is None,
        }


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
                note = "skipped: no CUDA compiler can be used, see pullback doctor"
                return KernelRow(operator=name, device=device, note=note)
            return KernelRow(operator=name, device=device, error=error)


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
