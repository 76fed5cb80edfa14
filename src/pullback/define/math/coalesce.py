"""Dimensions that lie side by side wherever they are become one: `x[b, c, i, j]` is `x[b, c, ij]`.

A loop over rows of 7 elements each is mostly beginnings and ends; one over the 49 of an image is
none of that. PyTorch's iterators coalesce dimensions of tensors likewise (ATen/TensorIterator.h).
Here sums over both, and quotients by both sizes, become one, too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pullback.define.dimension import Batch, Dim, Name
from pullback.define.line import Line, Tensor
from pullback.define.math import build
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import at, size
from pullback.define.math.node import (
    ARGMAX,
    INDEX,
    PLACED,
    READ,
    REDUCTIONS,
    Node,
    close,
    in_order,
    index,
    read,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.sizes import dimensions_used

# Two dimensions, the first one outside.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Coalesced:
    """A formula with fewer dimensions.

    Attributes:
        formula: it.
        merged: the names of the dimensions that others have become, and these, in order.
    """

    formula: Formula
    merged: Mapping[str, tuple[str, ...]]


# Those of a definition are compared, and then called.
@functools.lru_cache(maxsize=512)
def coalesce(formula: Formula) -> Coalesced | None:
    """Return a formula whose neighbouring dimensions are one where they may be; None if none may.

    Those of recurrences stay as they are, and where data says what is read.
    """
    places = (
        place for node in in_order(formula.nodes) if node.op in PLACED for place in node.places
    )
    if formula.pointwise or formula.groups or any(place.nodes for place in places):
        return None
    merged: dict[str, tuple[str, ...]] = {}
    tried = set[Pair]()
    while pair := next((p for p in find_pairs(formula) if p not in tried), None):
        tried.add(pair)
        try:
            joined, name = Joining(formula, pair).joined()
        except Apart:
            continue
        formula = joined
        merged[name] = tuple(d for each in pair for d in merged.pop(each, (each,)))
    return Coalesced(formula, merged) if merged else None


def find_pairs(formula: Formula) -> Iterator[Pair]:
    """Yield the dimensions that are neighbours in every tensor that has one of them."""
    tensors = [*formula.line.tensors, *formula.line.outputs]
    plain = {dim.name for tensor in tensors for dim in tensor.dims if isinstance(dim, Name)}
    plain -= {*formula.counts, *formula.sizes}
    for first, second in dict.fromkeys(p for t in tensors for p in pairwise(t.dims)):
        if isinstance(first, Name) and isinstance(second, Name) and first != second:
            own = (first.name, second.name)
            if {*own} <= plain and all(are_neighbours(own, tensor) for tensor in tensors):
                yield own


def are_neighbours(pair: Pair, tensor: Tensor) -> bool:
    """Return whether a tensor has two dimensions side by side, each once, or neither."""
    names = [str(dim) for dim in tensor.dims]
    many = [names.count(name) for name in pair]
    return many == [0, 0] or (
        many == [1, 1]
        and names.index(pair[0]) + 1 == names.index(pair[1])
        and not tensor.many
        and all(isinstance(dim, Name | Batch) for dim in tensor.dims)
    )


class Apart(Exception):  # noqa: N818  (they stay two dimensions)
    """Two dimensions are used otherwise than together."""


@dataclass
class Joining:
    """Makes one dimension of two.

    Attributes:
        formula: which has them.
        pair: the two.
        partners: of each index of the first one that of the second, and the index of both.
    """

    formula: Formula
    pair: Pair
    partners: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def __post_init__(self) -> None:
        self.name = FreeNames(self.formula.line).fresh("_".join(self.pair))
        self.ranges = Ranges(self.formula.sizes)
        self.sizes = [size(name) for name in self.pair]

    def joined(self) -> tuple[Formula, str]:
        """Return the formula, and the name of the dimension.

        Raises:
            Apart: some expression needs one of the two alone.
        """
        first, second = self.pair
        self.partners[first] = second, self.name
        nodes = rewrite_nodes(self.formula.elements, self.join_sizes, self.ranges)
        nodes = rewrite_nodes(nodes, lambda node: node, self.ranges, self.replaced)
        used = dimensions_used(nodes, self.formula.sizes.values())
        if {*self.pair} & used.union(*(node.free for node in nodes)):
            raise Apart
        return replace(self.formula, line=self.line(), elements=nodes), self.name

    def line(self) -> Line:
        """Return the line."""
        own = self.formula.line

        def dims(tensor: Tensor) -> tuple[Dim, ...]:
            left = [dim for dim in tensor.dims if str(dim) != self.pair[1]]
            return tuple(Name(name=self.name) if str(d) == self.pair[0] else d for d in left)

        return replace(
            own,
            parameters=tuple(
                replace(value, dims=dims(value)) if isinstance(value, Tensor) else value
                for value in own.parameters
            ),
            outputs=tuple(replace(output, dims=dims(output)) for output in own.outputs),
        )

    def join_sizes(self, node: Node) -> Node:
        """Return a quotient by both sizes as one by their product."""
        under, left = list[Node](), node
        while left.op == "div":
            left, divisor = left.args
            under.append(divisor)
        both = [build.to_real(index(each)) for each in self.sizes]
        if node.op != "div" or not all(each in under for each in both):
            return node
        for each in both:
            under.remove(each)
        for divisor in (build.to_real(index(size(self.name))), *reversed(under)):
            left = build.apply("div", left, divisor)
        return left

    def replaced(self, node: Node) -> Node | None:
        """Return what a node becomes; None where that follows from its operands."""
        if node.op in REDUCTIONS and node.size in self.sizes:
            return self.reduction(node)
        if node.op == READ:
            return self.read(node)
        if node.op in PLACED and node.op != INDEX and node.free & self.taken:
            raise Apart
        return None

    @property
    def taken(self) -> set[str]:
        """The indices of either dimension."""
        return {*self.partners, *(partner for partner, _ in self.partners.values())}

    def reduction(self, node: Node) -> Node:
        """Return a sum or maximum over both dimensions as one over their product."""
        index, body = self.ranges.opened(node, alone=False)
        if node.op == ARGMAX or body.op != node.op or {node.size, body.size} != {*self.sizes}:
            raise Apart
        other, inner = self.ranges.opened(body, alone=False)
        outside, inside = (index, other) if node.size == self.sizes[0] else (other, index)
        known = self.partners.get(outside)
        if known is None or known[0] != inside:
            known = inside, self.ranges.fresh(size(self.name))
            self.partners[outside] = known
        [inner] = rewrite_nodes([inner], lambda part: part, self.ranges, self.replaced)
        return close(node.op, known[1], size(self.name), inner)

    def read(self, node: Node) -> Node:
        """Return a read at one place of both dimensions."""
        tensor = next(t for t in self.formula.line.tensors if t.name == node.name)
        places, labels = list(node.places), [str(dim) for dim in tensor.dims]
        if self.pair[0] in labels:
            place = labels.index(self.pair[0])
            outside, inside = places[place].index, places[place + 1].index
            partner, both = self.partners.get(outside or "", ("", ""))
            if not both or partner != inside:
                raise Apart
            places[place : place + 2] = [at(both)]
        if {term for each in places for term in each.free} & self.taken:
            raise Apart
        return read(node.name, places, node.type) if places != [*node.places] else node


def coalesce_sizes(coalesced: Coalesced, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the indices of a coalesced formula."""
    left = dict(sizes)
    made = {n: math.prod([left.pop(dim) for dim in dims]) for n, dims in coalesced.merged.items()}
    return left | made


def coalesce_shape(coalesced: Coalesced, tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor, of those that a formula had before, in the coalesced one."""
    names, found = [str(dim) for dim in tensor.dims], [*shape]
    for name, dims in coalesced.merged.items():
        if dims[0] in names:
            first = names.index(dims[0])
            names[first : first + len(dims)] = [name]
            # `...` stands for any number of dimensions.
            is_after = "..." in names[:first]
            first += len(found) - (len(names) + len(dims) - 1) if is_after else 0
            found[first : first + len(dims)] = [math.prod(found[first : first + len(dims)])]
    return tuple(found)
