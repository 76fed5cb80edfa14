"""What people write in place of a function of the table, and the function: rules on the graph.

A row is taken only if the function is at least as exact as what is written, in value and gradient,
everywhere: a sigmoid written by `exp` overflows, the sigmoid does not. The tests look at each row,
at the ends of its range too; `docs/decisions/spellings-are-functions.md` says which rules are not
here, and why.

In a row `a` and `b` are any real expressions, the same one wherever the letter is; the operands of
a sum, a product, a maximum and a minimum come in any order.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Generator, Iterator, Mapping
from contextvars import ContextVar

from pullback.define.math import grammar
from pullback.define.math.node import NUMBER, SCALAR, Node, make, number, scalar

ROOT = math.sqrt(2)
# x Φ(x), with Φ(x) = erfc(-x/√2)/2: where the half stands, and how √2 is divided by.
HALVES = ("0.5*a*{}", "a*(0.5*{})", "0.5*(a*{})", "a/2*{}", "a*({}/2)", "a*{}/2")
TAILS = (f"erfc(-(a/{ROOT}))", f"erfc(-(a*{1 / ROOT}))", f"erfc(-(a*{math.sqrt(0.5)}))")

# What is written, in the order in which it is looked for, and the function.
SPELLINGS: tuple[tuple[str, str], ...] = (
    ("log1p(exp(a))", "softplus(a)"),
    ("log(1 + exp(a))", "softplus(a)"),
    # Who divides log(u) by a rounded u - 1, as W. Kahan does, meant to have the rounding in both.
    ("1 + exp(a) - 1", "exp(a)"),
    ("maximum(a, 0) + softplus(-abs(a))", "softplus(a)"),
    ("relu(a) + softplus(-abs(a))", "softplus(a)"),
    ("clamp(a, 0, inf) + softplus(-abs(a))", "softplus(a)"),
    ("log(exp(a) + exp(b))", "logaddexp(a, b)"),
    ("maximum(a, b) + softplus(-abs(a - b))", "logaddexp(a, b)"),
    ("log(sigmoid(a))", "log_sigmoid(a)"),
    ("log(1 - sigmoid(a))", "log_sigmoid(-a)"),
    ("log1p(-sigmoid(a))", "log_sigmoid(-a)"),
    ("minimum(a, 0) - softplus(-abs(a))", "log_sigmoid(a)"),
    ("1 + tanh(a)", "2*sigmoid(2*a)"),
    ("(exp(a) - exp(-a))/(exp(a) + exp(-a))", "tanh(a)"),
    ("exp(a)/(1 + exp(a))", "sigmoid(a)"),
    ("exp(a)/(exp(a) + exp(b))", "sigmoid(a - b)"),
    ("a/(1 + exp(b))", "a*sigmoid(-b)"),
    ("(1 + exp(a))**-1", "sigmoid(-a)"),
    ("(exp(a) - exp(-a))/2", "sinh(a)"),
    ("0.5*(exp(a) - exp(-a))", "sinh(a)"),
    ("(exp(a) + exp(-a))/2", "cosh(a)"),
    ("0.5*(exp(a) + exp(-a))", "cosh(a)"),
    ("1 + erf(a)", "erfc(-a)"),
    ("1 - erf(a)", "erfc(a)"),
    *((half.format(tail), "gelu(a)") for half in HALVES for tail in TAILS),
)
COMMUTATIVE = ("add", "mul", "maximum", "minimum")
Bound = Mapping[str, Node]
_literal = ContextVar("literal", default=False)


@contextlib.contextmanager
def literally() -> Generator[None]:
    """Within it, what is written stays: for texts that say how a function itself is computed."""
    before = _literal.set(True)
    try:
        yield
    finally:
        _literal.reset(before)


def recognise(node: Node) -> tuple[str, Bound] | None:
    """Return the function that a node spells, as a text, and what its letters stand for."""
    for pattern, meant in () if _literal.get() else _rows().get(node.op, ()):
        bound = next(_match(pattern, node, {}), None)
        if bound is not None:
            return meant, bound
    return None


@functools.cache
def _rows() -> dict[str, list[tuple[Node, str]]]:
    """Return the rows by the outermost function of what is written."""
    letters = {letter: scalar(letter, "real") for letter in "ab"}
    found: dict[str, list[tuple[Node, str]]] = {}
    for written, meant in SPELLINGS:
        pattern = grammar.evaluate_text(written, letters, _pattern)
        found.setdefault(pattern.op, []).append((pattern, meant))
    return found


def _pattern(name: str, *args: Node) -> Node:
    """Return a node as it is made of real operands: numbers are real, a known power is a `powi`."""
    operands = tuple(number(float(a.number)) if a.op == NUMBER else a for a in args)
    if name == "neg" and operands[0].op == NUMBER:
        return number(-operands[0].number)
    if name == "pow":
        return make("powi", operands[:1], int(operands[1].number), "real", frozenset())
    return make(name, operands, None, "real", frozenset())


def _match(pattern: Node, node: Node, bound: Bound) -> Iterator[Bound]:
    """Yield the ways in which a node is what a pattern says, given what letters stand for."""
    if pattern.op == SCALAR:
        if bound.get(pattern.name, node) is node and node.type == "real":
            yield {**bound, pattern.name: node}
    elif pattern.op == node.op and pattern.data == node.data:
        orders = (node.args, node.args[::-1]) if node.op in COMMUTATIVE else (node.args,)
        for args in orders:
            yield from _match_all(pattern.args, args, bound)


def _match_all(
    patterns: tuple[Node, ...], nodes: tuple[Node, ...], bound: Bound
) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for found in _match(patterns[0], nodes[0], bound):
        yield from _match_all(patterns[1:], nodes[1:], found)
