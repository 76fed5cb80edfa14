"""The addends of a recurrence's step in the order in which their states are known.

In `b*x - a1*y[t - 1] - a2*y[t - 2]` the next step waits for whatever is added after the newest
state, so that comes last: `b*x - a2*y[t - 2] - a1*y[t - 1]`. A compiler may not do that with
floating-point numbers; in a loop it is done for every step, and everywhere alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.define.math import reduce
from pullback.define.math.index import at
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import reads_of
from pullback.define.math.term import add_parts
from pullback.kernels.loops.nest import KernelSetting, Output


def order_addends(
    outputs: Sequence[Output], sequential: tuple[str, int], setting: KernelSetting
) -> tuple[Output, ...]:
    """Return what is computed in one walk over the steps, with the newest states added last."""
    time = sequential[0]
    times = {o.name: o.indices.index(time) for o in outputs if time in o.indices}
    nodes = [output.node for output in outputs]
    nodes = put_newest_last(nodes, times, sequential, Ranges(setting.ranges))
    return tuple(replace(o, node=node) for o, node in zip(outputs, nodes, strict=True))


def put_newest_last(
    nodes: Sequence[Node],
    times: Mapping[str, int],
    sequential: tuple[str, int],
    ranges: Ranges,
) -> tuple[Node, ...]:
    """Return expressions whose sums add what reads the newest state last.

    What is compensated is left as it is: where a state is read in two addends, what one of them
    rounds the other takes off again.

    Args:
        nodes: the elements of states and of what is computed with them.
        times: of each state which of its dimensions the steps are.
        sequential: the index of the steps, and its direction.
        ranges: of all indices.
    """

    def known(node: Node) -> Node | None:
        parts = _split(node) if node.type == "real" else []
        reads = Counter(each for _, part in parts for each in {*reads_of([part], times)})
        if len(parts) <= 2 or not reads or max(reads.values()) > 1:
            return None
        ordered = sorted(parts, key=lambda own: -_count_back(own[1], times, sequential))
        return add_parts(ordered) if ordered != parts else None

    return reduce.rewrite_nodes(nodes, lambda each: each, ranges, known)


def _split(node: Node) -> list[tuple[int, Node]]:
    """Return the addends of a sum as it is written, each with its sign; not those in brackets."""
    found: list[tuple[int, Node]] = []
    while node.op in ("add", "sub"):
        first, last = node.args
        found.insert(0, (1 if node.op == "add" else -1, last))
        node = first
    return [(1, node), *found]


def _count_back(node: Node, times: Mapping[str, int], sequential: tuple[str, int]) -> float:
    """Return how many steps back the newest state lies that an addend reads."""
    index, direction = sequential
    shifts = (read.places[times[read.name]] - at(index) for read in reads_of([node], times))
    return min((-shift.constant * direction for shift in shifts), default=math.inf)
