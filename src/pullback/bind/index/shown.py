"""What `op.derivative()` shows of an operator in index notation."""

from __future__ import annotations

from pullback.bind.formula.derivative import Derivative
from pullback.define.formula import derived
from pullback.define.formula.formula import Formula
from pullback.define.index import notation


class IndexedDerivative(Derivative):
    """The derivative of a formula in index notation."""

    @property
    def computed(self) -> str:
        """The gradients as they are computed, in the language of the line."""
        return "" if self.backward is None else notation.text(self.backward.formula)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The gradients, and what they share."""
        if self.backward is None:
            return []
        statements = self.computed.split("; ")
        if len(statements) == 1:
            return [(self.backward.formula.line.outputs[0].name, statements[0])]
        return [(name, text) for row in statements for name, _, text in [row.partition(" = ")]]


def derivative(indexed: Formula) -> IndexedDerivative:
    """Return what there is to show of a derivative."""
    return IndexedDerivative(indexed, derived.backward(indexed))
