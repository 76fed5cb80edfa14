"""What a notebook shows of an operator, of its plan and of its sharding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from pullback import page
from pullback.define.math import latex

if TYPE_CHECKING:
    from pullback.bind.kinds.kind import Kind
    from pullback.bind.math.plan import Step

UNITS = ("", "k", "M", "G", "T")


def describe(kind: Kind) -> list[tuple[str, str]]:
    """Return what there is to say of an operator beside its line: a word, and a text."""
    line = kind.definition.line
    return [
        ("Kernels", ", ".join(kind.described())),
        ("Derivative", "yes" if kind.has_derivative else "none"),
        ("Registered as", f"torch.ops.{line.namespace}.{line.name}"),
    ]


def formula_latex(kind: Kind) -> str | None:
    """Return the formula of an operator as its author wrote it, as LaTeX; None without one."""
    formula = kind.definition.formula
    text = kind.definition.line.formula
    if formula is None or text is None:
        return None
    output = kind.definition.line.outputs[0]
    labels = () if formula.pointwise else output.labels
    return latex.align(latex.rows_of(text, output.name, labels))


def show_operator(kind: Kind) -> str:
    """Return an operator as HTML: its line, its formula, and what is said about it."""
    line = Markup("<p><code>{}</code></p>").format(str(kind.definition.line))
    shown = formula_latex(kind)
    formula = Markup("<p>$${}$$</p>").format(shown) if shown else Markup()
    rows = (Markup("<tr><th>{}</th><td>{}</td></tr>").format(*row) for row in describe(kind))
    return page.fragment(line + formula + Markup("<table>{}</table>").format(Markup().join(rows)))


def show_text(text: str) -> str:
    """Return a text whose columns are aligned as HTML."""
    return page.fragment(Markup('<div class="wide"><pre>{}</pre></div>').format(text))


def show_steps(steps: Sequence[Step]) -> str:
    """Return the steps of a plan as HTML: bars for operations and for bytes."""
    most = max((s.flops for s in steps), default=0), max((s.bytes for s in steps), default=0)
    words = ("computed", "by", "why", "operations", "bytes")
    head = Markup().join(
        Markup("<th{}>{}</th>").format(Markup(" colspan=2") if word in words[3:] else "", word)
        for word in words
    )
    rows: list[Markup] = []
    for operator in dict.fromkeys(step.operator for step in steps):
        rows.append(Markup("<tr><th colspan=7>{}</th></tr>").format(operator))
        rows += [_row(step, most) for step in steps if step.operator == operator]
    body = Markup('<div class="wide"><table class="bars"><tr>{}</tr>{}</table></div>')
    return page.fragment(body.format(head, Markup().join(rows)))


def _row(step: Step, most: tuple[float, float]) -> Markup:
    """Return a step's row."""
    cells = [Markup("<td>{}</td>").format(escape(text)) for text in _texts(step)]
    for value, largest, style in ((step.flops, most[0], ""), (step.bytes, most[1], " two")):
        width = 100 * value / largest if largest else 0
        cells += [
            Markup('<td class="number">{}</td>').format(format_amount(value)),
            Markup(
                '<td class="drawn"><span class="bar{}" style="width: {:.1f}%"></span></td>'
            ).format(style, width),
        ]
    return Markup("<tr>{}</tr>").format(Markup().join(cells))


def _texts(step: Step) -> Iterable[str]:
    return ", ".join(step.outputs), step.way, step.reason


def format_amount(value: float) -> str:
    """Return a number as people read it: "1.3 M"."""
    for unit in UNITS[:-1]:
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} {UNITS[-1]}"
