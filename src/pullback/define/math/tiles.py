"""Values of two indices at once, tiles: where they are computed, under one index for each range.

A reduction is opened with the index of its range, whatever it is nested in. So what is equal in two
reductions is one node, and an output's own indices are those that reductions over them have.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.define.math.index import BATCH, Affine
from pullback.define.math.index import size as size_of
from pullback.define.math.node import (
    EQUAL,
    NUMBER,
    READ,
    REDUCTIONS,
    SCALAR,
    SUM,
    Node,
    close,
    in_order,
    index,
    place_of,
    rename_index,
)
from pullback.define.math.solve import solve
from pullback.define.math.term import Term, term_of

# The two indices that blocks are taken of.
Pair = frozenset[str]


@dataclass
class Indices:
    """One index for each range, wherever it is reduced over; more where two are needed at once."""

    ranges: dict[str, Affine] = field(default_factory=dict[str, Affine])

    def of(self, extent: Affine, taken: Iterable[str]) -> str:
        """Return the index of a range, other than those taken."""
        used = set(taken)
        stem = _stem(extent)
        while any(own != extent for name, own in self.ranges.items() if _stem_of(name) == stem):
            stem += "_"
        # Numbered by range: in whatever order they are asked for, ranges have the same indices.
        free = next(name for k in itertools.count() if (name := f"{stem}__{k}") not in used)
        self.ranges[free] = extent
        return free

    def is_of_batch(self, index: str) -> bool:
        """Return whether an index runs over the batch: over as many dimensions as a call has."""
        return index == BATCH or self.ranges.get(index) == size_of(BATCH)

    def opened(self, reduction: Node) -> tuple[str, Node]:
        """Return the index of a reduction, and its body."""
        index = self.of(reduction.size, reduction.free)
        return index, rename_index(reduction.args[0], reduction.bound, index)

    def opened_product(self, reduction: Node) -> tuple[list[str], Node]:
        """Return the indices of sums over one product, and that.

        The order of `sum[n, r](t[r, n, m]*q[r, n, d])` says nothing: summed over r alone it has
        more indices than each of its factors.
        """
        index, body = self.opened(reduction)
        indices = [index]
        while reduction.op == body.op == SUM and not is_contained(body):
            index, body = self.opened(body)
            indices.append(index)
        return indices, body

    def ordered(self, reduction: Node, pairs: Sequence[Pair]) -> Node:
        """Return sums over one product such that the innermost is over an index of its tiles."""
        indices, body = self.opened_product(reduction)
        if len(indices) < 2:
            return reduction
        sides = [p for p in pairs if any(p <= part.free for part in computed_parts(body))]
        indices.sort(key=lambda own: any(own in pair for pair in sides))
        for own in reversed(indices):
            body = close(SUM, own, self.ranges[own], body)
        return body


def _stem(extent: Affine) -> str:
    """Return a range in letters, digits and underscores: most often the name of a dimension."""
    text = str(extent).replace("|", "").replace("+", "plus").replace("-", "minus")
    return re.sub(r"\W|^(?=\d)", "_", text.replace(" ", ""))


def _stem_of(name: str) -> str:
    return name.rpartition("__")[0]


def open_outputs(
    nodes: Sequence[Node], labels: Sequence[Sequence[str]], sizes: Mapping[str, Affine]
) -> tuple[Indices, list[Node], list[tuple[str, ...]]]:
    """Return outputs whose own indices are those that reductions have too.

    Args:
        nodes: the elements of the outputs.
        labels: their indices.
        sizes: how far the indices run that are no dimensions.
    """
    indices, opened, named = Indices(), list[Node](), list[tuple[str, ...]]()
    for node, own in zip(nodes, labels, strict=True):
        new: list[str] = []
        for label in own:
            index = label
            if label != BATCH:
                index = indices.of(sizes.get(label) or size_of(label), new)
                node = rename_index(node, label, index)  # noqa: PLW2901  (one index after another)
            new.append(index)
        opened.append(node)
        named.append(tuple(new))
    return indices, opened, named


def find_tiles(nodes: Sequence[Node], indices: Indices) -> Iterator[tuple[Pair, Node]]:
    """Yield the values of two indices that are computed within a reduction over one of them."""
    left, seen = list(nodes), set[Node]()
    while left:
        root = left.pop()
        for node in in_order([root], _within):
            if node.op in REDUCTIONS and node not in seen:
                seen.add(node)
                if placed := open_placed(node, indices):
                    left.append(placed.body)
                    for part in computed_parts(placed.body):
                        for pair in itertools.combinations(sorted(placed.moving & part.free), 2):
                            yield frozenset(pair), part
                    continue
                summed, body = indices.opened_product(node)
                left.append(body)
                for own, part in itertools.product(summed, computed_parts(body)):
                    if indices.is_of_batch(own) or own not in part.free:
                        continue  # no side of a block
                    for other in part.free - {own}:
                        if not indices.is_of_batch(other):
                            yield frozenset((own, other)), part


def find_product_tiles(
    nodes: Sequence[Node], labels: Sequence[Sequence[str]], sizes: Mapping[str, Affine]
) -> Iterator[tuple[Pair, Node]]:
    """Yield the tiles of some outputs that are products of matrices.

    Args: as `open_outputs`.
    """
    indices, opened, _ = open_outputs(nodes, labels, sizes)
    for pair, node in find_tiles(opened, indices):
        if node.op in REDUCTIONS and node.type == "real":
            yield pair, node


@dataclass(frozen=True, kw_only=True)
class Placed:
    """`sum[over](where(label == place, body, 0))`: a tile's values go where its indices say.

    Attributes:
        over: the indices that are summed over.
        places: for each of the sum's indices that is decided, where values go.
        names: the name that each of these has here: another one than those that are summed over.
        body: the values.
    """

    over: tuple[str, ...]
    places: tuple[tuple[str, Affine], ...]
    names: Mapping[str, str]
    body: Node

    @property
    def moving(self) -> frozenset[str]:
        """The indices that are summed over and decide a place."""
        return frozenset[str]().union(*(place.free for _, place in self.places)) & {*self.over}


def open_placed(node: Node, indices: Indices) -> Placed | None:
    """Return a sum whose values go where several of its indices say; None if it is another one."""
    if node.op != SUM or node.type != "real":
        return None
    bound, term = open_chain(node)
    places, rest = _decide_places(term.conditions, frozenset(bound))
    term = replace(term, conditions=rest)
    if not places or term.free & places.keys():
        return None
    new: dict[str, str] = {}
    for old, extent in bound.items():
        new[old] = indices.of(extent, {*node.free, *new.values()} - places.keys())
    taken = {*node.free, *new.values()}
    names = {
        label: indices.of(indices.ranges[label], taken) if label in new.values() else label
        for label in places
    }

    def named(part: Node) -> Node:
        for old, name in new.items():
            part = rename_index(part, old, name)
        return part

    return Placed(
        over=tuple(new.values()),
        places=tuple((names[k], place_of(named(index(place)))) for k, place in places.items()),
        names=names,
        body=named(term.node),
    )


def open_chain(node: Node) -> tuple[dict[str, Affine], Term]:
    """Return the indices of sums around a product, and that: as `lower.product_of`, not grouped."""
    bound: dict[str, Affine] = {}
    conditions: tuple[Node, ...] = ()
    factor = 1.0
    while True:
        bound[node.bound] = node.size
        term = term_of(node.args[0])
        conditions += term.conditions
        factor *= term.factor
        if term.under or [part.op for part in term.over] != [SUM]:
            return bound, replace(term, conditions=conditions, factor=factor)
        (node,) = term.over


def _decide_places(
    conditions: Sequence[Node], bound: frozenset[str]
) -> tuple[dict[str, Affine], tuple[Node, ...]]:
    """Return where values go along the indices that conditions decide, and the other conditions."""
    places: dict[str, Affine] = {}
    rest: list[Node] = []
    for condition in conditions:
        free = condition.places[0].free if condition.op == EQUAL else frozenset[str]()
        solved = ((label, solve(condition, label)) for label in sorted(free - bound - {*places}))
        found = next(((label, place) for label, place in solved if place is not None), None)
        if found and len(found[1].free & bound) > 1 and found[1].free <= bound:
            places[found[0]] = found[1]
        else:
            rest.append(condition)
    return places, tuple(rest)


def computed_parts(body: Node, inside: dict[str, Affine] | None = None) -> Iterator[Node]:
    """Yield what has to be computed before a product is summed: not what is read as it is.

    Nor a condition that says where values are added (`lower.Scatter`).

    Args:
        body: of a reduction.
        inside: if given, what is computed inside of reductions in it comes too, and the sizes of
            the indices that are bound there are added to this.
    """
    term = term_of(body)
    conditions = [c for c in term.conditions if c.op != EQUAL or not c.places[0].nodes]
    roots = [body] if body.type != "real" else [*conditions, *term.over, *term.under]
    for node in in_order(roots, _within):
        if node.op not in (READ, NUMBER, SCALAR):
            yield node
        if inside is not None and node.op in REDUCTIONS:
            inside[node.bound] = node.size
            yield from computed_parts(node.args[0], inside)


def products_in(body: Node, pair: Pair) -> Iterator[Node]:
    """Yield the reductions in a body whose values are of rows and columns."""
    return (node for node in in_order([body]) if node.op in REDUCTIONS and pair <= node.free)


def is_contained(reduction: Node) -> bool:
    """Return whether a factor of what is reduced has all indices that the reduction has."""
    term = term_of(reduction.args[0])
    return any(reduction.free <= f.free for f in (*term.conditions, *term.over, *term.under))


def is_outer(part: Node) -> bool:
    """Return whether a value has more indices than each that it is computed of.

    The outer difference `x[n, d] - y[m, d]` has, and `exp(s[n, m] - u[n])` has not.
    """
    known = (node for node in in_order([part], _within) if not _within(node))
    return part.type == "real" and not any(part.free <= node.free for node in known)


def _within(node: Node) -> tuple[Node, ...]:
    return () if node.op in REDUCTIONS else node.args
