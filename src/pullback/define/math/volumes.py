"""How many values each expression of a formula has, in a call of given sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pullback.define.line import Tensor
from pullback.define.math import extents
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import Node
from pullback.define.math.program import Program

# How far the bound indices around an expression run.
Bound = Mapping[str, int]
# An expression with the indices around it.
Part = tuple[Node, Bound]


@dataclass(frozen=True)
class Volumes:
    """The sizes of one call, and what follows from them.

    Attributes:
        indexed: the operator.
        sizes: of every name of the line; of `...` the product of the batch dimensions.
        itemsize: of real numbers, in bytes.
    """

    indexed: Formula
    sizes: Mapping[str, int]
    itemsize: int

    def extent(self, size: Affine) -> int:
        """Return a size as a number, which is not below zero."""
        value = extents.evaluated(size, self.sizes)
        assert value is not None, size
        return max(int(value), 0)

    def index(self, name: str, bound: Bound) -> int:
        """Return how far an index runs."""
        return bound[name] if name in bound else self.extent(self.indexed.ranges.size(name))

    def count(self, indices: Iterable[str], bound: Bound) -> int:
        """Return how many values these indices have together."""
        return math.prod(self.index(name, bound) for name in indices)

    def of(self, node: Node, bound: Bound) -> int:
        """Return how many values an expression has."""
        return self.count(node.free, bound)

    def extents(self, node: Node, bound: Bound) -> dict[str, Affine]:
        """Return how far the indices of an expression run, in its own terms."""
        return {
            name: Affine(bound[name]) if name in bound else self.indexed.ranges.size(name)
            for name in node.free
        }

    def around(self, indices: Iterable[tuple[str, Affine]], bound: Bound) -> Bound:
        """Return how far bound indices run, with some more of them."""
        return {**bound, **{name: self.extent(size) for name, size in indices}}

    def tensor(self, name: str) -> Tensor:
        """Return a tensor of the line."""
        return next(tensor for tensor in self.indexed.line.tensors if tensor.name == name)

    def elements(self, tensor: Tensor) -> int:
        """Return how many elements a tensor of the line has."""
        return self.count(tensor.labels, {})

    def inside(self, reduction: Node, bound: Bound) -> Bound:
        """Return how far the bound indices run in a reduction's body."""
        return {**bound, reduction.bound: self.extent(reduction.size)}

    def bytes(self, node: Node, bound: Bound) -> int:
        """Return the bytes of an expression as a tensor; a whole number has 8, a condition 1."""
        return self.of(node, bound) * {"int": 8, "bool": 1}.get(node.type, self.itemsize)

    def stored(self, tensor: Tensor, elements: int) -> int:
        """Return the bytes of some elements of a tensor."""
        digits = "".join(filter(str.isdecimal, tensor.dtype or ""))
        if tensor.dtype == "bool":
            return elements
        return elements * (int(digits.ljust(1, "0")) // 8 or self.itemsize)

    def parts(
        self, roots: Iterable[Node], inner: Callable[[Part], Iterable[Part]]
    ) -> Iterator[Part]:
        """Yield every expression once: those that differ in the names of their indices are one."""
        program = Program({}, ())
        seen: set[tuple[object, ...]] = set()
        left: list[Part] = [(root, {}) for root in roots]
        while left:
            node, bound = left.pop()
            number, names = program.identity(node)
            key = (number, *(self.index(name, bound) for name in names))
            if key not in seen:
                seen.add(key)
                yield node, bound
                left += inner((node, bound))
