"""The text of a formula -> nodes. It is parsed by Python's own grammar and never evaluated."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import NoReturn

from pullback.define.formula import build
from pullback.define.formula.build import Misfit
from pullback.define.formula.functions import ALIASES, CONSTANTS, TABLE, Function
from pullback.define.formula.node import Node, is_number, number
from pullback.diagnostic import Rule, did_you_mean

FormulaSyntax = Rule("PB131", "formula-syntax")
UnknownFunction = Rule("PB132", "unknown-function")
UnknownFormulaName = Rule("PB133", "unknown-formula-name")
FormulaArguments = Rule("PB134", "formula-arguments")
FormulaType = Rule("PB135", "formula-type")
DivisionByZero = Rule("PB136", "division-by-zero")
FormulaOutputs = Rule("PB137", "formula-outputs")

OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"},
    **{ast.Mod: "remainder", ast.FloorDiv: "floor_divide", ast.USub: "neg"},
    **{ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"},
    **{ast.And: "logical_and", ast.Or: "logical_or", ast.Not: "logical_not"},
}
# What people write that knows other languages, and what this one says instead.
INSTEAD: dict[type[ast.AST], str] = {
    ast.IfExp: "write where(condition, a, b)",
    ast.BitAnd: "write 'and'",
    ast.BitOr: "write 'or'",
    ast.Invert: "write 'not'",
    ast.BitXor: "write '**' for a power, '!=' for an exclusive or of conditions",
    ast.Attribute: "write functions by their bare name: tanh(x)",
    ast.Subscript: "indices come later; a tensor's name alone is all of it",
    ast.Lambda: "give a Python function to @pb.formula",
}
DEEPEST = 200


def statements(
    text: str, names: Mapping[str, Node], outputs: tuple[str, ...], of: str
) -> list[Node]:
    """Return the nodes of some outputs.

    Args:
        text: assignments with `;` between them, `t = tanh(x); y = t * t`; the last may be the value
            alone, or one value for each output.
        names: what the formula may use.
        outputs: what it has to say.
        of: whose formula it is, for messages.

    Raises:
        PullbackError: PB131 to PB137.
    """
    known = dict(names)
    given: dict[str, Node] = {}
    rows = [row for row in text.split(";") if row.strip()]
    for place, row in enumerate(rows):
        reader = _Reader(row.strip(), known, of)
        target, values = reader.statement()
        if target is not None:
            if target in known or target in given or target in CONSTANTS:
                raise FormulaOutputs.error(f"{of}: '{target}' has a value already", at=row.strip())
            known[target] = given[target] = values[0]
        elif (
            place == len(rows) - 1 and len(values) == len(outputs) and not set(outputs) & set(given)
        ):
            given.update(zip(outputs, values, strict=True))
        else:
            raise FormulaOutputs.error(
                f"{of}: this value is given to nothing",
                at=row.strip(),
                help=f"write {outputs[0]} = ...",
            )
    for name in outputs:
        if name not in given:
            raise FormulaOutputs.error(
                f"{of}: nothing says what '{name}' is", formula=text, help=f"add '; {name} = ...'"
            )
    return [given[name] for name in outputs]


def expression(text: str, names: Mapping[str, Node]) -> Node:
    """Return the node of one expression of our own."""
    return _Reader(text, dict(names), "the table of functions").expression(parsed(text, "table"))


def parsed(text: str, of: str) -> ast.expr:
    """Return Python's tree of an expression, or stop where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "1 is not callable", which is said below
            return ast.parse(text.replace("\n", " "), mode="eval").body
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        raise FormulaSyntax.error(
            f"{of}: {error.msg}",
            at=f"{text}\n{' ' * column}^",
            help="statements are separated by ';'" if "\n" in text else None,
        ) from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise FormulaSyntax.error(f"{of}: the formula cannot be read: {error}") from None


