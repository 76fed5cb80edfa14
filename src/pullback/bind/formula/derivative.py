"""What `op.derivative()` shows of any formula: its line, its gradients, what is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.define.formula.draft import Derived, real_ones
from pullback.define.formula.formula import Formula


@dataclass(frozen=True)
class Derivative:
    """The derivative of a formula.

    Attributes:
        formula: what it is the derivative of.
        backward: the gradients as an operator; None if all are zero.
    """

    formula: Formula
    backward: Derived | None

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The inputs and outputs that are kept from forward to backward."""
        if self.backward is None:
            return ()
        line = self.formula.line
        tensors = {value.name for value in (*line.tensors, *line.outputs)}
        return tuple(name for name in self.backward.saved if name in tensors)

    @property
    def rows(self) -> Sequence[tuple[str, str]]:
        """What is computed: a name, and what it is."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the operator's line, its gradients and what is saved."""
        line, given = self.formula.line, self.backward.gives if self.backward else ()
        zero = [t.name for place, t in real_ones(line.tensors).items() if place not in given]
        rows = [*self.rows, *((f"grad_{name}", "0") for name in zero)]
        width = max((len(name) for name, _ in rows), default=0)
        shown = [f"    {name:<{width}} = {text}" for name, text in rows]
        saved = ", ".join(self.saved) or "nothing"
        return "\n".join([str(line), *shown, f"    saves {saved}"])

    __repr__ = __str__
