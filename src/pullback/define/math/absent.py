"""A formula of which some tensors are None: they count as zeros, with which nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.define.math import build
from pullback.define.math.index import Affine
from pullback.define.math.node import (
    PLACED,
    READ,
    REDUCTIONS,
    Node,
    in_order,
    number,
    place_of,
    remake,
)


def drop_absent(nodes: Sequence[Node], absent: set[str]) -> tuple[Node, ...]:
    """Return expressions in which some tensors are None: they count as zeros.

    A product with one of them is nothing and not a product with 0, which may be NaN.
    """
    made: dict[Node, Node | None] = {}
    for node in in_order(nodes):
        args = [made[arg] for arg in node.args]
        if node.op == READ and node.name in absent:
            made[node] = None
        elif None not in args and node.op in (*PLACED, *REDUCTIONS):
            made[node] = _rebuild_operands(node, made)
        elif None not in args:
            made[node] = build.rebuild(node, tuple(a for a in args if a)) if args else node
        else:
            made[node] = _drop_zeros(node, args)
    return tuple(made[node] or number(0.0) for node in nodes)


def _rebuild_operands(node: Node, made: Mapping[Node, Node | None]) -> Node:
    """Return an indexed node whose operands, those in its indices too, are made anew."""
    args = tuple(made[arg] or number(0) for arg in node.args)
    if args == node.args:
        return node
    others: dict[str | Node, Affine] = {
        old: place_of(new) for old, new in zip(node.args, args, strict=True) if new.type == "int"
    }
    return remake(node, args, lambda place: place.replaced(others))


def _drop_zeros(  # noqa: PLR0911  (one a kind)
    node: Node, args: list[Node | None]
) -> Node | None:
    """Return a node some of whose operands are certainly zero."""
    match node.op, args:
        case ("sum" | "max", _):
            return None
        case ("argmax", _):
            return number(0)
        case ("mul" | "neg" | "powi" | "real", _) | ("div", [None, _]) | ("where", [_, None, None]):
            return None
        case ("add", [x, y]):
            return x or y
        case ("sub", [x, None]):
            return x
        case ("sub", [_, y]):
            return y and build.apply("neg", y)
        case _:
            zero = number(0.0)
            return build.rebuild(node, tuple(arg or zero for arg in args))
