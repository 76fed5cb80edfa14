"""Expressions made anew from their operands, also inside of sums and maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.define.math.node import PLACED, REDUCTIONS, Node, close, in_order, remade
from pullback.define.math.ranges import Ranges


def rewritten(
    nodes: Sequence[Node],
    change: Callable[[Node], Node],
    ranges: Ranges,
    known: Callable[[Node], Node | None] = lambda node: None,
) -> tuple[Node, ...]:
    """Return expressions in which each function of changed operands is changed itself.

    Args:
        nodes: the expressions.
        change: what a function's value is made to, when its operands have been.
        ranges: of their indices.
        known: what stands for an expression whose operands need no look.
    """
    made: dict[Node, Node] = {}

    def operands(node: Node) -> tuple[Node, ...]:
        if node not in made and (other := known(node)) is not None:
            made[node] = other
        if node in made:
            return ()
        if node.op in REDUCTIONS:
            return (ranges.opened(node, alone=False)[1],)
        return () if node.op in PLACED else node.args

    for node in in_order(nodes, operands):
        args = tuple(made[arg] for arg in operands(node))
        if node in made:
            continue
        if node.op in REDUCTIONS:
            made[node] = close(node.op, ranges.opened(node, alone=False)[0], node.size, args[0])
        elif args:
            made[node] = change(remade(node, args, lambda place: place))
        else:
            made[node] = node
    return tuple(made[node] for node in nodes)