class _Reader:
    """Reads one statement."""

    def __init__(self, text: str, names: Mapping[str, Node], of: str) -> None:
        self.text = text
        self.names = names
        self.of = of
        self.depth = 0

    def statement(self) -> tuple[str | None, list[Node]]:
        """Read `name = value`, or values."""
        head, sign, rest = self.text.partition("=")
        if sign and head.strip().isidentifier() and not rest.startswith("="):
            inner = _Reader(rest.strip(), self.names, self.of)
            return head.strip(), [inner.expression(parsed(inner.text, self.of))]
        tree = parsed(self.text, self.of)
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        return None, [self.expression(part) for part in parts]

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
        except Misfit as misfit:
            raise FormulaType.error(f"{self.of}: {misfit}", at=self.shown(tree)) from None
        finally:
            self.depth -= 1

    def read(self, tree: ast.expr) -> Node:  # noqa: PLR0911  (one for each kind of tree)
        """Return the node of a tree, by its kind."""
        match tree:
            case ast.Constant(value=bool() | int() | float() as value):
                return self.literal(value, tree)
            case ast.Name(id=name):
                return self.name(name, tree)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return build.apply(OPERATORS[type(op)], self.expression(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self.operation(OPERATORS[type(op)], left, right)
            case ast.BoolOp(op=op, values=values):
                return self.joined(OPERATORS[type(op)], [self.expression(v) for v in values])
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in OPERATORS for op in ops
            ):
                return self.comparison(left, ops, others)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, tree)
            case _:
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
        node = self.names.get(name) or build.constant(name)
        if node is not None:
            return node
        function = ALIASES.get(name, name) in TABLE
        raise UnknownFormulaName.error(
            f"{self.of}: '{name}' is not defined",
            at=self.shown(tree),
            have=", ".join(sorted(self.names)),
            help=f"'{name}' is a function: {name}(...)"
            if function
            else did_you_mean(name, [*self.names, *CONSTANTS]),
        )

    def operation(self, name: str, left: ast.expr, right: ast.expr) -> Node:
        """Return `left op right`."""
        first, second = self.expression(left), self.expression(right)
        if name in ("div", "remainder", "floor_divide") and (
            is_number(second) and second.number == 0
        ):
            raise DivisionByZero.error(
                f"{self.of}: division by zero",
                at=f"{self.shown(left)} / {self.shown(right)}",
                help="write inf or nan if that is meant",
            )
        return build.apply(name, first, second)

    def joined(self, name: str, values: list[Node]) -> Node:
        """Return `a and b and c`."""
        result = values[0]
        for value in values[1:]:
            result = build.apply(name, result, value)
        return result

    def comparison(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> Node:
        """Return `a < b`, or `a < b < c` as both of them."""
        operands = [self.expression(tree) for tree in (left, *others)]
        tests = [
            build.apply(OPERATORS[type(op)], operands[place], operands[place + 1])
            for place, op in enumerate(ops)
        ]
        return self.joined("logical_and", tests)

    def call(self, name: str, tree: ast.Call) -> Node:
        """Return the call of a function."""
        keywords = {word.arg or "**": word.value for word in tree.keywords}
        if name == "gelu" and "approximate" in keywords:
            name = self.gelu(keywords.pop("approximate"))
        if name == "softplus" and (len(tree.args) == 2 or "beta" in keywords):
            name = "softplus_beta"
        function = TABLE.get(ALIASES.get(name, name))
        if function is None:
            raise UnknownFunction.error(
                f"{self.of}: there is no function '{name}'",
                at=self.shown(tree),
                help=did_you_mean(name, [*TABLE, *ALIASES]),
            )
        args = self.arguments(name, function, tree, keywords)
        if function.name == "div" and is_number(args[1]) and args[1].number == 0:
            raise DivisionByZero.error(f"{self.of}: division by zero", at=self.shown(tree))
        return build.apply(function.name, *args)

    def gelu(self, tree: ast.expr) -> str:
        """Return which of the two functions `gelu(x, approximate=...)` is."""
        kind = tree.value if isinstance(tree, ast.Constant) else None
        if kind not in ("tanh", "none"):
            raise FormulaArguments.error(
                f"{self.of}: gelu's approximate is 'tanh' or 'none'", at=self.shown(tree)
            )
        return "gelu_tanh" if kind == "tanh" else "gelu"

    def arguments(
        self, name: str, function: Function, tree: ast.Call, keywords: dict[str, ast.expr]
    ) -> list[Node]:
        """Return a call's arguments in the order of the parameters, with defaults filled in."""
        parameters = function.parameters
        spelled = f"{name}({', '.join(parameters)})"
        if len(tree.args) > len(parameters) or any(isinstance(a, ast.Starred) for a in tree.args):
            raise FormulaArguments.error(
                f"{self.of}: {len(tree.args)} arguments are given to {spelled}", at=self.shown(tree)
            )
        given = dict(zip(parameters, tree.args, strict=False))
        for word, value in keywords.items():
            if word not in parameters or word in given:
                raise FormulaArguments.error(
                    f"{self.of}: {spelled} takes no '{word}' there",
                    at=self.shown(tree),
                    help=did_you_mean(word, parameters),
                )
            given[word] = value
        required = len(parameters) - len(function.defaults)
        for word in parameters[:required]:
            if word not in given:
                raise FormulaArguments.error(
                    f"{self.of}: '{word}' of {spelled} is missing", at=self.shown(tree)
                )
        defaults = dict(zip(parameters[required:], map(number, function.defaults), strict=True))
        return [
            self.expression(given[word]) if word in given else defaults[word] for word in parameters
        ]

    def refuse(self, tree: ast.expr) -> NoReturn:
        """Stop at something that is no mathematics of this language."""
        kind = type(getattr(tree, "op", tree))
        if isinstance(tree, ast.Call):
            kind = type(tree.func)
        raise FormulaSyntax.error(
            f"{self.of}: a formula cannot say this", at=self.shown(tree), help=INSTEAD.get(kind)
        )

    def shown(self, tree: ast.expr) -> str:
        """Return the part of the text that a tree is."""
        return ast.get_source_segment(self.text.replace("\n", " "), tree) or self.text
