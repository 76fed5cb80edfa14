"""What an operator costs: its operations, the bytes it must move, and those of a naive evaluation.

Operations on real numbers are counted, and each value is computed once; two expressions that differ
only in the names of their indices are one.

- Addition, subtraction and multiplication are one; a sum or maximum of k values is k, so that a
  product of matrices is 2·n·o·i, as PyTorch counts it.
- Another function is what the table says (`FunctionRow.work`): a division or root 4, exp 10. A
  whole power is the multiplications that make it.
- A change of sign, a comparison, a selection, and everything done with whole numbers are free.

A guarded sum counts as if nothing were left out; but where the guard picks one element of an
output, as in the gradient of a gather, each value is added to one element.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.define.line import Tensor
from pullback.define.math import extents, steps
from pullback.define.math.absent import drop_absent
from pullback.define.math.formula import Formula
from pullback.define.math.functions import TABLE
from pullback.define.math.index import Affine
from pullback.define.math.lower import is_contraction, product_of, scatter_of, stencil_of
from pullback.define.math.node import (
    READ,
    REDUCTIONS,
    SUM,
    Node,
)
from pullback.define.math.program import FormulaFacts
from pullback.define.math.tiles import is_outer

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
        has_outer: whether outer functions are ever in memory.
    """

    indexed: Formula
    sizes: Mapping[str, int]
    itemsize: int
    has_outer: bool

    def extent(self, size: Affine) -> int:
        """Return a size as a number, which is not below zero."""
        value = extents.evaluate_size(size, self.sizes)
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
        """Return how far the indices of an expression run, as sizes."""
        return {
            name: Affine(bound[name]) if name in bound else self.indexed.ranges.size(name)
            for name in node.free
        }

    def around(self, indices: Iterable[tuple[str, Affine]], bound: Bound) -> Bound:
        """Return how far bound indices run, with some more indices added."""
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
        if not self.has_outer and is_outer(node):
            return 0
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
        """Yield every expression once; those that differ only in their indices' names are one."""
        program = FormulaFacts({}, ())
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


