"""A formula's definition -> what the runtime needs of it."""

from __future__ import annotations

from pullback.bind import native, runtime
from pullback.bind.formula import arrange, derive, loops
from pullback.bind.formula.derive import KindOf
from pullback.bind.native import NativeFormula, Supply
from pullback.bind.program import Program
from pullback.define.formula.formula import Formula
from pullback.define.operator import Definition
from pullback.kernels.glue import Device


class LazyFormula:
    """One formula operator: its loops and its derivatives, made when they are asked for."""

    def __init__(self, definition: Definition) -> None:
        assert definition.formula
        self.definition = definition
        self.formula: Formula = definition.formula
        self.programs: dict[str, Program] = {}
        self.native = NativeFormula(
            space=self.formula.space,
            alignments=tuple(
                arrange.alignment(tensor, self.formula.space)
                for tensor in self.formula.line.tensors
            ),
            sums=arrange.sums(self.formula),
            devices=loops.devices(definition.line),
        )
        self.supply = Supply(complete=self.complete, request=self.request)

    def begin(self) -> None:
        """Hand the definition to the runtime.

        The gradients of an author's formula are registered at once and not when first needed: a
        compiled graph that is loaded from PyTorch's cache calls them by name.
        """
        self.install()
        if not self.definition.line.name.startswith("_"):
            self.complete("backward")

    def request(self, device: Device, dtype: int, wanted: int, present: int) -> tuple[int, int]:
        """Return a compiled loop; the runtime calls it."""
        return loops.request(self.formula, device, dtype, wanted, present)

    def complete(self, kind: KindOf) -> None:
        """Derive a derivative and hand it to the runtime, which calls this when it needs one."""
        with derive.lock:
            if kind not in self.programs:
                self.programs[kind] = derive.derivative(self.definition, kind)
                self.install()

    def install(self) -> None:
        """Hand the definition to the runtime, with the derivatives known so far."""
        runtime.load().define(
            native.definition_fields(
                self.definition,
                self.programs.get("backward"),
                self.programs.get("jvp"),
                {},
                formula=self.native,
                supply=self.supply,
            )
        )
