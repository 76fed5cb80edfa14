"""Hands a formula's definition to the runtime, which asks for its derivatives and loops later."""

from __future__ import annotations

from dataclasses import replace

from pullback.bind import native, runtime
from pullback.bind.dense import arrange
from pullback.bind.kinds.kind import Kind
from pullback.bind.loops import compiled
from pullback.bind.math import derive
from pullback.bind.math.derive import KindOf
from pullback.bind.native import NativeFormula, NativeKeeping, NativeRows, Supply
from pullback.bind.program import Program
from pullback.define.math.formula import Formula
from pullback.kernels.glue import Device


class Lazy:
    """One formula operator, whose derivatives are made when they are asked for.

    Attributes:
        kind: the operator.
        programs: the derivatives known so far, by their kind.
        native: its loops, where the runtime calls them.
        keepings: how its calls keep what their gradients read, once one does.
        rows: which calls keep statistics of rows.
        supply: what the runtime asks for.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.programs: dict[str, Program] = {}
        self.native: NativeFormula | None = None
        self.keepings: list[NativeKeeping | None] = []
        self.rows: NativeRows | None = None
        self.supply = Supply(complete=self.complete)

    def begin(self) -> None:
        """Hand the definition to the runtime.

        The gradients of an author's operator are registered at once and not when first needed: a
        compiled graph that is loaded from PyTorch's cache calls them by name.
        """
        self.install()
        if not self.kind.definition.line.name.startswith("_"):
            self.complete("backward")

    def complete(self, kind: KindOf) -> None:
        """Derive a derivative and hand it to the runtime, which calls this when it needs one."""
        with derive.lock:
            if kind not in self.programs:
                self.programs[kind] = derive.register_derivative(self.kind, kind)
                self.install()

    def reload(self) -> None:
        """Hand it to the runtime as another operator, whose loops are not known yet."""
        # Another object than before, by which the runtime would know it.
        self.supply = replace(self.supply, complete=self.complete)
        self.install()

    def install(self) -> None:
        """Hand the definition to the runtime, with the derivatives known so far."""
        runtime.load().define(
            native.definition_fields(
                self.kind.definition,
                self.programs.get("backward"),
                self.programs.get("jvp"),
                {},
                formula=self.native,
                supply=self.supply,
                keepings=self.keepings,
                rows=self.rows,
                shortcuts=self.kind.known_calls,
            )
        )


class LazyFormula(Lazy):
    """One formula operator: its loops too are made when they are asked for."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        definition = kind.definition
        assert definition.formula
        self.formula: Formula = definition.formula
        self.native = NativeFormula(
            space=self.formula.space,
            alignments=tuple(
                arrange.alignment(tensor, self.formula.space)
                for tensor in self.formula.line.tensors
            ),
            finishes=arrange.finishes(self.formula),
            devices=compiled.devices(definition.line),
        )
        self.supply = Supply(complete=self.complete, request=self.request)

    def request(self, device: Device, dtype: str, wanted: int, present: int) -> tuple[int, int]:
        """Return a compiled loop; the runtime calls it."""
        return compiled.request(self.formula, device, dtype, wanted, present)
