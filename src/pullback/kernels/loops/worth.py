"""When loops are not worth it: contractions, which libraries do better, and repeated work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pullback.define.math import derived
from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.define.math.node import (
    EQUAL,
    INSIDE,
    PLACED,
    READ,
    REDUCTIONS,
    SUM,
    Node,
    in_order,
    is_number,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.subscripts import is_data
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import Output
from pullback.kernels.loops.scope import RefusedLoops

# Above this size of everything in it, a matrix product is left to PyTorch's library.
SMALL = 16
# What it takes to read an element at a place that data gives.
GATHERED = 2.0
# The families in which data says what is read or added, or a place is divided. PyTorch's operations
# move that several times, so that a loop may do more.
GATHER, SCATTER = "gather", "scatter"
MOST_BY_DATA = 512.0
# A value may be computed as many times as this, on the average.
MOST = 8.0


def most_work(family: str) -> float:
    """Return how many times the necessary work a loop of a family may do."""
    return MOST_BY_DATA if family in (GATHER, SCATTER) else MOST


def require_no_contraction(
    outputs: Iterable[Output], ranges: Mapping[str, Affine], sizes: Mapping[str, int]
) -> None:
    """Refuse a product of matrices.

    Raises:
        Refused: two tensors are multiplied and summed, each with an index that the other lacks.
    """
    known = Ranges(ranges)
    for node in iter_opened(outputs, known):
        if node.op == SUM and is_contraction(node, Extents(sizes), known):
            raise RefusedLoops("a contraction, which PyTorch's matrix products are faster at")


def is_contraction(node: Node, extents: Extents, ranges: Ranges) -> bool:
    """Return whether a sum is that of a product of matrices which are not small."""
    bound: dict[str, Affine] = {}
    body = node
    while body.op == SUM or is_part(body, bound):
        if body.op == SUM:
            bound[body.bound] = body.size
            (body,) = body.args
        else:
            _, body, _ = body.args
    reads = split_factors(body)
    # Where rows are picked, a sum of theirs may be one matrix of a product.
    if any(factor.op != READ for factor in reads) and not any(
        part.op == READ and part.args for part in in_order([body])
    ):
        return False

    def large(index: str) -> bool:
        return (extents.number(bound.get(index) or ranges.size(index)) or 0) > SMALL

    summed = {index for index in bound if large(index)}
    outer = {index for index in node.free if large(index)}
    return any(
        summed & a.free & b.free and outer & (a.free - b.free) and outer & (b.free - a.free)
        for a in reads
        for b in reads
    )


def is_part(body: Node, bound: Mapping[str, Affine]) -> bool:
    """Return whether a condition leaves a part of a summed range, and so a product of matrices.

    As of the steps of a recurrence, whose first one has none before it.
    """
    if body.op != "where" or body.args[0].op != INSIDE:
        return False
    condition, _, other = body.args
    return len(condition.free) == 1 and condition.free <= bound.keys() and is_number(other, 0.0)


def iter_opened(outputs: Iterable[Output], ranges: Ranges) -> Iterator[Node]:
    """Yield every node once, in the bodies of reductions too, with a name for the bound index."""
    seen: set[Node] = set()
    left = [output.node for output in outputs]
    while left:
        root = left.pop()
        for node in in_order([root], lambda part: () if part.op in REDUCTIONS else part.args):
            if node in seen:
                continue
            seen.add(node)
            yield node
            if node.op in REDUCTIONS:
                index = f"~{node.height}:{node.size}"
                ranges.sizes[index] = node.size
                left.append(graph.rename_index(node.args[0], node.bound, index))


def split_factors(node: Node) -> list[Node]:
    """Return the factors of a product."""
    found = [node]
    while any(part.op in ("mul", "neg") for part in found):
        found = [
            factor
            for part in found
            for factor in (part.args if part.op in ("mul", "neg") else [part])
        ]
    return [factor for factor in found if factor.free]


def count_needed(
    outputs: Iterable[Output], ranges: Mapping[str, Affine], sizes: Mapping[str, int]
) -> float:
    """Return the scalar operations that are needed if every value is computed once."""
    extents, known = Extents(sizes), Ranges(ranges)
    total = 0.0
    for node in iter_opened(outputs, known):
        times = math.prod(extents.number(known.size(index)) or 0 for index in node.free)
        if node.op in REDUCTIONS:
            total += times * (extents.number(node.size) or 0)
        elif node.op == READ and node.args:
            total += GATHERED * times
        elif node.op in PLACED:
            total += times
        else:
            total += times * derived.estimate_work(node)
    return total


def is_picked(node: Node) -> bool:
    """Return whether a node is a read of what data picks."""
    return node.op == READ and any(map(is_data, node.places))


def picks_rows(outputs: Iterable[Output], ranges: Ranges) -> bool:
    """Return whether data says what is read for some outputs."""
    return any(map(is_picked, iter_opened(outputs, Ranges(ranges.sizes))))


def row_length(outputs: Sequence[Output], ranges: Ranges, sizes: Mapping[str, int]) -> int | None:
    """Return how long the rows are that data picks or adds to, at most; None without such rows."""
    nodes = list(iter_opened(outputs, ranges))
    picked = [node for node in nodes if is_picked(node)]
    if not picked and not any(node.op == EQUAL and node.args for node in nodes):
        return None
    ends = [read.places[-1].index for read in picked]
    ends += [output.indices[-1] if output.indices else None for output in outputs]
    extents = Extents(sizes)
    lengths = [end and extents.number(ranges.size(end)) for end in ends]
    return max(map(int, filter(None, lengths))) if all(lengths) else None


def name_family(nodes: Sequence[Node], lane: str | None) -> str:
    """Return which of the families some loops are of."""
    every = list(in_order(nodes))
    if any(part.op == EQUAL and part.places[0].nodes for part in every):
        return SCATTER
    reads = [node for node in every if node.op == READ]
    if any(is_shifted(place) for node in reads for place in node.places):
        return "stencil"
    if any(part.args for part in reads):
        return GATHER
    reduced = [node for node in every if node.op in REDUCTIONS]
    along = lane is None or any(lane not in node.free for node in reduced)
    return "row reduction" if along else "pairwise sum"


def is_shifted(place: Affine) -> bool:
    """Return whether a place is more than one index alone."""
    return place.index is None and bool(place.free) and not place.nodes
