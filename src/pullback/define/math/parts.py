"""Sums that are added up from parts: expressions that are one, wherever the sum stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.define.math import build
from pullback.define.math.index import Affine
from pullback.define.math.node import SUM, Node, close, in_order, is_number, rename_index


def open_sums(node: Node, sizes: Mapping[str, Affine]) -> Node | None:
    """Return the element of which an expression is the sum over some indices; None if it is none.

    `x*sum[s](B*sum[d](h))` is the sum over d of `x*sum[s](B*h)`.

    Args:
        node: the expression, without these indices.
        sizes: how far each goes.
    """
    element: Node | None = node
    for index, size in sizes.items():
        element = element and _open_sum(element, size, index)
    return element


def _open_sum(node: Node, size: Affine, index: str) -> Node | None:
    if _is_over(node, size):
        return rename_index(node.args[0], node.bound, index)
    if is_number(node, 0):
        return node
    if node.op == SUM:
        other = f"{index}{node.bound}"
        body = rename_index(node.args[0], node.bound, other)
        element = _open_sum(body, size, index)
        return element and close(SUM, other, node.size, element)
    terms, factors = _split(node, size)
    if not terms or any(_is_over(part, size) for part in in_order(factors)):
        return None
    opened = {term: _open_sum(term, size, index) for term in terms}
    args = [opened.get(each, each) for each in node.args]
    found = [each for each in args if each is not None]
    return build.apply(node.op, *found) if len(found) == len(args) else None


def _is_over(node: Node, size: Affine) -> bool:
    return node.op == SUM and node.size == size and node.type == "real"


def _split(node: Node, size: Affine) -> tuple[Sequence[Node], Sequence[Node]]:
    """Return the operands in which an operation is linear, and its others; none of another one."""
    match node.op, node.args:
        case (("neg" | "add" | "sub"), _):
            return node.args, ()
        case "where", [condition, one, other]:
            return (one, other), (condition,)
        case "mul", [one, other]:
            is_first = any(_is_over(part, size) for part in in_order([one]))
            return ((one,), (other,)) if is_first else ((other,), (one,))
        case "div", [one, other]:
            return (one,), (other,)
        case _:
            return (), ()
