"""Tiles: sums of several rows by several vectors in registers, through a loop of any length.

A sum over d for each n and m, such as a distance, reads in each turn of its loop one element for
each n and one for each m. Four rows of n by two vectors of m are eight sums of six reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pullback.define.math.node import READ, REDUCTIONS, Node, in_order
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops import sums
from pullback.kernels.loops.abreast import count_copies, count_lanes, is_across
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Nest, Output

# Values of the lanes' index that a task has: as much as stays in a cache while rows go by.
BLOCK = 256


def tile(nest: Nest, setting: KernelSetting, sizes: Mapping[str, int]) -> Iterator[Nest]:
    """Yield a nest whose sums have a loop inside of the lanes', as tiles.

    If such a loop is in that of another sum, the rows are turns of the latter; else they are values
    of the last outer index.
    """
    nodes = [n for n in in_order(o.node for o in nest.outputs) if n.op in REDUCTIONS]
    if nest.small or nest.picks or not nodes or gathers(nest.outputs) or not is_across(nest):
        return
    is_nested = any(is_loop(node, setting) and has_inner(node) for node in nodes)
    needed = -(-count_lanes(nest, setting, sizes) // setting.target.lanes)
    copies = count_copies(nest.outputs, nest.small, setting)
    for rows, vectors in setting.target.tiles:
        wide = replace(nest, vectors=min(vectors, needed), rows=1)
        if is_nested:
            yield replace(wide, turns=rows)
        elif nest.outer and nest.over is None and nest.outer[-1] not in setting.rows:
            yield replace(wide, rows=max(1, rows // copies), block=BLOCK)


def hold(
    outputs: Sequence[Output], shared: Sequence[str], setting: KernelSetting, over: str | None
) -> Iterator[Nest]:
    """Yield the nests in which one loop goes through the sums of all values of an index."""
    every = dict.fromkeys(i for output in outputs for i in output.indices)
    for index in every:
        if not shares_parts(outputs, index, setting) or any(
            i not in (*shared, index) for i in every
        ):
            continue
        for lane in shared:
            for rows, vectors in setting.target.tiles if lane != index else ():
                nest = Nest(
                    outputs=tuple(outputs),
                    lane=lane,
                    outer=tuple(i for i in shared if i not in (lane, index)),
                    over=over,
                    over_size=None if over is None else Ranges(setting.ranges).size(over),
                    vectors=vectors,
                    turns=rows,
                    inner=(index,),
                )
                if is_across(nest):
                    yield nest


def shares_parts(outputs: Sequence[Output], index: str, setting: KernelSetting) -> bool:
    """Return whether the sums of all values of an index have sums in them that are the same."""
    if setting.rows or gathers(outputs) or any(o.node.type != "real" for o in outputs):
        return False
    return any(
        index in node.free and is_loop(node, setting) and has_inner(node, without=index)
        for node in in_order(output.node for output in outputs)
    )


def gathers(outputs: Sequence[Output]) -> bool:
    """Return whether data says what is read."""
    reads = (node for node in in_order(o.node for o in outputs) if node.op == READ)
    return any(place.nodes for read in reads for place in read.places)


def is_loop(node: Node, setting: KernelSetting) -> bool:
    """Return whether a node is a reduction that is not unrolled."""
    extent = Extents(setting.known).number(node.size) if node.op in REDUCTIONS else 0
    return extent is None or extent > sums.MOST_IN_TILE


def has_inner(node: Node, without: str = "") -> bool:
    """Return whether a reduction depends on the index of the one that it is in."""
    inside = (part for part in in_order(node.args) if part.op in REDUCTIONS)
    return any(node.bound in part.free and without not in part.free for part in inside)
