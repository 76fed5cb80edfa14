"""Reads at the place of a maximum over a few values, as a choice among these.

`x[argmax[k < 3](y[k])]` is the sum of `where(argmax[k < 3](y[k]) == k, x[k], 0)`: each lane reads
all three and neighbours read neighbours, where each would read a place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math import node as graph
from pullback.define.math.index import Affine, at
from pullback.define.math.node import ARGMAX, READ, SUM, Node, close, in_order, place_of
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import select
from pullback.kernels.loops.nest import KernelSetting, Output

# Values that are read for one, at most.
MOST_CHOICES = 32


def write_choices(outputs: Sequence[Output], setting: KernelSetting) -> list[Output]:
    """Return outputs without reads at the places of maxima over a few values.

    In sums it would be too much to write.
    """
    nodes = [output.node for output in outputs]
    if not any(part.op == SUM for part in in_order(nodes)):
        nodes = write_as_choices(nodes, Ranges(setting.ranges))
    return [replace(output, node=node) for output, node in zip(outputs, nodes, strict=True)]


def write_as_choices(nodes: Sequence[Node], ranges: Ranges) -> Sequence[Node]:
    """Return expressions without reads at the places of maxima over a few values."""

    def choose(read: Node) -> Node | None:
        if read.op != READ or read.type != "real":
            return None
        maxima = [part for place in read.places for part in place.nodes if part.op == ARGMAX]
        if not maxima or any(part.size.terms for part in maxima):
            return None
        places = dict.fromkeys(maxima)
        if math.prod(part.size.constant for part in places) > MOST_CHOICES:
            return None
        opened = {part: ranges.fresh(part.size) for part in places}
        others: dict[str | Node, Affine] = {part: at(index) for part, index in opened.items()}
        found = graph.remake(read, (), lambda place: place.replaced(others))
        for part, index in opened.items():
            [place] = write_as_choices([part], ranges)
            here = graph.equal(place_of(place) - at(index))
            found = close(SUM, index, part.size, select([here], found))
        return found

    return rewrite_nodes(nodes, lambda node: node, ranges, choose)
