"""What `op.derivative()` shows of a pointwise formula, as text and as LaTeX."""

from __future__ import annotations

from pullback.bind.formula.derivative import Derivative
from pullback.define.formula import build, derived, sympy
from pullback.define.formula.formula import Formula
from pullback.define.formula.functions import TABLE
from pullback.define.formula.node import Node, in_order
from pullback.define.index import notation


class FormulaDerivative(Derivative):
    """The derivative of a pointwise formula, simplified by SymPy."""

    @property
    def computed(self) -> str:
        """The gradients exactly as the kernel computes them."""
        return "" if self.backward is None else notation.text(self.backward.formula)

    @property
    def latex(self) -> str:
        """The gradients as LaTeX, simplified by SymPy, one `aligned` row each."""
        rows = [
            rf"{sympy.latex_name(name)} &= {_summed_latex(sympy.latex(node), over)}"
            for name, node, over in self._rows
        ]
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The gradients, simplified by SymPy."""
        return [
            (name, f"sum[{', '.join(over)}]({text})" if over else text)
            for name, node, over in self._rows
            for text in [sympy.text(node)]
        ]

    @property
    def _rows(self) -> list[tuple[str, Node, tuple[str, ...]]]:
        if self.backward is None:
            return []
        made = self.backward.formula
        names = [output.name for output in made.line.outputs]
        return list(zip(names, self._as_written(made.elements), made.sums, strict=True))

    def _as_written(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return expressions in which what has a form of its own is as people write it."""
        others: dict[Node, Node] = {}
        for node in in_order(self.formula.elements):
            function = TABLE.get(node.op)
            if function is not None and function.shown:
                computed, written = function.shown
                names = dict(zip(function.parameters, node.args, strict=True))
                shown = build.evaluated(written, {**names, "result": node})
                others[build.evaluated(computed, names)] = shown
        return derived.replaced(nodes, others)

    def _repr_latex_(self) -> str:
        """Show formulas in a notebook."""
        return f"$$\n{self.latex}\n$$"


def derivative(formula: Formula) -> FormulaDerivative:
    """Return what there is to show of a formula's derivative."""
    return FormulaDerivative(formula, derived.backward(formula))


def _summed_latex(text: str, over: tuple[str, ...]) -> str:
    if not over:
        return text
    indices = ", ".join(r"\ldots" if index == "..." else index for index in over)
    return rf"\sum_{{{indices}}} {text}"
