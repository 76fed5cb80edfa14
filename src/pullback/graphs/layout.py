"""Where nodes stand: in boxes, one for each call of a module, and in rows from outputs to leaves.

A row holds what is equally far from the outputs, boxes that are nested in this one too. Edges that
pass a row have a narrow place in it. Positions in pixels are the drawer's affair, so that a box may
be folded without another layout. Within rows the order is that of the barycentres.

Source: K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system
structures" (1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, Union

if TYPE_CHECKING:
    from pullback.graphs.data import Edge, Graph

T = TypeVar("T")

SWEEPS = 6
# A box with more rows to pass than this has no places for edges that pass.
MOST_PASSING = 4000


@dataclass(frozen=True)
class Link:
    """An edge of the graph with both of its ends."""

    start: Edge
    end: Edge


@dataclass(frozen=True)
class Route:
    """The part of a link in one box: between two things in it, or None where it leaves the box."""

    link: Link
    start: Edge | int | None
    end: Edge | int | None


@dataclass(frozen=True)
class Passing:
    """Where a link passes a row of a box."""

    link: Link
    row: int


@dataclass(eq=False)
class Box:
    """A call of a module with what is in it; the whole graph, if it is of no module."""

    module: int | None
    rows: list[list[Item]] = field(default_factory=list["list[Item]"])

    @property
    def boxes(self) -> Iterator[Box]:
        """The boxes in it, not those in them."""
        yield from (item for row in self.rows for item in row if isinstance(item, Box))

    @property
    def count(self) -> int:
        """How many nodes, leaves and boxes are in it, not in those boxes."""
        return sum(not isinstance(item, Passing) for row in self.rows for item in row)


Item = Union["Edge", Box, Passing]
# While it is placed, a box is the number of its call.
Placed = Union["Edge", int, Passing]


def lay_out(graph: Graph) -> tuple[Box, list[Link]]:
    """Return the box of a whole graph, and its links."""
    return _Layout(graph).whole()


def choose_open(root: Box, most: int) -> set[int]:
    """Return the modules to show open, level by level, so that at most so many things are seen.

    But one box alone says nothing: it is open.
    """
    chosen: set[int] = set()
    seen, level = root.count, list(root.boxes)
    while level and (seen == 1 or seen + sum(box.count for box in level) <= most):
        seen += sum(box.count for box in level)
        chosen |= {box.module for box in level if box.module is not None}
        level = [inner for box in level for inner in box.boxes]
    return chosen


class _Layout:
    """One layout in the making."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # An edge leads to each node and to each leaf, and stands for it.
        every = {*graph.outputs, *(edge for node in graph.nodes for edge in node.edges)}
        ordered = sorted(every, key=lambda edge: edge.index)
        self.nodes = [edge for edge in ordered if edge.to == "node"]
        self.leaves = [edge for edge in ordered if edge.to == "leaf"]
        self.links = [
            Link(start, end)
            for start in self.nodes
            for end in dict.fromkeys(graph.nodes[start.index].edges)
        ]
        self.paths = {node: self.path(graph.nodes[node.index].module) for node in self.nodes}
        self.place_leaves()
        self.boxes: dict[int | None, Box] = {None: Box(None)}

    def path(self, module: int | None) -> tuple[int, ...]:
        """Return the calls that a call was made inside, the outermost first, and itself."""
        found: list[int] = []
        while module is not None:
            found.append(module)
            module = self.graph.modules[module].parent
        return tuple(reversed(found))

    def place_leaves(self) -> None:
        """Put each leaf into the innermost box that has all who use it."""
        users: dict[Edge, list[tuple[int, ...]]] = defaultdict(list)
        for link in self.links:
            if link.end.to == "leaf":
                users[link.end].append(self.paths[link.start])
        for leaf in self.leaves:
            self.paths[leaf] = _common(users[leaf]) if users[leaf] else ()

    def whole(self) -> tuple[Box, list[Link]]:
        """Fill all boxes, the innermost first: a call comes after the one it is made inside."""
        inside: dict[int | None, dict[Edge | int, None]] = defaultdict(dict)
        for item in (*self.nodes, *self.leaves):
            around: int | None = None
            for module in self.paths[item]:
                inside[around][module] = None
                around = module
            inside[around][item] = None
        links: dict[int | None, list[Route]] = defaultdict(list)
        for link in self.links:
            for around, route in self.routes(link):
                links[around].append(route)
        for module in sorted((m for m in inside if m is not None), reverse=True):
            self.boxes[module] = Box(module, self.rows(list(inside[module]), links[module]))
        return Box(None, self.rows(list(inside[None]), links[None])), self.links

    def routes(self, link: Link) -> Iterator[tuple[int | None, Route]]:
        """Yield a link's part in each box: out of some, through one, into others."""
        one: list[Edge | int] = [*self.paths[link.start], link.start]
        other: list[Edge | int] = [*self.paths[link.end], link.end]
        depth = len(_common([self.paths[link.start], self.paths[link.end]]))
        around: list[int | None] = [None, *self.paths[link.start]]
        for level in range(len(one) - 1, depth, -1):
            yield around[level], Route(link, one[level], None)
        yield around[depth], Route(link, one[depth], other[depth])
        around = [None, *self.paths[link.end]]
        for level in range(depth + 1, len(other)):
            yield around[level], Route(link, None, other[level])

    def rows(self, items: list[Edge | int], routes: list[Route]) -> list[list[Item]]:
        """Return what is in a box, in rows."""
        ends = [(r.start, r.end) for r in routes if r.start is not None and r.end is not None]
        ranks = _rank(items, ends)
        rows: list[list[Placed]] = [[] for _ in range(max(ranks.values()) + 1)]
        for item in items:
            rows[ranks[item]].append(item)
        passing = [
            range(
                -1 if r.start is None else ranks[r.start],
                len(rows) if r.end is None else ranks[r.end],
            )[1:]
            for r in routes
        ]
        narrow = sum(map(len, passing)) <= MOST_PASSING
        neighbours: list[tuple[Placed, Placed]] = []
        for route, passed in zip(routes, passing, strict=True):
            steps: list[Placed] = [] if route.start is None else [route.start]
            for rank in passed if narrow else ():
                steps.append(Passing(route.link, rank))
                rows[rank].append(steps[-1])
            steps += [] if route.end is None else [route.end]
            neighbours += pairwise(steps)
        _order(rows, neighbours)
        return [
            [self.boxes[item] if isinstance(item, int) else item for item in row] for row in rows
        ]


