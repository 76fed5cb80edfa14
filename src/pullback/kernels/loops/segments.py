"""Sums over a delta whose place is data, as sums over segments of sorted entries.

In `sum[n, k](where(v == idx[n, k], a[n, k, d], 0))` an entry (n, k) goes to one row v. Sorted by
their rows the entries of a row are a segment, so that one task adds up a row, in the order of the
entries: a loop over `e` from `begin[v]` to `end[v]`, in which n and k are read at e. A place that a
maximum decides, `idx[n, argmax[k](..)]`, has an entry for each k; those of other k add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pullback.define.math import node as graph
from pullback.define.math.index import Affine, at, size
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The entries of a sum in the order of the rows that they go to.

    Attributes:
        label: what the names of its tensors end with.
        row: the output's index that data decides.
        place: the row of an entry.
        batch: the output's indices that the place has too: each has rows of its own.
        bound: the indices of an entry, with how far they run, the outermost first.
    """

    label: str
    row: str
    place: Affine
    batch: tuple[str, ...]
    bound: tuple[tuple[str, Affine], ...]

    @property
    def size(self) -> Affine:
        """How many entries there are, with one name for all calls."""
        return size(f"~entries:{self.label}")

    @property
    def own(self) -> frozenset[str]:
        """The indices that a segment belongs to."""
        return frozenset({self.row, *self.batch})

    def end(self, which: str) -> Node:
        """Return where a row's segment begins or ends: `which` is "begin" or "end"."""
        return graph.read(f"~{which}:{self.label}", map(at, (*self.batch, self.row)), "int")

    def index_of(self, bound: str, entry: str) -> Node:
        """Return an index of an entry."""
        return graph.read(f"~at:{self.label}:{bound}", [at(entry)], "int")

    def index_names(self) -> Iterator[tuple[str, str]]:
        """Yield the indices of an entry, and what the tensors are called that have them sorted."""
        for bound, _ in self.bound:
            yield bound, f"~at:{self.label}:{bound}"

    def value_of(self, bound: str, entry: str) -> Node:
        """Return an index of an entry as a real number, which costs less to compare."""
        return graph.read(f"~value:{self.label}:{bound}", [at(entry)])

    def dims(self, ranges: Ranges) -> dict[str, tuple[Affine, ...]]:
        """Return the dimensions of the tensors that say what the order is."""
        rows = tuple(ranges.size(index) for index in (*self.batch, self.row))
        ends = {f"~{which}:{self.label}": rows for which in ("begin", "end")}
        names = [
            f"~{kind}:{self.label}:{bound}" for kind in ("at", "value") for bound, _ in self.bound
        ]
        return ends | dict.fromkeys(names, (self.size,))

    def shape(self, ranges: Ranges) -> tuple[Affine, ...]:
        """Return how far the indices of the place run: the rows' first, then the entries'."""
        return (*map(ranges.size, self.batch), *(extent for _, extent in self.bound))


def is_segment(node: Node) -> bool:
    """Return whether a reduction is a sum over a segment."""
    return any(str(term).startswith("|~entries") for term, _ in node.size.terms)


def split_segment(node: Node) -> tuple[Node, Node, Node]:
    """Return where a sum over a segment begins and ends, and what is added."""
    inside, value, _ = node.args[0].args
    over, under = inside.args
    return over.args[0], under.args[1], value
