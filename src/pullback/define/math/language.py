"""Users' expressions -> nodes: functions by their names, with arguments that may be wrong."""

from __future__ import annotations

import ast

from pullback.define.math.call import FormulaArguments, Place, called
from pullback.define.math.grammar import TreeReader
from pullback.define.math.node import Node
from pullback.diagnostic import Rule

FormulaOutputs = Rule("PB137", "formula-outputs")


class Reader(TreeReader):
    """Reads expressions of a user."""

    def apply(self, tree: ast.expr, name: str, *args: Node) -> Node:
        """Return an operator's or a function's node."""
        return called(name, args, {}, Place(self.of, self.shown(tree)))

    def call(self, tree: ast.Call, name: str) -> Node:
        """Return the call of a function."""
        self.require_written(tree)
        # Not by a method of its own, which would be one more on Python's stack.
        args = [self.expression(a) if (text := word(a)) is None else text for a in tree.args]
        keywords = {
            str(k.arg): self.expression(k.value) if (text := word(k.value)) is None else text
            for k in tree.keywords
        }
        return called(name, args, keywords, Place(self.of, self.shown(tree)))

    def require_written(self, tree: ast.Call) -> None:
        """Stop at arguments with stars."""
        starred = any(isinstance(arg, ast.Starred) for arg in tree.args)
        if starred or any(word.arg is None for word in tree.keywords):
            raise FormulaArguments.error(
                f"{self.of}: a formula's arguments are written out", at=self.shown(tree)
            )


def word(tree: ast.expr) -> str | None:
    """Return an argument that is a text: `approximate="tanh"`."""
    return tree.value if isinstance(tree, ast.Constant) and isinstance(tree.value, str) else None