def _common(paths: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return how some paths begin."""
    first = paths[0]
    for depth, module in enumerate(first):
        if any(path[depth : depth + 1] != (module,) for path in paths):
            return first[:depth]
    return first


def _rank(items: list[T], links: list[tuple[T, T]]) -> dict[T, int]:
    """Return the row of each item: below all from which a link leads to it."""
    below: dict[T, list[T]] = defaultdict(list)
    waiting: dict[T, int] = dict.fromkeys(items, 0)
    for start, end in links:
        below[start].append(end)
        waiting[end] += 1
    ranks = dict.fromkeys(items, 0)
    ready = [item for item in items if not waiting[item]]
    while ready:
        item = ready.pop()
        for other in below[item]:
            ranks[other] = max(ranks[other], ranks[item] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return ranks


def _order(rows: list[list[Placed]], neighbours: Iterable[tuple[Placed, Placed]]) -> None:
    """Order rows so that what is linked stands near each other: sweeps down and up."""
    above: dict[Placed, list[Placed]] = defaultdict(list)
    below: dict[Placed, list[Placed]] = defaultdict(list)
    for start, end in neighbours:
        below[start].append(end)
        above[end].append(start)
    places: dict[Placed, float] = {}

    def note(row: list[Placed]) -> None:
        for place, item in enumerate(row):
            places[item] = (place + 0.5) / len(row)

    for row in rows:
        note(row)
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            means = {
                item: sum(places[o] for o in near[item]) / len(near[item])
                for item in row
                if near[item]
            }
            row.sort(key=lambda item, means=means: means.get(item, places[item]))
            note(row)
