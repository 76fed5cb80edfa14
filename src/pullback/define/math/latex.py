"""The text of a formula -> LaTeX: index notation, and formulas as their author wrote them.

Derivatives of pointwise formulas are simplified by SymPy, which writes LaTeX itself.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pullback.define.math.sympy import latex_name

# How tightly a text binds: a factor that binds less tightly than the product needs brackets.
LOOSE, RELATION, SUM, PRODUCT, SIGN, POWER, TIGHT = range(7)

KNOWN = frozenset(
    ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "min", "max", "arg", "det")
)
RELATIONS: dict[type[ast.cmpop], str] = {
    **{ast.Lt: "<", ast.LtE: r"\le", ast.Gt: ">", ast.GtE: r"\ge", ast.Eq: "=", ast.NotEq: r"\ne"},
}
AROUND = {
    "abs": (r"\left|", r"\right|"),
    "floor": (r"\left\lfloor ", r" \right\rfloor"),
    "ceil": (r"\left\lceil ", r" \right\rceil"),
    "sqrt": (r"\sqrt{", "}"),
}


def align(rows: Sequence[str]) -> str:
    """Return rows, "y &= x", as one LaTeX environment."""
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def rows_of(text: str, name: str, labels: Sequence[str] = ()) -> list[str]:
    """Return the statements of a formula as rows "y_{n} &= x_{n}".

    Args:
        text: that parses; a value alone is that of the output.
        name: of the output.
        labels: its indices, if the text has indices.
    """
    rows: list[str] = []
    for statement in ast.parse(text.replace("\n", " ").strip()).body:
        if isinstance(statement, ast.Assign):
            left = to_latex(statement.targets[0])
            right = statement.value
        else:
            assert isinstance(statement, ast.Expr)
            left, right = _indexed(latex_name(name), map(_label, labels)), statement.value
        rows.append(f"{left} &= {to_latex(right)}")
    return rows


def to_latex(tree: ast.expr, least: int = LOOSE) -> str:
    """Return an expression; in brackets, if it binds less tightly than it has to."""
    text, binds = _write(tree)
    return rf"\left({text}\right)" if binds < least else text


def _write(tree: ast.expr) -> tuple[str, int]:  # noqa: PLR0911, PLR0912  (one for each kind)
    """Return an expression, and how tightly it binds."""
    match tree:
        case ast.Constant(value=value):
            return _number(value), TIGHT
        case ast.Name(id=name):
            return latex_name(name), TIGHT
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            return _indexed(latex_name(name), map(to_latex, _elements(inside))), TIGHT
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.Eq()]) as equal):
            sides = [to_latex(side, SUM) for side in (equal.left, *equal.comparators)]
            return r" \ne ".join(sides), RELATION
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return rf"\lnot {to_latex(operand, TIGHT)}", SIGN
        case ast.UnaryOp(op=op, operand=operand):
            sign = "-" if isinstance(op, ast.USub) else "+"
            return f"{sign}{to_latex(operand, PRODUCT)}", SUM
        case ast.BinOp():
            return _write_operation(tree)
        case ast.Compare(left=left, ops=ops, comparators=others):
            words = [to_latex(left, SUM)]
            for op, other in zip(ops, others, strict=True):
                words += [RELATIONS[type(op)], to_latex(other, SUM)]
            return " ".join(words), RELATION
        case ast.BoolOp(op=op, values=values):
            sign = r" \land " if isinstance(op, ast.And) else r" \lor "
            return sign.join(to_latex(value, RELATION) for value in values), LOOSE
        case ast.Call(func=ast.Subscript(value=ast.Name(id=name), slice=inside), args=args):
            return _write_reduction(name, _elements(inside), args)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _write_call(name, args)
        case _:
            return rf"\mathtt{{{_escape(ast.unparse(tree))}}}", TIGHT


def _write_operation(tree: ast.BinOp) -> tuple[str, int]:
    """Return a sum, a product, a fraction, a power."""
    left, right = tree.left, tree.right
    fraction = rf"\frac{{{to_latex(left)}}}{{{to_latex(right)}}}"
    match tree.op:
        case ast.Add() | ast.Sub():
            sign = "+" if isinstance(tree.op, ast.Add) else "-"
            return f"{to_latex(left, SUM)} {sign} {to_latex(right, PRODUCT)}", SUM
        case ast.Div():
            return fraction, TIGHT
        case ast.FloorDiv():
            return rf"\left\lfloor {fraction} \right\rfloor", TIGHT
        case ast.Pow():
            return f"{to_latex(left, TIGHT)}^{{{to_latex(right)}}}", POWER
        case ast.Mod():
            return rf"{to_latex(left, SIGN)} \bmod {to_latex(right, SIGN)}", PRODUCT
        case _:
            return _write_product(tree)


def _write_product(tree: ast.BinOp) -> tuple[str, int]:
    """Return a product; the sign of its first factor stands before all of it."""
    first, *rest = _factors(tree)
    minus = isinstance(first, ast.UnaryOp) and isinstance(first.op, ast.USub)
    factors = [first.operand if isinstance(first, ast.UnaryOp) and minus else first, *rest]
    # What stands to the right of a sum's sign would seem to be a part of it.
    *before, last = factors
    words = [to_latex(f, SIGN if _is_reduction(f) else PRODUCT) for f in before]
    product = r" \, ".join([*words, to_latex(last, PRODUCT)])
    return (f"-{product}", SUM) if minus else (product, PRODUCT)


def _factors(tree: ast.expr) -> list[ast.expr]:
    """Return the factors of a product, from left to right."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return [*_factors(tree.left), *_factors(tree.right)]
    return [tree]


