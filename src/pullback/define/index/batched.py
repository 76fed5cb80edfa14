"""An operator in index notation with one dimension more: what `torch.vmap` of it is."""

from __future__ import annotations

from dataclasses import replace

from pullback.define.formula.batched import line_with_dimension
from pullback.define.formula.derived import UNWRITTEN
from pullback.define.formula.formula import Formula
from pullback.define.formula.index import Affine, at
from pullback.define.formula.node import READ, Node, in_order, place_of, read, remade


def with_dimension(indexed: Formula, batched: set[str], dimension: str) -> Formula:
    """Return the formula in which some tensors, and so all outputs, have one dimension more.

    Args:
        indexed: a formula.
        batched: the tensors that have the dimension.
        dimension: its name, which comes first.
    """
    made = line_with_dimension(indexed.line, batched, dimension, UNWRITTEN)
    nodes = with_index(indexed.nodes, batched, dimension)
    return replace(indexed, line=made, elements=nodes, full=indexed.full & batched)


def with_index(nodes: tuple[Node, ...], names: set[str], index: str) -> tuple[Node, ...]:
    """Return expressions in which some tensors are read with one index more, their first."""
    made: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {}
    for node in in_order(nodes):
        args = tuple(made[arg] for arg in node.args)
        made[node] = remade(node, args, lambda place: place.replaced(others))
        if node.op == READ and node.name in names:
            made[node] = read(node.name, (at(index), *made[node].places), node.type)
        if node.type == "int":
            others[node] = place_of(made[node])
    return tuple(made[node] for node in nodes)
