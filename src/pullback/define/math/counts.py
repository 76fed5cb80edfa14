"""Int scalars that say how far an index runs: `u[t < steps, x]`, `sum[k < 2*order + 1](...)`.

Such a scalar is a size like that of a dimension, wherever the formula names it: its value is never
negative, it may stand in limits, and loops take it as they take other sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from pullback.define.line import Line, is_int_scalar
from pullback.define.math.grammar import FormulaSyntax, parse_statement
from pullback.define.math.index import size
from pullback.define.math.node import index
from pullback.define.math.sizes import dimensions_used
from pullback.define.math.subscripts import FormulaProgram, Statement, elements


def declare_counts(
    program: FormulaProgram, line: Line, limits: Iterable[ast.AST], statements: Sequence[Statement]
) -> None:
    """Make the scalars that count an index sizes, before anything is read.

    Args:
        program: what is read.
        line: its line.
        limits: those that the line gives its outputs' indices.
        statements: of the formula.
    """
    named = {
        part.id
        for tree in (*limits, *_limits_of(statements))
        for part in ast.walk(tree)
        if isinstance(part, ast.Name)
    }
    if program.trusted:
        # A derivative's dimensions have sizes that its text need not repeat.
        named |= dimensions_used((), program.declared.values())
    for scalar in line.scalars:
        if is_int_scalar(scalar) and scalar.name in named:
            program.pointwise = False
            program.declared[scalar.name] = size(scalar.name)
            program.names[scalar.name] = index(size(scalar.name))


def _limits_of(statements: Sequence[Statement]) -> Iterator[ast.AST]:
    """Yield the limits in a formula, and what `size` is asked of."""
    for statement in statements:
        for part in ast.walk(statement.tree):
            match part:
                case ast.Subscript(slice=inside):
                    for each in elements(inside):
                        match each:
                            case ast.Compare(ops=[ast.Lt()], comparators=[limit]):
                                yield limit
                            case _:
                                pass
                case ast.Call(func=ast.Name(id="size"), args=[one]):
                    yield one
                case _:
                    pass


def limit_trees(line: Line) -> dict[str, ast.expr]:
    """Return the limits that a line gives its outputs' indices, by their names."""
    found: dict[str, ast.expr] = {}
    for name, text in line.limits:
        match parse_statement(text, line.qualname):
            case ast.Expr(value=tree):
                found[name] = tree
            case _:
                raise FormulaSyntax.error(
                    f"{line.qualname}: this is no limit of an index",
                    at=f"{name} < {text}",
                    help=f"such as {name} < 5, or {name} < steps of an int scalar",
                )
    return found
