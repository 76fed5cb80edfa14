"""A dimension that is read in blocks becomes two: heads `h` that share keys `k[h//4, m, d]`.

Where h is 4 times as long as g, `q[h, n, d]` is `q[g, r, n, d]` with r < 4, and `k[h//4, m, d]` is
`k[g, m, d]`. What was looked up place by place is a product of matrices then, with its blocks. The
tensors lie as they did: each is a view, as of `Tensor.unflatten`. `coalesce` is the opposite.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.dimension import Dim, Name, Number
from pullback.define.line import Line, Tensor
from pullback.define.math import build
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, at, divided, is_quotient, size, size_of
from pullback.define.math.node import (
    ARGMAX,
    INSIDE,
    PLACED,
    READ,
    REDUCTIONS,
    Node,
    close,
    in_order,
    read,
    remake,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_reads, substitute
from pullback.define.math.sizes import dimensions_used


@dataclass(frozen=True)
class Blocks:
    """What a dimension is taken as.

    Attributes:
        dim: which one.
        outer: the dimension that has an element for each of its blocks.
        length: of a block.
    """

    dim: str
    outer: str
    length: int


@dataclass(frozen=True)
class Unflattened:
    """A formula with two dimensions in place of one.

    Attributes:
        formula: it.
        blocks: of which dimension.
        inner: the name of the index within a block.
    """

    formula: Formula
    blocks: Blocks
    inner: str


@functools.lru_cache(maxsize=512)
def find_blocks(formula: Formula) -> tuple[Blocks, ...]:
    """Return the dimensions that are read in blocks of others: by `k[h//4]`, or by `q[4*g + r]`."""
    if formula.pointwise or formula.groups:
        return ()
    fixed = {*formula.counts, *formula.sizes, BATCH}
    found = dict.fromkeys(_blocks_read(formula))
    return tuple(each for each in found if fixed.isdisjoint((each.dim, each.outer)))


def _blocks_read(formula: Formula) -> Iterator[Blocks]:
    ranges, labels = formula.ranges, {t.name: t.labels for t in formula.line.tensors}

    def inside(node: Node) -> tuple[Node, ...]:
        return (ranges.opened(node, alone=False)[1],) if node.op in REDUCTIONS else node.args

    def dimension(index: str | None) -> str | None:
        """Return the dimension that an index runs over."""
        found = index and dimensions_used([], [ranges.size(index)])
        return next((d for d in found or () if ranges.size(index or "") == size(d)), None)

    for node in in_order(formula.elements, inside):
        if node.op != READ:
            continue
        for label, place in zip(labels[node.name], node.places, strict=True):
            own = label.rstrip("'")
            for term, factor in () if own.isdecimal() else place.terms:
                if not isinstance(term, str):
                    if is_quotient(term) and (dim := dimension(divided(term)[0].index)):
                        yield Blocks(dim, own, divided(term)[1])
                elif factor > 1 and (outer := dimension(term)):
                    yield Blocks(own, outer, factor)


@functools.lru_cache(maxsize=512)
def unflatten(formula: Formula, blocks: Blocks) -> Unflattened | None:
    """Return a formula in which a dimension is two; None if something needs it as it is."""
    tensors = (*formula.line.tensors, *formula.line.outputs)
    if any(
        {blocks.dim, blocks.outer} <= {*t.labels} or f"{blocks.dim}'" in t.labels for t in tensors
    ):
        return None  # an index would have two dimensions
    try:
        return _Maker(formula, blocks).unflattened()
    except _Whole:
        return None


class _Whole(Exception):  # noqa: N818  (it stays one dimension)
    """A dimension is used otherwise than in blocks."""


class _Maker:
    def __init__(self, formula: Formula, blocks: Blocks) -> None:
        self.formula, self.blocks = formula, blocks
        self.inner = FreeNames(formula.line).fresh(f"{blocks.dim}_within")
        self.many = Affine(blocks.length)
        self.ranges = Ranges({**formula.sizes, self.inner: self.many})
        self.sizes: dict[str | Node, Affine] = {
            size_of(blocks.dim): size(blocks.outer) * blocks.length
        }
        self.indices: dict[str, tuple[str, str]] = {}

    def unflattened(self) -> Unflattened:
        """Return it."""
        own = self.place(self.blocks.outer, self.inner)
        opened = [substitute(e, {self.blocks.dim: own}, self.ranges) for e in self.formula.elements]
        nodes = self.rewritten(opened)
        sizes = {i: s.replaced(self.sizes) for i, s in self.formula.sizes.items()}
        if self.blocks.dim in dimensions_used(nodes, sizes.values()):
            raise _Whole
        formula = replace(
            self.formula,
            line=self.line(),
            elements=nodes,
            sizes={**sizes, self.inner: self.many},
        )
        return Unflattened(formula, self.blocks, self.inner)

    def place(self, outer: str, inner: str) -> Affine:
        """Return the index of an element of a block as one of all elements."""
        return at(outer) * self.blocks.length + at(inner)

    def line(self) -> Line:
        """Return the line."""
        own, outer = self.formula.line, Name(name=self.blocks.outer)

        def dims(tensor: Tensor, inner: Dim) -> tuple[Dim, ...]:
            both = {self.blocks.dim: (outer, inner)}
            return tuple(d for dim in tensor.dims for d in both.get(str(dim), (dim,)))

        return replace(
            own,
            parameters=tuple(
                replace(value, dims=dims(value, Number(value=self.blocks.length)))
                if isinstance(value, Tensor)
                else value
                for value in own.parameters
            ),
            outputs=tuple(replace(o, dims=dims(o, Name(name=self.inner))) for o in own.outputs),
        )

    def rewritten(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Return nodes in which the dimension is two."""
        return rewrite_reads(
            nodes, lambda node: build.rebuild(node, node.args), self.ranges, self.replaced
        )

    def replaced(self, node: Node) -> Node | None:
        """Return what a node becomes; None where that follows from its operands."""
        if node.op in REDUCTIONS:
            return self.reduction(node)
        if node.op == READ:
            return self.read(node)
        if node.op not in PLACED or node.args:
            return None
        place = node.places[0].replaced(self.sizes)
        if node.op == INSIDE:
            return self.ranges.inside(place, node.size.replaced(self.sizes))
        return remake(node, (), lambda _: place)

    def reduction(self, node: Node) -> Node | None:
        """Return a reduction over the dimension as one over its blocks, and their elements."""
        extent = node.size.replaced(self.sizes)
        if extent == node.size:
            return None
        index, body = self.ranges.opened(node, alone=False)
        if node.size != size(self.blocks.dim):
            return close(node.op, index, extent, self.rewritten([body])[0])
        if node.op == ARGMAX:
            raise _Whole
        if index not in self.indices:
            both = self.ranges.fresh(size(self.blocks.outer)), self.ranges.fresh(self.many)
            self.indices[index] = both
        outer, inner = self.indices[index]
        [body] = self.rewritten([substitute(body, {index: self.place(outer, inner)}, self.ranges)])
        return close(
            node.op, outer, size(self.blocks.outer), close(node.op, inner, self.many, body)
        )

    def read(self, node: Node) -> Node | None:
        """Return a read of both dimensions."""
        tensor = next(t for t in self.formula.line.tensors if t.name == node.name)
        places: list[Affine] = []
        for label, place in zip(tensor.labels, node.places, strict=True):
            moved = place.replaced(self.sizes)
            if label != self.blocks.dim:
                places.append(moved)
                continue
            whole, rest = divmod(moved, self.blocks.length)
            if self.ranges.divide(moved, self.blocks.length) != whole:
                raise _Whole
            places += [whole, rest]
        return read(node.name, places, node.type) if places != [*node.places] else None


def unflatten_sizes(own: Unflattened, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the indices of a formula with two dimensions in place of one."""
    left = {name: many for name, many in sizes.items() if name != own.blocks.dim}
    return {**left, own.inner: own.blocks.length}


def unflatten_shape(own: Unflattened, tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor, of those that a formula had before, with both dimensions."""
    names, found = tensor.labels, [*shape]
    if own.blocks.dim in names:
        first = names.index(own.blocks.dim)
        # `...` stands for any number of dimensions.
        first += len(found) - len(names) if BATCH in names[:first] else 0
        found[first : first + 1] = [found[first] // own.blocks.length, own.blocks.length]
    return tuple(found)
