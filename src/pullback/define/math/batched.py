"""A formula with one dimension more: what `torch.vmap` of it is."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from pullback.define.line import Line, Name, Tensor
from pullback.define.math.derived import UNWRITTEN
from pullback.define.math.draft import name_of
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at
from pullback.define.math.node import READ, Node, in_order, place_of, read, remake


def add_dimension(formula: Formula, batched: Set[str], dimension: str) -> Formula:
    """Return a formula in which some tensors, and so all outputs, have one dimension more.

    Args:
        formula: any one.
        batched: the tensors that have the dimension.
        dimension: its name, which comes first.
    """
    return replace(
        formula,
        line=_add_dimension_to_line(formula.line, batched, dimension),
        elements=_add_index(formula.elements, batched, dimension),
        dims=(Name(name=dimension), *formula.space.dims) if formula.pointwise else None,
        full=formula.full & batched,
    )


def _add_dimension_to_line(line: Line, batched: Set[str], dimension: str) -> Line:
    """Return a line whose outputs and some of whose tensors have one dimension more, the first."""

    def wider(tensor: Tensor) -> Tensor:
        return replace(tensor, dims=(Name(name=dimension), *tensor.dims))

    return Line(
        namespace=line.namespace,
        name=name_of(line, "vmap"),
        parameters=tuple(
            wider(p) if isinstance(p, Tensor) and p.name in batched else p for p in line.parameters
        ),
        outputs=tuple(map(wider, line.outputs)),
        formula=UNWRITTEN,
    )


def _add_index(nodes: Sequence[Node], names: Set[str], index: str) -> tuple[Node, ...]:
    """Return expressions in which some tensors are read with one index more, their first."""
    made: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {}
    for node in in_order(nodes):
        args = tuple(made[arg] for arg in node.args)
        made[node] = remake(node, args, lambda place: place.replaced(others))
        if node.op == READ and node.name in names:
            made[node] = read(node.name, (at(index), *made[node].places), node.type)
        if node.type == "int":
            others[node] = place_of(made[node])
    return tuple(made[node] for node in nodes)
