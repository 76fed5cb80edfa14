"""Users' calls and expressions -> nodes, with names and arguments checked.

The calls are in a text, or in a Python function that is traced.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.define.math import build
from pullback.define.math.build import Misfit
from pullback.define.math.functions import DIVISORS, TABLE, FunctionRow, find_function, known_names
from pullback.define.math.grammar import TreeReader
from pullback.define.math.node import Node, is_number, number
from pullback.define.math.other_words import LINES, suggest_instead
from pullback.diagnostic import PullbackError, Rule, did_you_mean

UnknownFunction = Rule("PB132", "unknown-function")
FormulaArguments = Rule("PB134", "formula-arguments")
FormulaType = Rule("PB135", "formula-type")
DivisionByZero = Rule("PB136", "division-by-zero")

Value = Node | str


@dataclass(frozen=True)
class FormulaPlace:
    """A place in a formula, for messages: whose formula it is, and which part."""

    of: str
    at: str | None = None

    def error(self, rule: Rule, message: str, *, help: str | None = None) -> PullbackError:
        """Return an error at this place."""
        return rule.error(f"{self.of}: {message}", at=self.at, help=help)


def build_call(
    name: str, args: Sequence[Value], keywords: Mapping[str, Value], place: FormulaPlace
) -> Node:
    """Return the node of a call.

    Args:
        name: of the function, as PyTorch has it; also one for an operator, such as "add".
        args: values, or words: `approximate="tanh"`.
        keywords: the same by name.
        place: for messages.

    Raises:
        PullbackError: PB132, PB134 to PB136.
    """
    name, keywords = _choose_variant(name, args, dict(keywords), place)
    function = TABLE[name] if name in VARIANTS.values() else find_function(name)
    if function is None:
        cure = suggest_instead(name) or did_you_mean(name, [*known_names(), *LINES])
        raise place.error(UnknownFunction, f"there is no function '{name}'", help=cure)
    values = _order_arguments(
        f"{name}({', '.join(function.parameters)})", function, place, args, keywords
    )
    divisor = DIVISORS.get(function.name)
    if divisor is not None and is_number(values[divisor]) and values[divisor].number == 0:
        cure = "write inf or nan if that is meant"
        raise place.error(DivisionByZero, "division by zero", help=cure)
    try:
        return build.apply(function.name, *values)
    except Misfit as misfit:
        raise place.error(FormulaType, str(misfit)) from None


# Functions that an option turns into another one.
VARIANTS = {"gelu": "gelu_tanh", "softplus": "softplus_beta"}


def _choose_variant(
    name: str, args: Sequence[Value], keywords: dict[str, Value], place: FormulaPlace
) -> tuple[str, dict[str, Value]]:
    """Return which function `gelu(x, approximate=...)` or `softplus(x, beta)` means."""
    if name == "softplus" and (len(args) == 2 or "beta" in keywords):
        return VARIANTS[name], keywords
    if name == "gelu" and "approximate" in keywords:
        kind = keywords.pop("approximate")
        if kind not in ("tanh", "none"):
            raise place.error(FormulaArguments, "gelu's approximate is 'tanh' or 'none'")
        return VARIANTS[name] if kind == "tanh" else name, keywords
    return name, keywords


def _order_arguments(
    spelled: str,
    function: FunctionRow,
    place: FormulaPlace,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
) -> list[Node]:
    """Return the arguments in the order of the parameters, with defaults filled in."""
    parameters = function.parameters
    if len(args) > len(parameters):
        raise place.error(FormulaArguments, f"{len(args)} arguments are given to {spelled}")
    given = dict(zip(parameters, args, strict=False))
    for word, value in keywords.items():
        if word not in parameters or word in given:
            cure = did_you_mean(word, parameters)
            raise place.error(FormulaArguments, f"{spelled} takes no '{word}' there", help=cure)
        given[word] = value
    first = len(parameters) - len(function.defaults)
    defaults = dict(zip(parameters[first:], map(number, function.defaults), strict=True))
    values = {**defaults, **given}
    nodes: list[Node] = []
    for word in parameters:
        value = values.get(word)
        if not isinstance(value, Node):
            what = "is missing" if value is None else "is a text"
            raise place.error(FormulaArguments, f"'{word}' of {spelled} {what}")
        nodes.append(value)
    return nodes


FormulaOutputs = Rule("PB137", "formula-outputs")


class Reader(TreeReader):
    """Reads expressions of a user."""

    def apply(self, tree: ast.expr, name: str, *args: Node) -> Node:
        """Return an operator's or a function's node."""
        return build_call(name, args, {}, FormulaPlace(self.of, self.shown(tree)))

    def call(self, tree: ast.Call, name: str) -> Node:
        """Return the call of a function."""
        self.require_written(tree)
        # Not by a method of its own, which would be one more on Python's stack.
        args = [self.expression(a) if (text := word(a)) is None else text for a in tree.args]
        keywords = {
            str(k.arg): self.expression(k.value) if (text := word(k.value)) is None else text
            for k in tree.keywords
        }
        return build_call(name, args, keywords, FormulaPlace(self.of, self.shown(tree)))

    def require_written(self, tree: ast.Call) -> None:
        """Stop at arguments with stars."""
        starred = any(isinstance(arg, ast.Starred) for arg in tree.args)
        if starred or any(word.arg is None for word in tree.keywords):
            raise FormulaArguments.error(
                f"{self.of}: a formula's arguments are written out", at=self.shown(tree)
            )


def word(tree: ast.expr) -> str | None:
    """Return an argument that is a string, `approximate="tanh"`; None if it is not one."""
    return tree.value if isinstance(tree, ast.Constant) and isinstance(tree.value, str) else None
