"""What `op.derivative()` shows of a formula: its line, its gradients, what is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.define.math import build, derived, latex, notation, sympy
from pullback.define.math.draft import Derived, real_tensors
from pullback.define.math.formula import Formula
from pullback.define.math.functions import TABLE
from pullback.define.math.node import Node, in_order


@dataclass(frozen=True)
class Derivative:
    """The derivative of a formula; SymPy simplifies a pointwise one.

    Attributes:
        formula: what it is the derivative of.
        backward: the gradients as an operator; None if all are zero.
    """

    formula: Formula
    backward: Derived | None

    @property
    def computed(self) -> str:
        """The gradients exactly as they are computed, in the language of the line."""
        return "" if self.backward is None else notation.format_formula(self.backward.formula)

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
        """The gradients: a name, and what it is; of index notation also what they share."""
        if self.formula.pointwise:
            return [(name, _summed(sympy.to_text(node), over)) for name, node, over in self._simple]
        if self.backward is None:
            return []
        statements = self.computed.split("; ")
        if len(statements) == 1:
            return [(self.backward.formula.line.outputs[0].name, statements[0])]
        return [(name, text) for row in statements for name, _, text in [row.partition(" = ")]]

    @property
    def latex(self) -> str:
        """The gradients as LaTeX, one `aligned` row each, and what they share; "" without any."""
        if self.backward is None:
            return ""
        if not self.formula.pointwise:
            output = self.backward.formula.line.outputs[0]
            return latex.align(latex.rows_of(self.computed, output.name, output.labels))
        return latex.align(
            [
                rf"{sympy.latex_name(name)} &= {_sum_latex(sympy.to_latex(node), over)}"
                for name, node, over in self._simple
            ]
        )

    @property
    def _simple(self) -> list[tuple[str, Node, tuple[str, ...]]]:
        """The gradients of a pointwise formula: a name, an element, and what it is summed over."""
        if self.backward is None:
            return []
        made = self.backward.formula
        names = [output.name for output in made.line.outputs]
        return list(zip(names, self._as_written(made.elements), made.sums, strict=True))

    def _as_written(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return expressions in which derivatives of functions are as people write them."""
        others: dict[Node, Node] = {}
        for node in in_order(self.formula.elements):
            function = TABLE.get(node.op)
            if function is not None and function.shown:
                computed, written = function.shown
                names = dict(zip(function.parameters, node.args, strict=True))
                shown = build.evaluate(written, {**names, "result": node})
                others[build.evaluate(computed, names)] = shown
        return derived.replace_nodes(nodes, others)

    def __str__(self) -> str:
        """Return the operator's line, its gradients and what is saved."""
        line, given = self.formula.line, self.backward.gives if self.backward else ()
        zero = [t.name for place, t in real_tensors(line.tensors).items() if place not in given]
        rows = [*self.rows, *((f"grad_{name}", "0") for name in zero)]
        width = max((len(name) for name, _ in rows), default=0)
        shown = [f"    {name:<{width}} = {text}" for name, text in rows]
        saved = ", ".join(self.saved) or "nothing"
        return "\n".join([str(line), *shown, f"    saves {saved}"])

    __repr__ = __str__

    def _repr_latex_(self) -> str | None:
        """Show the gradients in a notebook."""
        return f"$$\n{self.latex}\n$$" if self.latex else None


def show_derivative(formula: Formula) -> Derivative:
    """Return a formula's derivative, for showing."""
    return Derivative(formula, derived.backward(formula))


def _summed(text: str, over: tuple[str, ...]) -> str:
    return f"sum[{', '.join(over)}]({text})" if over else text


def _sum_latex(text: str, over: tuple[str, ...]) -> str:
    if not over:
        return text
    indices = ", ".join(r"\ldots" if index == "..." else index for index in over)
    return rf"\sum_{{{indices}}} {text}"