def _is_reduction(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Call) and isinstance(tree.func, ast.Subscript)


def _write_reduction(name: str, bound: list[ast.expr], args: list[ast.expr]) -> tuple[str, int]:
    """Return a sum or another reduction over indices."""
    below = ", ".join(map(to_latex, bound))
    if name in ("sum", "prod"):
        return rf"\{name}_{{{below}}} {to_latex(args[0], PRODUCT)}", PRODUCT
    sign = rf"\{name}" if name in KNOWN else rf"\operatorname*{{{_escape(name)}}}"
    return rf"{sign}_{{{below}}} {_bracketed(args)}", PRODUCT


def _write_call(name: str, args: list[ast.expr]) -> tuple[str, int]:
    """Return a function of its arguments."""
    if name == "where":
        condition, value, other = map(to_latex, args)
        rows = rf"{value} & \text{{if }} {condition} \\ {other} & \text{{otherwise}}"
        return rf"\begin{{cases}} {rows} \end{{cases}}", TIGHT
    if name in AROUND and len(args) == 1:
        before, after = AROUND[name]
        return f"{before}{to_latex(args[0])}{after}", TIGHT
    if name == "exp":
        return f"e^{{{to_latex(args[0])}}}", POWER
    sign = rf"\{name}" if name in KNOWN else rf"\operatorname{{{_escape(name)}}}"
    return f"{sign}{_bracketed(args)}", TIGHT


def _bracketed(args: list[ast.expr]) -> str:
    return rf"\left({', '.join(map(to_latex, args))}\right)"


def _elements(inside: ast.expr) -> list[ast.expr]:
    """Return what stands between brackets."""
    return inside.elts if isinstance(inside, ast.Tuple) else [inside]


def _indexed(name: str, indices: Sequence[str] | map[str]) -> str:
    """Return a tensor's element; a name that has an index of its own is put in braces."""
    shown = ", ".join(indices)
    if not shown:
        return name
    return f"{{{name}}}_{{{shown}}}" if "_" in name else f"{name}_{{{shown}}}"


def _label(label: str) -> str:
    """Return the index of an output; "n'" is the second n of y[n, n]."""
    if label == "...":
        return r"\ldots"
    name = label.rstrip("'")
    return latex_name(name) + label[len(name) :]


def _number(value: object) -> str:
    """Return a number; 1e-5 as a power of ten."""
    if value is ...:
        return r"\ldots"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa if not isinstance(value, bool) else rf"\mathrm{{{str(value).lower()}}}"
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}"


def _escape(text: str) -> str:
    """Return a text without what means something else in LaTeX."""
    for letter in "_%&#$":
        text = text.replace(letter, rf"\{letter}")
    return text