FREE = ("neg", "where", "real", "whole", "stop")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one call costs.

    Attributes:
        flops: operations on real numbers, as above.
        read: bytes of the elements that are read, each once.
        written: bytes of the outputs.
        dense: bytes that are moved if every expression is computed as a tensor of its own. Products
            of matrices and scatters are one operation, and affine reads are views.
    """

    flops: int
    read: int
    written: int
    dense: int

    def __str__(self) -> str:
        """Return the cost in one line."""
        return (
            f"{abbreviate(self.flops)}FLOP, {abbreviate(self.read)}B read, "
            f"{abbreviate(self.written)}B written;"
            f" {abbreviate(self.dense)}B moved if every expression is a tensor"
        )


def cost(  # noqa: PLR0913  (all of a call)
    indexed: Formula,
    sizes: Mapping[str, int],
    wanted: Sequence[bool] | None = None,
    itemsize: int = 4,
    *,
    absent: Collection[str] = (),
    has_outer: bool = True,
) -> Cost:
    """Return what a call costs.

    Args:
        indexed: the operator.
        sizes: of every name of the line; of `...` the product of the batch dimensions.
        wanted: whether each output is; all, if nothing is said.
        itemsize: of real numbers, in bytes.
        absent: the optional tensors that are None.
        has_outer: whether outer functions are tensors where every expression is one.
    """
    needed = wanted or [True] * len(indexed.nodes)
    if indexed.groups:
        # All steps, as if they were computed at once: states are read and written where they are
        # outputs alone, since a loop has them at hand.
        own = steps.present(indexed, frozenset(absent), needed)
        whole, states = steps.with_states(own)
        own_names = frozenset(tensor.name for _, tensor in states)
        asked = [*(True for _ in states), *needed]
        return _cost(Volumes(whole, sizes, itemsize, has_outer), whole.nodes, asked, own_names)
    nodes = drop_absent(indexed.nodes, set(absent)) if absent else indexed.nodes
    return _cost(Volumes(indexed, sizes, itemsize, has_outer), nodes, needed, frozenset())


def _cost(
    volumes: Volumes, every: Sequence[Node], needed: Sequence[bool], states: frozenset[str]
) -> Cost:
    """Return what some outputs cost.

    Args:
        volumes: the sizes.
        every: the elements of all outputs.
        needed: which of them are wanted; the first ones are what states become.
        states: the names of the tensors that are states.
    """
    pairs = zip(volumes.indexed.line.outputs, every, strict=True)
    outputs = [pair for pair, is_wanted in zip(pairs, needed, strict=True) if is_wanted]
    nodes = [node for _, node in outputs]
    parts = list(volumes.parts(nodes, lambda part: _operands(volumes, part)))
    return Cost(
        flops=sum(_flops(volumes, *part) for part in parts),
        read=_read(volumes, parts, states),
        written=sum(
            volumes.stored(output, volumes.elements(output)) for output, _ in outputs[len(states) :]
        ),
        dense=sum(
            _count_bytes(volumes, part)
            for part in volumes.parts(nodes, lambda p: _inputs(volumes, p))
        ),
    )


def _operands(volumes: Volumes, part: Part) -> list[Part]:
    """Return the operands of an expression."""
    node, bound = part
    if node.op in REDUCTIONS:
        bound = volumes.inside(node, bound)
    return [(arg, bound) for arg in node.args]


def _flops(volumes: Volumes, node: Node, bound: Bound) -> int:
    """Return the operations that compute an expression from its operands."""
    if node.op in REDUCTIONS:
        return _count_reduced(volumes, node, bound)
    if node.op == "powi":
        return volumes.of(node, bound) * count_multiplications(int(str(node.data)))
    if node.op not in TABLE or node.op in FREE or node.type != "real":
        return 0
    return volumes.of(node, bound) * TABLE[node.op].work


def _count_reduced(volumes: Volumes, node: Node, bound: Bound) -> int:
    """Return how many values a reduction combines."""
    body = node.args[0]
    if body.type != "real" or node.op == body.op:
        return 0  # a reduction over several indices is counted at the innermost
    if node.op == SUM:
        scatter = scatter_of(product_of(node), volumes.extents(node, bound))
        decided = {index for index, _ in scatter.places} if scatter else set[str]()
        return volumes.count(node.free - decided, bound) * volumes.extent(node.size)
    return volumes.of(node, bound) * volumes.extent(node.size)


def count_multiplications(exponent: int) -> int:
    """Return the work of a whole power: its multiplications, and a division if it is negative."""
    most = abs(exponent)
    steps = max(most.bit_length() - 1, 0) + max(most.bit_count() - 1, 0)
    return steps + (TABLE["div"].work if exponent < 0 else 0)


def _read(volumes: Volumes, parts: Sequence[Part], states: frozenset[str]) -> int:
    """Return the bytes that reads of what is no state can touch: at most all of each tensor."""
    counts: Counter[str] = Counter()
    for node, bound in parts:
        if node.op == READ and node.name not in states:
            counts[node.name] += volumes.of(node, bound)
    tensors = {name: volumes.tensor(name) for name in counts}
    return sum(
        volumes.stored(tensors[name], min(count, volumes.elements(tensors[name])))
        for name, count in counts.items()
    )


def _inputs(volumes: Volumes, part: Part) -> list[Part]:
    """Return the expressions that have to be tensors before this one is computed."""
    node, bound = part
    if node.op != SUM:
        return _operands(volumes, part)
    product = product_of(node)
    scatter = scatter_of(product, volumes.extents(node, bound))
    if scatter:
        around = volumes.around(scatter.bound, bound)
        places = [(node, around) for _, place in scatter.places for node in place.nodes]
        return [(scatter.value, around), *places]
    around = volumes.around(product.bound, bound)
    if stencil := stencil_of(product):
        return [(stencil.other, around)]
    if is_contraction(product):
        return [(p, around) for p in (*product.over, *product.under, *product.conditions)]
    return _operands(volumes, part)


def _count_bytes(volumes: Volumes, part: Part) -> int:
    """Return the bytes of an expression as a tensor, and of the tensors it is computed from."""
    node, bound = part
    if not node.free and node.op not in REDUCTIONS:
        return 0
    if node.op == READ and not node.args:
        return 0
    inputs = sum(volumes.bytes(*used) for used in _inputs(volumes, part) if used[0].free)
    own = volumes.bytes(node, bound)
    if node.op == READ:
        return inputs + 2 * own
    if node.op == SUM and (stencil := stencil_of(product_of(node))):
        tensor = volumes.tensor(stencil.read.name)
        return inputs + own + volumes.stored(tensor, volumes.elements(tensor))
    return inputs + own


def abbreviate(count: float) -> str:
    """Return a number in three digits and a letter: `134 M`, `1.5 k`, `12 `."""
    letters = iter(("", "k", "M", "G", "T"))
    letter = next(letters)
    while count >= 999.5 and letter != "T":
        count /= 1000
        letter = next(letters)
    return f"{count:.3g} {letter}"
