"""Weights that are divided by their sum: PyTorch has an operation for `exp(a - max(a))/sum(...)`.

`sum[t](w[t]*v[t])/z` with `w[t] = exp(a[t] - max[r](a[r]))` and `z = sum[t](w[t])` is written as
`sum[t]((w[t]/z)*v[t])` here: the weights themselves are divided, whatever is around them. They are
between 0 and 1 and z is at least 1, so this neither overflows nor rounds more than it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math import build
from pullback.define.math.node import MAX, SUM, Node, close, in_order, rename_index
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import add_parts, split_sum, term_of


def is_total(node: Node) -> bool:
    """Return whether a node is `sum[t](exp(a[t] - max[r](a[r])))`."""
    if node.op != SUM or node.args[0].op != "exp" or node.args[0].args[0].op != "sub":
        return False
    a, most = node.args[0].args[0].args
    if most.op != MAX or most.size != node.size or node.bound not in a.free - most.free:
        return False
    return rename_index(a, node.bound, "~") is rename_index(most.args[0], most.bound, "~")


def match_softmax(node: Node) -> tuple[Node, str] | None:
    """Return `a` and its index where a node is `exp(a - max(a))/sum(exp(a - max(a)))`."""
    if node.op != "div" or not is_total(node.args[1]):
        return None
    index = _index_of(*node.args)
    return None if index is None else (node.args[0].args[0].args[0], index)


def _index_of(weight: Node, total: Node) -> str | None:
    """Return the index by which a node is one of the weights of a total; None if it is not one."""
    if weight.op != "exp":
        return None
    for index in weight.free - total.free:
        if rename_index(total.args[0], total.bound, index) is weight:
            return index
    return None


def group_weights(
    over: Sequence[Node], under: Sequence[Node]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return the factors and divisors of a product, with weights over their sum as one factor."""
    factors, divisors = list(over), list(under)
    for total in filter(is_total, under):
        weight = next((w for w in factors if _index_of(w, total) is not None), None)
        if weight is not None:
            factors[factors.index(weight)] = build.apply("div", weight, total)
            divisors.remove(total)
    return tuple(factors), tuple(divisors)


def normalize(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return expressions in which weights are divided by their sum before all else."""
    if not any(map(is_total, in_order(nodes))):
        return tuple(nodes)
    ranges = Ranges()
    return rewrite_nodes(nodes, lambda node: _rewrite(node, ranges), ranges)


def _rewrite(node: Node, ranges: Ranges) -> Node:
    if node.op == "div" and is_total(node.args[1]):
        return divide(node.args[0], node.args[1], ranges) or node
    if node.op == "mul":
        for factor, weight in (node.args, node.args[::-1]):
            rest, total = factor_total(factor)
            weights = None if total is None else divide(weight, total, ranges)
            if weights is not None:
                return build.apply("mul", rest, weights)
    return node


def divide(node: Node, total: Node, ranges: Ranges) -> Node | None:
    """Return a product divided by a total of weights, one of which is a factor; None if none is.

    Nor is one that a condition selects: where it selects none of a row, 0 is divided by the total,
    which may be NaN.
    """
    term = term_of(node)
    if total in term.under or term.conditions:
        return None  # its weights are divided already, or a total of NaN would be left out
    for place, factor in enumerate(term.over):
        part = None
        if _index_of(factor, total) is not None:
            part = build.apply("div", factor, total)
        elif factor.op == SUM:
            index, body = ranges.opened(factor)
            inner = divide(body, total, ranges)
            part = inner and close(SUM, index, factor.size, inner)
        if part is not None:
            return replace(term, over=(*term.over[:place], part, *term.over[place + 1 :])).node
    return None


def factor_total(node: Node) -> tuple[Node, Node | None]:
    """Return a sum without the total of weights that divides all its terms, and that total."""
    parts = split_sum(node)
    totals = {part.args[1] if part.op == "div" else None for _, part in parts}
    total = totals.pop()
    if totals or total is None or not is_total(total):
        return node, None
    return add_parts((sign, part.args[0]) for sign, part in parts), total
