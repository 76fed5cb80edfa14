"""What `op.derivative()` shows of an operator in index notation: the gradients, what is saved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pullback.define.formula import derived
from pullback.define.formula.derived import Derived
from pullback.define.index import derived as indexed_derived
from pullback.define.index import notation
from pullback.define.index.indexed import Indexed


@dataclass(frozen=True)
class IndexedDerivative:
    """The derivative of a formula in index notation.

    Attributes:
        formula: what it is the derivative of.
        backward: the gradients as an operator; None if all are zero.
    """

    formula: Indexed
    backward: Derived[Indexed] | None

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The inputs and outputs that are kept from forward to backward."""
        if self.backward is None:
            return ()
        line = self.formula.line
        tensors = {value.name for value in (*line.tensors, *line.outputs)}
        return tuple(name for name in self.backward.saved if name in tensors)

    @property
    def computed(self) -> str:
        """The gradients as they are computed, in the language of the line."""
        return "" if self.backward is None else notation.text(self.backward.formula)

    def __str__(self) -> str:
        """Return the operator's line, its gradients and what is saved."""
        rows = [tuple(row.split(" = ", 1)) for row in self._statements]
        given = set(self.backward.gives if self.backward else ())
        rows += [
            (f"grad_{tensor.name}", "0")
            for place, tensor in enumerate(self.formula.line.tensors)
            if derived.is_real(tensor) and place not in given
        ]
        width = max((len(name) for name, _ in rows), default=0)
        shown = [f"    {name:<{width}} = {text}" for name, text in rows]
        saved = ", ".join(self.saved) or "nothing"
        return "\n".join([str(self.formula.line), *shown, f"    saves {saved}"])

    __repr__ = __str__

    @property
    def _statements(self) -> list[str]:
        if self.backward is None:
            return []
        outputs = self.backward.formula.line.outputs
        statements = self.computed.split("; ")
        if len(statements) == 1:
            return [f"{outputs[0].name} = {statements[0]}"]
        return statements


def derivative(indexed: Indexed) -> IndexedDerivative:
    """Return what there is to show of a derivative."""
    return IndexedDerivative(indexed, indexed_derived.backward(indexed))
