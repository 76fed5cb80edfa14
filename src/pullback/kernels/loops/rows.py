"""What the passes over a row keep for each other, and in which buffers.

A pass that computes a value, or reads one where the target keeps those, leaves it to the passes
after it. Each element is written and read by the same lane. What is kept is a read or what a
function gives, which no sum fuses and no divisor changes: so a result has the same bits whether
there is room for it or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pullback.define.math.node import READ, REDUCTIONS, Node, in_order

if TYPE_CHECKING:
    from pullback.define.math.index import Affine
    from pullback.kernels.loops.emit import Emitter

# The buffer of a value, and the run of the lanes that fills it.
Buffered = dict[Node, tuple[str, int]]


class KeptRows:
    """The values that several passes of a kernel need, as it was written last.

    If some were kept then, only of those.

    Attributes:
        spans: the first and the last run of the lanes that needs each, by their places.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        # As they come in the kernel: those further out are before the others.
        self.runs = [run for _, run in sorted(emitter.runs, key=lambda run: run[0])]
        places = {run: place for place, run in enumerate(self.runs)}
        needed = {
            node: sorted(places[run] for run in runs)
            for node, runs in emitter.uses.items()
            if len(runs) > 1 and (not emitter.buffered or node in emitter.buffered)
        }
        self.spans = {node: (found[0], found[-1]) for node, found in needed.items()}

    def __bool__(self) -> bool:
        return bool(self.spans)

    def size(self, node: Node) -> Affine:
        """Return how far the lanes run of a value."""
        [lane] = node.free & self.emitter.row_lanes
        return self.emitter.ranges.size(lane)

    def length(self, node: Node) -> int:
        """Return how many values that is, in a call of typical sizes."""
        return self.emitter.measure(self.size(node)) or 0

    def lengths(self, buffered: Buffered) -> list[int]:
        """Return how many values each buffer has, in a call of typical sizes."""
        return list({name: self.length(node) for node, (name, _) in buffered.items()}.values())

    def apart(self, nodes: Iterable[Node]) -> Buffered:
        """Return a buffer for each of some values."""
        return {
            node: (f"row{place}", self.runs[self.spans[node][0]])
            for place, node in enumerate(nodes)
        }

    def shared(self) -> Buffered:
        """Return buffers for all values, each that of an earlier one which is needed no more."""
        found: Buffered = {}
        owners: dict[str, Node] = {}
        for node in sorted(self.spans, key=lambda node: self.spans[node][0]):
            free = (name for name, owner in owners.items() if self.follows(node, owner))
            name = next(free, f"row{len(owners)}")
            owners[name] = node
            found[node] = name, self.runs[self.spans[node][0]]
        return found

    def follows(self, node: Node, owner: Node) -> bool:
        """Return whether a value is stored after the last load of another of the same length.

        In one run it is if it is computed of the other: no lane loads a value twice in a run.
        """
        first, last = self.spans[node][0], self.spans[owner][1]
        return self.size(node) == self.size(owner) and (
            last < first or (last == first and owner in self.parts(node))
        )

    def parts(self, node: Node) -> Collection[Node]:
        """Return what a value is computed of in the run that stores it."""

        def inner(part: Node) -> tuple[Node, ...]:
            is_loaded = part is not node and part in self.spans
            return () if is_loaded or part.op in REDUCTIONS else part.args

        return set(in_order([node], inner))

    def least_worth(self) -> Node:
        """Return the value to be given up where there is no room: one that can be computed."""
        return max(self.spans, key=lambda node: (node.op != READ, self.spans[node]))
