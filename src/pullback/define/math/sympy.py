"""Nodes -> SymPy, for what people read: simplified text and LaTeX."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from pullback.define.math import show
from pullback.define.math.node import NUMBER, READ, SCALAR, Node, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

# An expression with more operations is shown as it is: simplifying it would take seconds.
MOST_SIMPLIFIED = 60
SAME = (
    *("exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "atan2", "erf", "erfc", "erfinv", "digamma", "polygamma"),
    *("sqrt", "floor", "sign"),
)
DIFFERENT = {
    "abs": "Abs",
    "ceil": "ceiling",
    "maximum": "Max",
    "minimum": "Min",
    "lgamma": "loggamma",
}
RELATIONS = {"lt": "Lt", "le": "Le", "gt": "Gt", "ge": "Ge", "eq": "Eq", "ne": "Ne"}
LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_not": "Not", "logical_xor": "Xor"}


def to_sympy(root: Node) -> Any:  # noqa: ANN401  (SymPy has no types)
    """Return a node as a SymPy expression.

    What means something else to SymPy becomes a symbol, with the text of the language as its name:
    there log(0) is an infinity without a sign, sqrt(-1) is not NaN, and isnan(x) not a condition.
    """
    import sympy  # noqa: PLC0415  (half a second, and only where something is shown)

    forms: dict[Node, Any] = {}
    for node in in_order([root]):
        found = _one(node, [forms[arg] for arg in node.args])
        foreign = found.has(sympy.zoo, sympy.I)
        foreign = foreign or (node.type == "bool" and not _is_condition(found))
        forms[node] = sympy.Symbol(show.format_node(node), real=True) if foreign else found
    return forms[root]


def _is_condition(form: Any) -> bool:  # noqa: ANN401
    from sympy.logic.boolalg import Boolean  # noqa: PLC0415

    return isinstance(form, Boolean)


def _one(node: Node, args: list[Any]) -> Any:  # noqa: ANN401
    import sympy  # noqa: PLC0415

    if node.op == NUMBER:
        return _number(node)
    if node.op in (READ, SCALAR):
        return sympy.Symbol(node.name, real=True)
    if node.op == "powi":
        return args[0] ** node.data
    if node.op in _arithmetic():
        return _arithmetic()[node.op](*args)
    if node.op in RELATIONS and sympy.nan in args:
        return sympy.true if node.op == "ne" else sympy.false
    name = node.op if node.op in SAME else None
    name = name or DIFFERENT.get(node.op) or RELATIONS.get(node.op) or LOGIC.get(node.op)
    return getattr(sympy, name)(*args) if name else sympy.Function(node.op)(*args)


@functools.cache
def _arithmetic() -> dict[str, Callable[..., Any]]:
    """Return the functions that SymPy expresses by its operators."""
    import sympy  # noqa: PLC0415

    return {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "neg": lambda x: -x,
        "pow": lambda x, y: x**y,
        "rsqrt": lambda x: 1 / sympy.sqrt(x),
        "real": lambda x: x,
        "whole": lambda x: x,
        "tanh_softplus": lambda x: sympy.tanh(sympy.Function("softplus")(x)),
        "where": lambda c, x, y: sympy.Piecewise((x, c), (y, True)),
    }


def _number(node: Node) -> Any:  # noqa: ANN401
    import sympy  # noqa: PLC0415

    if node.type == "bool":
        return sympy.true if node.number else sympy.false
    value = node.number
    if not math.isfinite(value):
        return sympy.nan if math.isnan(value) else sympy.oo if value > 0 else -sympy.oo
    return sympy.Integer(int(value)) if value == int(value) else sympy.Float(value)


def simplify(root: Node) -> Any:  # noqa: ANN401
    """Return the shortest form of an expression that SymPy finds quickly."""
    import sympy  # noqa: PLC0415

    plain = to_sympy(root)
    if sympy.count_ops(plain) > MOST_SIMPLIFIED:
        return plain
    return min(
        (plain, sympy.factor_terms(plain), sympy.factor(plain), sympy.simplify(plain)),
        key=lambda form: (sympy.count_ops(form), len(str(form))),
    )


def to_text(root: Node) -> str:
    """Return an expression, simplified, in the words of the language."""
    return _printer().doprint(simplify(root))


@functools.cache
def _printer() -> Any:  # noqa: ANN401
    """Return SymPy's printer with the words of this language."""
    from sympy.printing.str import StrPrinter  # noqa: PLC0415

    class Printer(StrPrinter):
        def _print_Piecewise(self, expr: Any) -> str:  # noqa: ANN401, N802
            *some, (last, _) = expr.args
            shown = self._print(last)
            for value, condition in reversed(some):
                shown = f"where({self._print(condition)}, {self._print(value)}, {shown})"
            return shown

        def _print_Relational(self, expr: Any) -> str:  # noqa: ANN401, N802
            sides = [self._print(side) for side in (expr.lhs, expr.rhs)]
            nested = [side.is_Relational or side.is_Boolean for side in (expr.lhs, expr.rhs)]
            one, other = [f"({s})" if n else s for s, n in zip(sides, nested, strict=True)]
            return f"{one} {expr.rel_op} {other}"

        def _print_And(self, expr: Any) -> str:  # noqa: ANN401, N802
            return " and ".join(f"({self._print(arg)})" for arg in expr.args)

        def _print_Or(self, expr: Any) -> str:  # noqa: ANN401, N802
            return " or ".join(f"({self._print(arg)})" for arg in expr.args)

        def _print_Xor(self, expr: Any) -> str:  # noqa: ANN401, N802
            return f"logical_xor({', '.join(map(self._print, expr.args))})"

        def _print_Not(self, expr: Any) -> str:  # noqa: ANN401, N802
            return f"not ({self._print(expr.args[0])})"

        def _print_Function(self, expr: Any) -> str:  # noqa: ANN401, N802
            name = type(expr).__name__
            if name == "polygamma" and expr.args[0] == 0:
                return f"digamma({self._print(expr.args[1])})"
            args = ", ".join(map(self._print, expr.args))
            return f"{OURS.get(name, name)}({args})"

        def _print_Infinity(self, expr: Any) -> Any:  # noqa: ANN401, N802
            return "inf"

        def _print_NegativeInfinity(self, expr: Any) -> Any:  # noqa: ANN401, N802
            return "-inf"

        def _print_NaN(self, expr: Any) -> Any:  # noqa: ANN401, N802
            return "nan"

        _print_Abs = _print_Max = _print_Min = _print_Function  # noqa: N815

    return Printer()


OURS = {theirs: ours for ours, theirs in DIFFERENT.items()}


def to_latex(root: Node) -> str:
    """Return an expression, simplified, as LaTeX."""
    import sympy  # noqa: PLC0415

    shown = simplify(root)
    names = {symbol: latex_name(str(symbol)) for symbol in shown.free_symbols}
    return sympy.latex(shown, symbol_names=names, mul_symbol=r" \, ")


def latex_name(name: str) -> str:
    """Return a name as LaTeX: letters and Greek ones as such, `grad_x` upright with an index."""
    from sympy.printing.latex import tex_greek_dictionary, translate  # noqa: PLC0415

    word, _, rest = name.partition("_")
    known = translate(word)
    if len(word) > 1 and known == word and word not in tex_greek_dictionary:
        known = rf"\mathrm{{{word}}}"
    index = rest.replace("_", r"\_")
    return f"{known}_{{{index}}}" if rest else known
