"""Python's grammar -> nodes: what users' formulas and our own table of functions have in common.

A text is parsed by Python and never evaluated.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from pullback.define.math.functions import CONSTANTS, find_function
from pullback.define.math.node import Node, number
from pullback.define.math.other_words import suggest_instead
from pullback.diagnostic import Rule, did_you_mean

FormulaSyntax = Rule("PB131", "formula-syntax")
# What others write for a constant.
WORDS = {each: "write inf" for each in ("infinity", "Infinity", "Inf", "INFINITY")}
UnknownFormulaName = Rule("PB133", "unknown-formula-name")

OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"},
    **{ast.Mod: "remainder", ast.FloorDiv: "floor_divide", ast.USub: "neg"},
    **{ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"},
    **{ast.And: "logical_and", ast.Or: "logical_or", ast.Not: "logical_not"},
}
# What people write who know other languages, and what to write here instead.
INSTEAD: dict[type[ast.AST], str] = {
    ast.IfExp: "write where(condition, a, b)",
    ast.BitAnd: "write 'and'",
    ast.BitOr: "write 'or'",
    ast.Invert: "write 'not'",
    ast.BitXor: "write '**' for a power, '!=' for an exclusive or of conditions",
    ast.Attribute: "write functions by their bare name: tanh(x)",
    ast.Subscript: "an index stands after a tensor's name: x[n, 2*i + k]",
    ast.MatMult: "write sum[k](x[n, k]*y[k, m])",
    ast.Lambda: "give a Python function to @pb.formula",
}
DEEPEST = 200


def parse_statement(text: str, of: str) -> ast.stmt:
    """Return Python's syntax tree of a statement; stop if the text is not one."""
    if "#" in text:
        raise FormulaSyntax.error(f"{of}: a formula has no comments", at=text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "1 is not callable", which is said below
            return ast.parse(text.replace("\n", " ")).body[0]
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        help = "statements are separated by ';'" if "\n" in text else None
        if bare := re.search(r"(\w+)\s*\[\s*\]", text):
            help = f"what has no indices has no brackets in a formula: {bare[1]}"
        raise FormulaSyntax.error(
            f"{of}: {error.msg}",
            at=f"{text}\n{' ' * column}^",
            help=help,
        ) from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise FormulaSyntax.error(f"{of}: the formula cannot be read: {error}") from None


class TreeReader(ABC):
    """Reads expressions; how a function becomes a node, a subclass says.

    Attributes:
        text: what is read.
        names: what it may use.
        of: whose formula it is, for messages.
    """

    def __init__(self, text: str, names: Mapping[str, Node], of: str) -> None:
        self.text = text
        self.names = names
        self.of = of
        self.depth = 0

    @abstractmethod
    def apply(self, tree: ast.expr, name: str, *args: Node) -> Node:
        """Return an operator's or a function's node."""

    @abstractmethod
    def call(self, tree: ast.Call, name: str) -> Node:
        """Return the call of a function."""

    def expression(self, tree: ast.expr) -> Node:
        """Return the node of a tree."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise FormulaSyntax.error(
                f"{self.of}: the formula is nested more than {DEEPEST} deep",
                help="give parts of it a name: t = ...; y = ...",
            )
        try:
            return self.read(tree)
        finally:
            self.depth -= 1

    def read(self, tree: ast.expr) -> Node:  # noqa: PLR0911  (one for each kind of tree)
        """Return the node of a tree, by its kind."""
        match tree:
            case ast.Name(id=name):
                return self.name(name, tree)
            case ast.Constant(value=bool() | int() | float() as value):
                return self.literal(value, tree)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return self.apply(tree, OPERATORS[type(op)], self.expression(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                operands = self.expression(left), self.expression(right)
                return self.apply(tree, OPERATORS[type(op)], *operands)
            case ast.BoolOp(op=op, values=values):
                return self.joined(tree, OPERATORS[type(op)], self.conditions(op, values))
            case ast.Compare(ops=ops) if all(type(op) in OPERATORS for op in ops):
                return self.comparison(tree)
            case ast.Call(func=ast.Name(id=name)):
                return self.special(tree, name) or self.call(tree, name)
            case ast.Subscript() | ast.Call(func=ast.Subscript()):
                return self.at_indices(tree)
            case _:
                self.refuse(tree)

    def special(self, tree: ast.Call, name: str) -> Node | None:
        """Return a call with a syntax of its own; None if its function is in the table."""
        return None

    def at_indices(self, tree: ast.Subscript | ast.Call) -> Node:
        """Return what has indices after its name: an element, or a reduction."""
        self.refuse(tree)

    def literal(self, value: float, tree: ast.expr) -> Node:
        """Return a number, of a size that kernels can hold."""
        if isinstance(value, int) and abs(value) >= 2**63:
            raise FormulaSyntax.error(f"{self.of}: {value} does not fit in 64 bits")
        if value == float("inf"):
            raise FormulaSyntax.error(f"{self.of}: {self.shown(tree)} is too big; write inf")
        return number(value)

    def name(self, name: str, tree: ast.expr) -> Node:
        """Return what a name stands for."""
        return self.names.get(name) or constant(name) or self.undefined(name, tree)

    def undefined(self, name: str, tree: ast.expr, known: Sequence[str] = ()) -> NoReturn:
        """Stop at an undefined name."""
        known = [*self.names, *known]
        function = find_function(name) is not None
        raise UnknownFormulaName.error(
            f"{self.of}: '{name}' is not defined",
            at=self.shown(tree),
            have=", ".join(sorted(known)),
            help=f"'{name}' is a function: {name}(...)"
            if function
            else WORDS.get(name) or did_you_mean(name, [*known, *CONSTANTS]),
        )

    def joined(self, tree: ast.expr, name: str, values: list[Node]) -> Node:
        """Return `a and b and c`."""
        result = values[0]
        for value in values[1:]:
            result = self.apply(tree, name, result, value)
        return result

    def conditions(self, op: ast.boolop, values: Sequence[ast.expr]) -> list[Node]:
        """Return the parts of `a and b` or `a or b`."""
        return [self.expression(value) for value in values]

    def comparison(self, tree: ast.Compare) -> Node:
        """Return `a < b`, or `a < b < c` as both of them."""
        operands = [self.expression(each) for each in (tree.left, *tree.comparators)]
        if (known := self.of_indices(tree.ops, operands)) is not None:
            return known
        tests = [
            self.apply(tree, OPERATORS[type(op)], operands[place], operands[place + 1])
            for place, op in enumerate(tree.ops)
        ]
        return self.joined(tree, "logical_and", tests)

    def of_indices(self, ops: Sequence[ast.cmpop], operands: Sequence[Node]) -> Node | None:
        """Return a comparison as a condition on indices; None if it is not one."""
        return None

    def refuse(self, tree: ast.expr) -> NoReturn:
        """Stop at syntax that the language does not have."""
        shown, kind = self.shown(tree), type(getattr(tree, "op", tree))
        cure = INSTEAD.get(kind)
        if isinstance(tree, ast.Call):
            tree = tree.func
            cure = INSTEAD.get(type(tree))
        if isinstance(tree, ast.Attribute):
            cure = suggest_instead(tree.attr) or cure
        raise FormulaSyntax.error(f"{self.of}: a formula cannot say this", at=shown, help=cure)

    def shown(self, tree: ast.expr) -> str:
        """Return the part of the text that a tree is."""
        # A tree's columns count bytes; a text that is read has one row.
        return self.text.encode()[tree.col_offset : tree.end_col_offset].decode().replace("\n", " ")


class _TableReader(TreeReader):
    """Reads texts of the table, which may use functions that users may not."""

    def __init__(self, text: str, names: Mapping[str, Node], make: Callable[..., Node]) -> None:
        super().__init__(text, names, TABLE_OF)
        self.make = make

    def apply(self, tree: ast.expr, name: str, *args: Node) -> Node:
        return self.make(name, *args)

    def call(self, tree: ast.Call, name: str) -> Node:
        return self.make(name, *map(self.expression, tree.args))


def evaluate_text(text: str, names: Mapping[str, Node], make: Callable[..., Node]) -> Node:
    """Return an expression of the table for some operands; `make` is `build.apply`."""
    return _TableReader(text, names, make).expression(_table_tree(text))


TABLE_OF = "the table of functions"


@functools.cache
def _table_tree(text: str) -> ast.expr:
    """Return the tree of a text of the table, which every derivative asks for again."""
    statement = parse_statement(text, TABLE_OF)
    assert isinstance(statement, ast.Expr)
    return statement.value


@functools.cache
def constant(name: str) -> Node | None:
    """Return a number that has a name: pi, e, inf, nan."""
    return number(CONSTANTS[name]) if name in CONSTANTS else None
