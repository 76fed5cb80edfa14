"""Polyphase form: sums of which conditions leave a few terms, each at a place of its own.

`sum[i](where(0 <= h - 2*i < 3, g[i], 0))`, the gradient of a window, has its terms at i = h//2 and
h//2 - 1: what is read for neighbours lies side by side. In a loop over i each turn would be for the
lanes of one window.

Source: P. P. Vaidyanathan, "Multirate Systems and Filter Banks" (1993), chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.define.math import build
from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.define.math.node import SUM, Node, close, in_order, number, place_of
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes, substitute
from pullback.define.math.term import add_parts, select, split_guard
from pullback.kernels.loops.bounded import Bound, bound_of_condition
from pullback.kernels.loops.nest import KernelSetting, Output
from pullback.kernels.loops.places import MOST_DIVISOR

# Terms that are written for a value, at most.
MOST_TERMS = 8


def write_phases(outputs: Sequence[Output], setting: KernelSetting) -> list[Output]:
    """Return outputs without the sums of which conditions leave a few terms."""
    phases = Phases(Ranges(setting.ranges))
    nodes = phases.expand([output.node for output in outputs])
    return [replace(output, node=node) for output, node in zip(outputs, nodes, strict=True)]


class Phases:
    """The terms of some sums.

    Attributes:
        ranges: of the indices.
        counts: how many terms have been written for a value.
    """

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.counts: dict[Node, int] = {}

    def expand(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Return expressions with the terms of such sums in place of them, inner ones first."""
        return rewrite_nodes(nodes, lambda node: node, self.ranges, self.expand_sum)

    def expand_sum(self, node: Node) -> Node | None:
        """Return the terms of a sum, or it with those of sums in it; None if it is no sum."""
        if node.op != SUM or node.type != "real":
            return None
        index, body = self.ranges.opened(node)
        conditions, within = split_guard(body)
        [value] = self.expand([within])
        used = max(self.counts.get(part, 1) for part in in_order([value]))
        for condition in conditions:
            bound = bound_of_condition(condition, index, {})
            if bound is None or not has_phases(bound):
                continue
            count, is_whole = count_terms(bound)
            if count * used <= MOST_TERMS:
                others = [own for own in conditions if not (is_whole and own is condition)]
                total = self.add_up(select(others, value), index, bound, node.size)
                self.counts[total] = count * used
                return total
        return node if value is within else close(SUM, index, node.size, select(conditions, value))

    def add_up(self, value: Node, index: str, bound: Bound, extent: Affine) -> Node:
        """Return the sum of the terms at the places that a condition leaves."""
        step = abs(bound.factor)
        # What the last place is at most, times the step.
        ahead = bound.high - bound.rest if bound.factor > 0 else bound.rest - bound.low
        last = place_of(build.apply("floor_divide", graph.index(ahead), number(step)))
        terms = list[Node]()
        for k in range(count_terms(bound)[0]):
            term = substitute(value, {index: last - k}, self.ranges)
            terms.append(select([self.ranges.inside(ahead - k * step, extent * step)], term))
        return add_parts((1, term) for term in terms)


def has_phases(bound: Bound) -> bool:
    """Return whether a condition leaves as many terms for any sizes, at multiples of an index."""
    is_known = not (bound.low.terms or bound.high.terms or bound.rest.nodes)
    return is_known and 1 < abs(bound.factor) <= MOST_DIVISOR


def count_terms(bound: Bound) -> tuple[int, bool]:
    """Return how many terms a condition leaves, and whether it holds for all of them."""
    wide, step = bound.high.constant - bound.low.constant + 1, abs(bound.factor)
    return -(-wide // step), wide % step == 0
