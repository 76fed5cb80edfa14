"""The text of a formula -> nodes. It is parsed by Python's own grammar and never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from pullback.define.formula.call import FormulaArguments, Place, called
from pullback.define.formula.functions import CONSTANTS
from pullback.define.formula.grammar import TreeReader, parsed
from pullback.define.formula.node import Node
from pullback.diagnostic import Rule

FormulaOutputs = Rule("PB137", "formula-outputs")


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
        reader = Reader(row.strip(), known, of)
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


class Reader(TreeReader):
    """Reads one statement of a user."""

    def statement(self) -> tuple[str | None, list[Node]]:
        """Read `name = value`, or values."""
        head, sign, rest = self.text.partition("=")
        if sign and head.strip().isidentifier() and not rest.startswith("="):
            inner = Reader(rest.strip(), self.names, self.of)
            return head.strip(), [inner.expression(parsed(inner.text, self.of))]
        tree = parsed(self.text, self.of)
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        return None, [self.expression(part) for part in parts]

    def apply(self, tree: ast.expr, name: str, *args: Node) -> Node:
        """Return an operator's or a function's node."""
        return called(name, args, {}, Place(self.of, self.shown(tree)))

    def call(self, tree: ast.Call, name: str) -> Node:
        """Return the call of a function."""
        if any(isinstance(a, ast.Starred) for a in tree.args) or any(
            word.arg is None for word in tree.keywords
        ):
            raise FormulaArguments.error(
                f"{self.of}: a formula's arguments are written out", at=self.shown(tree)
            )
        args = [self.argument(arg) for arg in tree.args]
        keywords = {str(word.arg): self.argument(word.value) for word in tree.keywords}
        return called(name, args, keywords, Place(self.of, self.shown(tree)))

    def argument(self, tree: ast.expr) -> Node | str:
        """Return an argument, which may be a word: `approximate="tanh"`."""
        match tree:
            case ast.Constant(value=str() as word):
                return word
            case _:
                return self.expression(tree)
