"""Formulas some of whose tensors are None: these count as zeros, and drop out."""

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
    """Return expressions without the tensors that are None, which count as zeros.

    A product with one of them drops out: multiplied by 0 it could be NaN.
    """
    rebuilt: dict[Node, Node | None] = {}
    for node in in_order(nodes):
        args = [rebuilt[arg] for arg in node.args]
        if node.op == READ and node.name in absent:
            rebuilt[node] = None
        elif node.op in PLACED or (None not in args and node.op in REDUCTIONS):
            rebuilt[node] = _rebuild_operands(node, rebuilt)
        elif None not in args:
            rebuilt[node] = build.rebuild(node, tuple(a for a in args if a)) if args else node
        else:
            rebuilt[node] = _drop_zeros(node, args)
    return tuple(rebuilt[node] or number(0.0) for node in nodes)


def _rebuild_operands(node: Node, rebuilt: Mapping[Node, Node | None]) -> Node:
    """Return an indexed node with its new operands, those in its indices too."""
    args = tuple(rebuilt[arg] or number(0) for arg in node.args)
    if args == node.args:
        return node
    others: dict[str | Node, Affine] = {
        old: place_of(new) for old, new in zip(node.args, args, strict=True) if new.type == "int"
    }
    return remake(node, args, lambda place: place.replaced(others))


def _drop_zeros(  # noqa: PLR0911  (one a kind)
    node: Node, args: list[Node | None]
) -> Node | None:
    """Return a node simplified for operands that are zero; None if it is zero itself."""
    match node.op, args:
        case ("sum" | "max", _):
            return None
        case ("argmax", _):
            return number(0)
        case (
            ("mul" | "neg" | "powi" | "real" | "stop", _)
            | ("div", [None, _])
            | ("where", [_, None, None])
        ):
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
