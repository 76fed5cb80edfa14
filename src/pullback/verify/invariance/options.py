"""Other values for the arguments that are not tensors: those that the author's code tests for."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from torch import Tensor

from pullback.verify.call import Call, call_of
from pullback.verify.source import Text

MOST = 12
# Words that go together: code that tests for one of them often has an `else` for the others.
FAMILIES = (
    ("mean", "sum", "none", "batchmean"),
    ("max", "min", "mean", "sum", "prod", "add", "mul"),
    ("same", "valid", "full"),
    ("zeros", "reflect", "replicate", "circular", "border", "constant"),
    ("nearest", "linear", "bilinear", "bicubic", "area"),
    ("none", "tanh", "relu", "gelu", "silu", "sigmoid", "elu", "leaky_relu", "identity"),
    ("l1", "l2"),
    ("left", "right"),
    ("upper", "lower"),
)


@dataclass(frozen=True, kw_only=True)
class Option:
    """A parameter that is not a tensor.

    Attributes:
        name: of the parameter, or of a module's attribute.
        value: in the example.
        others: values to try.
        told_apart: those among them that the author's code distinguishes.
    """

    name: str
    value: object
    others: tuple[object, ...]
    told_apart: tuple[object, ...]


def options_of(call: Call) -> Iterator[Option]:
    """Yield the options of a call, those with a default that was not given among them."""
    signature = call.target.signature
    if signature is None:
        return
    given = values_given(call, signature)
    compared = values_compared(call)
    for name, parameter in signature.parameters.items():
        if name not in given or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            continue
        value = given[name]
        words = tuple(itertools.chain(compared.get(name, ()), literals_in(parameter.annotation)))
        others = [other for other in propose_values(value, words) if is_other(other, value)]
        if others:
            apart = tuple(own for own in others if is_told_apart(own, words))
            others = deduplicate([*apart, *others])[:MOST]
            yield Option(name=name, value=value, others=tuple(others), told_apart=apart)


def values_given(call: Call, signature: inspect.Signature) -> Mapping[str, Any]:
    """Return the arguments by name, defaults among them."""
    try:
        bound = signature.bind(*call.arguments, **call.keywords)
    except TypeError:
        return {}
    bound.apply_defaults()
    return bound.arguments


def set_option(call: Call, name: str, value: object) -> Call:
    """Return the call with another value of an option, or without an optional tensor."""
    signature = call.target.signature
    assert signature is not None
    bound = signature.bind(*call.arguments, **call.keywords)
    bound.apply_defaults()
    if not isinstance(bound.arguments[name], Tensor):
        other = fill_defaults(call, signature, name)
        return other.with_option(name, value)
    bound.arguments[name] = value
    wanted = {leaf.name: leaf.wanted for leaf in call.leaves}
    other = call_of(
        call.target, bound.args, bound.kwargs, seed=call.seed, intentions=call.intentions
    )
    return other.wanting([wanted.get(leaf.name, leaf.wanted) for leaf in other.leaves])


def fill_defaults(call: Call, signature: inspect.Signature, name: str) -> Call:
    """Return the call with the defaults written out, if `apply` takes no keywords."""
    names = list(signature.parameters)
    index = names.index(name)
    plain = all(
        p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for p in signature.parameters.values()
    )
    if call.target.kind != "function" or not plain or call.keywords:
        return call
    missing = names[len(call.arguments) : index + 1]
    defaults = tuple(signature.parameters[own].default for own in missing)
    return replace(call, arguments=(*call.arguments, *defaults))


def propose_values(value: object, words: tuple[object, ...]) -> list[object]:
    """Return other values of the same kind for one: those in the source first."""
    found: list[object] = []
    if isinstance(value, bool):
        found = [not value]
    elif isinstance(value, enum.Enum):
        found = list(type(value))
    elif isinstance(value, str):
        known = [word for family in FAMILIES if value in family for word in family]
        found = [*(word for word in words if isinstance(word, str)), *known]
    elif isinstance(value, int):
        # A number far from the given one may be out of range or too small for an approximation.
        near = [value + 1, value - 1, 2 * value]
        found = [*(w for w in words if isinstance(w, int)), *near]
    elif isinstance(value, float):
        mine = [w for w in words if isinstance(w, int | float) and not isinstance(w, bool)]
        found = [*map(float, mine), 0.5 * value, 1.5 * value]
    elif isinstance(value, Tensor):
        found = [None] if None in words else []
    elif value is None:
        found = [w for w in words if isinstance(w, str | int | float)]
    return found


def is_told_apart(value: object, words: tuple[object, ...]) -> bool:
    """Tell whether code has to distinguish a value: a word, a flag, or one that it names."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return not number or any(value == word for word in words if not isinstance(word, bool))


def is_other(candidate: object, value: object) -> bool:
    """Tell whether two values differ: 1 and 1.0 do, and True and 1."""
    return type(candidate) is not type(value) or bool(candidate != value)


def deduplicate(values: list[object]) -> list[object]:
    """Return each value once: 1, 1.0 and True are three."""
    return list({(type(value), value): value for value in values}.values())


def literals_in(annotation: object) -> Iterator[object]:
    """Yield the values that an annotation lists, None if it allows that."""
    if annotation is type(None):
        yield None
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        yield from annotation
    elif isinstance(annotation, str):
        yield from literals_in_text(annotation)
    else:
        for inner in get_args(annotation):
            yield from literals_in(inner)


def literals_in_text(annotation: str) -> Iterator[object]:
    """Yield the constants in an annotation that is text: `Literal["mean", "sum"] | None`."""
    try:
        tree = ast.parse(annotation)
    except SyntaxError:
        return
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))


def values_compared(call: Call) -> dict[str, list[object]]:
    """Return for each name the values that the author's code compares or looks it up with."""
    found: dict[str, list[object]] = {}
    parts = [*call.target.parts.values()]
    if call.target.kind == "module":
        parts.append(call.target.given.forward)
    elif not parts:
        parts.append(call.target.call)
    for part in parts:
        tree = Text(part).tree
        tables = {
            key: value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            for target in node.targets
            for key, value in [(ast.unparse(target), node.value)]
        }
        for node in ast.walk(tree):
            for name, value in find_comparisons(node, tables):
                found.setdefault(name, []).append(value)
    return found


def find_comparisons(node: ast.AST, tables: Mapping[str, ast.Dict]) -> Iterator[tuple[str, object]]:
    """Yield the names and values that a piece of code compares."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        names = [name_of(side) for side in sides]
        for name in filter(None, names):
            for side in sides:
                yield from ((name, value) for value in constants_in(side))
    elif isinstance(node, ast.Subscript):
        table = node.value if isinstance(node.value, ast.Dict) else None
        table = table or tables.get(ast.unparse(node.value))
        name = name_of(node.slice)
        if table is not None and name:
            keys = [key for key in table.keys if key is not None]
            yield from ((name, value) for key in keys for value in constants_in(key))
    elif isinstance(node, ast.Match) and (name := name_of(node.subject)):
        for case in node.cases:
            for inner in ast.walk(case.pattern):
                if isinstance(inner, ast.MatchValue):
                    yield from ((name, value) for value in constants_in(inner.value))


def name_of(node: ast.expr) -> str | None:
    """Return "mode" of `mode`, `ctx.mode` and `mode.lower()`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        return name_of(node.func.value)
    return None


def constants_in(node: ast.expr) -> Iterator[object]:
    """Yield the literals of an expression: of a number, a word, or a tuple of them."""
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for inner in node.elts:
            yield from constants_in(inner)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        for value in constants_in(node.operand):
            if isinstance(value, int | float):
                yield -value
