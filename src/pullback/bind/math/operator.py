"""A pointwise formula's definition -> what the runtime needs of it."""

from __future__ import annotations

from pullback.bind.dense import arrange
from pullback.bind.kinds.kind import Kind
from pullback.bind.loops import compiled
from pullback.bind.math.lazy import Lazy
from pullback.bind.native import NativeFormula, Supply
from pullback.define.math.formula import Formula
from pullback.kernels.glue import Device


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
