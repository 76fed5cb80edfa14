"""Nodes -> SymPy, for what people read: simplified text and LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback.define.formula.node import NUMBER, READ, SCALAR, Node, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

# What has more operations than this is shown as it is: simplifying it would take seconds.
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


def expression(root: Node) -> Any:  # noqa: ANN401  (SymPy has no types)
    """Return a node as a SymPy expression."""
    made: dict[Node, Any] = {}
    for node in in_order([root]):
        made[node] = _one(node, [made[arg] for arg in node.args])
    return made[root]


def _one(node: Node, args: list[Any]) -> Any:  # noqa: ANN401
    import sympy  # noqa: PLC0415  (half a second, and only where something is shown)

    if node.op == NUMBER:
        return _number(node)
    if node.op in (READ, SCALAR):
        return sympy.Symbol(node.name, real=True)
    arithmetic: dict[str, Callable[..., Any]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "neg": lambda x: -x,
        "pow": lambda x, y: x**y,
        "powi": lambda x: x**node.data,
        "rsqrt": lambda x: 1 / sympy.sqrt(x),
        "real": lambda x: x,
        "whole": lambda x: x,
        "tanh_softplus": lambda x: sympy.tanh(sympy.Function("softplus")(x)),
        "where": lambda c, x, y: sympy.Piecewise((x, c), (y, True)),
    }
    if node.op in arithmetic:
        return arithmetic[node.op](*args)
    name = node.op if node.op in SAME else None
    name = name or DIFFERENT.get(node.op) or RELATIONS.get(node.op) or LOGIC.get(node.op)
    return getattr(sympy, name)(*args) if name else sympy.Function(node.op)(*args)


def _number(node: Node) -> Any:  # noqa: ANN401
    import sympy  # noqa: PLC0415

    if node.type == "bool":
        return sympy.true if node.number else sympy.false
    value = node.number
    return sympy.Integer(int(value)) if value == int(value) else sympy.Float(value)


def simplified(root: Node) -> Any:  # noqa: ANN401
    """Return the shortest form of an expression that SymPy finds quickly."""
    import sympy  # noqa: PLC0415

    plain = expression(root)
    if sympy.count_ops(plain) > MOST_SIMPLIFIED:
        return plain
    return min(
        (plain, sympy.factor_terms(plain), sympy.factor(plain), sympy.simplify(plain)),
        key=lambda form: (sympy.count_ops(form), len(str(form))),
    )


def latex(root: Node) -> str:
    """Return an expression as LaTeX."""
    import sympy  # noqa: PLC0415

    return sympy.latex(simplified(root))
