"""What `op.derivative()` shows: the formulas, as text and as LaTeX, and what is saved for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pullback.define.formula import build, derived, sympy
from pullback.define.formula.derived import Derived
from pullback.define.formula.formula import Formula
from pullback.define.formula.functions import TABLE
from pullback.define.formula.node import Node, in_order


@dataclass(frozen=True)
class Derivative:
    """The derivative of a formula.

    Attributes:
        formula: what it is the derivative of.
        backward: the gradients as an operator; None if all are zero.
    """

    formula: Formula
    backward: Derived[Formula] | None

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
        """The gradients exactly as the kernel computes them."""
        return "" if self.backward is None else self.backward.formula.text

    @property
    def latex(self) -> str:
        """The gradients as LaTeX, simplified by SymPy, one `aligned` row each."""
        rows = [
            rf"{sympy.latex_name(name)} &= {_summed_latex(sympy.latex(node), over)}"
            for name, node, over in self._rows
        ]
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    @property
    def _rows(self) -> list[tuple[str, Node, tuple[str, ...]]]:
        if self.backward is None:
            return []
        made = self.backward.formula
        names = [output.name for output in made.line.outputs]
        return list(zip(names, self._as_written(made.nodes), made.sums, strict=True))

    def _as_written(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return expressions in which what has a form of its own is as people write it."""
        others: dict[Node, Node] = {}
        for node in in_order(self.formula.nodes):
            function = TABLE.get(node.op)
            if function is not None and function.shown:
                computed, written = function.shown
                names = dict(zip(function.parameters, node.args, strict=True))
                shown = build.evaluated(written, {**names, "result": node})
                others[build.evaluated(computed, names)] = shown
        return derived.replaced(nodes, others)

    def __str__(self) -> str:
        """Return the operator's line, its gradients simplified by SymPy, and what is saved."""
        rows = [
            (name, f"sum[{', '.join(over)}]({text})" if over else text)
            for name, node, over in self._rows
            for text in [sympy.text(node)]
        ]
        line = self.formula.line
        zero = [
            f"grad_{tensor.name}"
            for place, tensor in enumerate(line.tensors)
            if derived.is_real(tensor) and not (self.backward and place in self.backward.gives)
        ]
        rows += [(name, "0") for name in zero]
        width = max((len(name) for name, _ in rows), default=0)
        saved = ", ".join(self.saved) or "nothing"
        return "\n".join(
            [
                str(line),
                *(f"    {name:<{width}} = {text}" for name, text in rows),
                f"    saves {saved}",
            ]
        )

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        """Show formulas in a notebook."""
        return f"$$\n{self.latex}\n$$"


def derivative(formula: Formula) -> Derivative:
    """Return what there is to show of a formula's derivative."""
    return Derivative(formula, derived.backward(formula))


def _summed_latex(text: str, over: tuple[str, ...]) -> str:
    if not over:
        return text
    indices = ", ".join(r"\ldots" if index == "..." else index for index in over)
    return rf"\sum_{{{indices}}} {text}"
