"""The places that data gives, as operators of their own: their loops run where Python is not.

In Python PyTorch's operations compute which row an entry of a scatter goes to (`bind.loops.order`)
and whether a place that is outside of its tensor is selected (`bind.dense.places`). Here each is an
output of whole numbers, with one element for each value of the indices that it depends on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.bind.dense import places
from pullback.define.dimension import Batch, Name
from pullback.define.line import Tensor
from pullback.define.math import absent, bounds, build
from pullback.define.math import node as graph
from pullback.define.math.bounds import Gather
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, size
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.term import negate
from pullback.kernels.loops.segments import Segments

# What stands where no place is outside: csrc/library/index_tables.h.
NOWHERE = -(2**63)


def formula_of_rows(formula: Formula, segments: Segments) -> Formula:
    """Return the row of each entry of a sum over segments, the indices of the batch first."""
    bound = dict(segments.bound)
    node = graph.index(segments.place)
    return formula_of(formula, (*segments.batch, *bound), bound, node)


def find_gathers(formula: Formula, outputs: Sequence[int], present: frozenset[str]) -> list[Gather]:
    """Return the places that data gives and that may be outside, in some outputs."""
    missing = {t.name for t in formula.line.tensors if t.name not in present}
    nodes = absent.drop_absent([formula.nodes[k] for k in outputs], missing)
    found = (gather for node in nodes for gather in bounds.find_gathers(node))
    return [gather for gather in dict.fromkeys(found) if not places.is_certain(formula, gather)]


def formula_of_outside(formula: Formula, outputs: Sequence[int], gather: Gather) -> Formula:
    """Return a place where it is selected and outside its tensor, elsewhere `NOWHERE`."""
    outside = negate(graph.inside(gather.place, extent_of(formula, gather)))
    selected = outside
    for condition in gather.conditions:
        selected = build.apply("logical_and", selected, condition)
    place = graph.index(gather.place)
    node = build.apply("where", selected, place, graph.number(NOWHERE))
    bound = dict(gather.bound)
    labels = (label for k in outputs for label in formula.line.outputs[k].labels)
    free = [i for i in dict.fromkeys((*labels, *bound)) if i in node.free]
    return formula_of(formula, free, bound, node)


def extent_of(formula: Formula, gather: Gather) -> Affine:
    """Return the size of the dimension that a place is in."""
    return size(dimension_of(formula, gather))


def dimension_of(formula: Formula, gather: Gather) -> str:
    """Return the dimension that a place is in."""
    [tensor] = [t for t in formula.line.tensors if t.name == gather.read.name]
    return tensor.labels[gather.dimension]


def formula_of(
    formula: Formula, indices: Sequence[str], bound: Mapping[str, Affine], node: Node
) -> Formula:
    """Return an operator of the same inputs with one output of whole numbers.

    Args:
        formula: whose inputs.
        indices: of the output.
        bound: how far those run that are no output's.
        node: the output's element.
    """
    ranges = Ranges({**formula.sizes, **bound})
    # Names that a line may have: an index that is bound is called '#2'.
    taken = {value.name for value in formula.line.parameters} | {*formula.line.dimensions}
    free = (name for k in itertools.count() if (name := f"place{k}") not in taken)
    names = {index: index if index == BATCH else next(free) for index in indices}
    for index, name in names.items():
        node = graph.rename_index(node, index, name)
    dims = tuple(Batch() if index == BATCH else Name(name=names[index]) for index in indices)
    output = Tensor(name=next(free), dims=dims, dtype="int64")
    own = {names[index]: ranges.size(index) for index in indices if index != BATCH}
    return replace(
        formula,
        line=replace(formula.line, outputs=(output,)),
        elements=(node,),
        sizes={**formula.sizes, **own},
    )
