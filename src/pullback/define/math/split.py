"""What an expression's value is in one of several processes that each have a part of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pullback.define.line import Tensor
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, size, size_of
from pullback.define.math.node import (
    EQUAL,
    INDEX,
    INSIDE,
    MAX,
    NUMBER,
    PLACED,
    READ,
    REDUCTIONS,
    SCALAR,
    SUM,
    Node,
    in_order,
    is_number,
)
from pullback.define.sharding import Over, Partial, Placement, RefusedSplit, Replicate, part

# "zero" is certainly zero, as a tensor that is None; "same" is the same in all processes; "own"
# depends on the part that the process has, and is right for it; the others are parts of a sum, a
# maximum or a minimum over all processes.
Kind = Literal["zero", "same", "own", "sum", "max", "min"]
KINDS: dict[Kind, Over] = {"sum": "sum", "max": "max", "min": "min"}
NEGATIVE: dict[Kind, Kind] = {"max": "min", "min": "max"}
USED = {
    INDEX: "its index or size is used as a number",
    INSIDE: "a shifted read needs parts of other processes",
    EQUAL: "its index is compared, and each process counts from 0",
}
WORDS = {"mul": "a product", "div": "a quotient", "powi": "a power", "pow": "a power"}


class Added(RefusedSplit):
    """Something is added to a partial sum, which is right if it is a partial sum itself."""


class SplitFollower:
    """Follows what the processes have through one operator's expressions.

    Attributes:
        dims: the dimension that is split, and those that always have its size; or none.
        partial: the tensors that are partial sums.
        absent: the tensors that are None, which count as zeros.
        first: the scalar that is the number of a process's first element; None if each process
            counts from 0. What is read where the part begins `first` later, and 0 outside of it, is
            read in one process alone: a part of a sum.
    """

    def __init__(
        self,
        indexed: Formula,
        *,
        dims: Sequence[str] = (),
        partial: frozenset[str] = frozenset(),
        absent: frozenset[str] = frozenset(),
        first: Node | None = None,
    ) -> None:
        self.dims = frozenset(dims)
        self.dim = dims[0] if dims else None
        self.partial = partial
        self.absent = absent
        self.first = first
        self.indexed = indexed
        self.labels = {tensor.name: tensor.labels for tensor in indexed.line.tensors}
        self.known: dict[tuple[Node, frozenset[str]], Kind] = {}

    def place_outputs(self, wanted: Sequence[bool] | None = None) -> tuple[Placement, ...]:
        """Return the placements of the outputs; those that are not wanted may be anything.

        Raises:
            RefusedSplit: as for `kind`.
        """
        outputs, nodes = self.indexed.line.outputs, self.indexed.nodes
        wanted = wanted or [True] * len(outputs)
        return tuple(
            self.place_output(output, node) if needed else Replicate()
            for output, node, needed in zip(outputs, nodes, wanted, strict=True)
        )

    def place_output(self, output: Tensor, node: Node) -> Placement:
        """Return what a process has of an output."""
        placement = part(output, self.dims)
        own = self.dims & frozenset(output.labels)
        kind = self.kind(node, own)
        if kind not in KINDS:
            return placement
        if own:
            raise RefusedSplit(f"{output.name} has it, and is {self.named(kind)} over all of it")
        return Partial(KINDS[kind])

    def kind(self, root: Node, split: frozenset[str]) -> Kind:
        """Return the kind of an expression.

        Args:
            root: the expression.
            split: those of its free indices that run over a process's part of the dimension.

        Raises:
            RefusedSplit: the processes could not combine it.
        """

        def remaining(node: Node) -> tuple[Node, ...]:
            known = (node, split & node.free) in self.known
            return () if known or node.op in REDUCTIONS or self._is_picked(node) else node.args

        for node in in_order([root], remaining):
            key = (node, split & node.free)
            if key not in self.known:
                self.known[key] = self._of(node, split)
        return self.known[root, split & root.free]

    def _of(self, node: Node, split: frozenset[str]) -> Kind:
        if node.op in REDUCTIONS:
            return self._reduction(node, split)
        if self._is_picked(node):
            if node.free & split:
                raise RefusedSplit("its elements say which ones of other processes are read")
            return "sum"
        kinds: list[Kind] = [self.known[arg, split & arg.free] for arg in node.args]
        if node.op in (NUMBER, SCALAR):
            return "own" if node is self.first else "zero" if is_number(node, 0) else "same"
        if node.op == READ:
            return self._read(node, split, kinds)
        if node.op in PLACED:
            return self._placed(node, split, kinds)
        return self._function(node, kinds)

    def _read(self, node: Node, split: frozenset[str], kinds: Sequence[Kind]) -> Kind:
        """Return the kind of a tensor's element."""
        if node.name in self.absent:
            return "zero"
        self._require_whole(kinds, f"a place in {node.name}")
        if node.name in self.partial:
            return "sum"
        kind: Kind = "own" if "own" in kinds else "same"
        for label, place in zip(self.labels[node.name], node.places, strict=True):
            if label.rstrip("'") in self.dims:
                if place.index not in split:
                    raise RefusedSplit(f"{node.name} is also read elsewhere along it")
                kind = "own"
            elif self._mentions(place, split):
                raise RefusedSplit(f"it says where {node.name} is read")
        return kind

    def _placed(self, node: Node, split: frozenset[str], kinds: Sequence[Kind]) -> Kind:
        """Return the kind of an index that is used as a number or in a condition."""
        extents = [node.size] if node.op == INSIDE else []
        used = any(self._mentions(place, split) for place in (*node.places, *extents))
        if used or any(depends(extent, dim) for extent in extents for dim in self.dims):
            raise RefusedSplit(USED[node.op])
        self._require_whole(kinds, "an index")
        return "own" if "own" in kinds else "same"

    def _mentions(self, place: Affine, split: frozenset[str]) -> bool:
        """Return whether a place is counted along the dimension, by an index or by its size."""
        sizes = {size_of(dim) for dim in self.dims}
        if any(term in sizes for term, _ in place.terms):
            return True
        if self.first is None:
            return any(term in split for term, _ in place.terms)
        return sum(map(place.factor, split)) != place.factor(self.first)

    def _is_picked(self, node: Node) -> bool:
        extent = size(self.dim) if self.dim else Affine()
        return self.first is not None and is_picked(node, self.first, extent)

    def _require_whole(self, kinds: Sequence[Kind], what: str) -> None:
        for kind in kinds:
            if kind in KINDS:
                raise RefusedSplit(f"{self.named(kind)} is {what}")

    def _reduction(self, node: Node, split: frozenset[str]) -> Kind:
        over = self.dim is not None and node.size == size(self.dim)
        if not over and self.dim is not None and depends(node.size, self.dim):
            raise RefusedSplit(f"how far another {node.op} runs depends on its size")
        inner = split - {node.bound} | ({node.bound} if over else set[str]())
        body = self.kind(node.args[0], inner)
        if over:
            return self._over(node, inner, body)
        if node.op == SUM and body in ("max", "min"):
            raise RefusedSplit(f"{self.named(body)} is inside a sum")
        if node.op != SUM and body in KINDS and not (node.op == MAX and body == "max"):
            raise RefusedSplit(f"{self.named(body)} is inside {node.op}[...]")
        return body if node.op == SUM or body != "zero" else "same"

    def _over(self, node: Node, split: frozenset[str], body: Kind) -> Kind:
        """Return the kind of a reduction over the dimension."""
        if body == "zero" and node.op == SUM:
            return body
        if body in KINDS:
            raise RefusedSplit(f"{self.named(body)} is inside another one over it")
        if body != "own" or (split & node.args[0].free) - {node.bound}:
            raise RefusedSplit(f"{node.op}[...] takes all of it together with one part of it")
        if node.op not in (SUM, MAX):
            raise RefusedSplit("an argmax over it cannot be combined")
        return "sum" if node.op == SUM else "max"

    def _function(self, node: Node, kinds: Sequence[Kind]) -> Kind:  # noqa: PLR0911  (one a kind)
        """Return the kind of a function of the table."""
        plain: Kind = "own" if "own" in kinds else "same"
        first, second = kinds[0], kinds[-1]
        if node.op == "add":
            return self._added(first, second, plain)
        if node.op == "sub":
            return self._added(first, NEGATIVE.get(second, second), plain)
        if node.op == "neg":
            return NEGATIVE.get(first, first)
        if node.op == "real":
            return first
        if node.op == "where" and first not in KINDS:
            return self._selected(first, kinds[1], second, plain)
        if (node.op == "mul" and "zero" in kinds) or (node.op == "div" and first == "zero"):
            return "zero"
        scaled = {first, second} == {"sum", "same"} and len(kinds) == 2
        if scaled and (node.op == "mul" or (node.op == "div" and first == "sum")):
            return "sum"
        for kind in kinds:
            if kind in KINDS:
                raise RefusedSplit(
                    f"{self.named(kind)} is inside {WORDS.get(node.op, node.op + '(...)')}"
                )
        return plain

    def _added(self, first: Kind, second: Kind, plain: Kind) -> Kind:
        if "zero" in (first, second):
            return second if first == "zero" else first
        if first == second == "sum":
            return "sum"
        if "sum" in (first, second):
            raise Added("what is added to the sum would be added in every process")
        if first in KINDS or second in KINDS:
            raise RefusedSplit("the maximum is inside a sum or difference")
        return plain

    def _selected(self, condition: Kind, first: Kind, second: Kind, plain: Kind) -> Kind:
        kinds = {first, second} - {"zero"}
        if not kinds:
            return "zero"
        if kinds == {"sum"} and condition == "same":
            return "sum"
        for kind in kinds:
            if kind in KINDS:
                raise RefusedSplit(f"{self.named(kind)} is inside where(...)")
        return plain

    def named(self, kind: Kind) -> str:
        """Return the name of a partial result, for a reason."""
        if self.partial:
            return "a partial sum"
        return {"sum": "the sum", "max": "the maximum", "min": "the minimum"}[KINDS[kind]]


def is_picked(node: Node, first: Node, extent: Affine) -> bool:
    """Return whether a value is read in the one process that has it, and 0 in the others.

    Args:
        node: the value.
        first: the number of a process's first element.
        extent: how many it has.
    """
    if node.op != "where" or not is_own(node.args[0], first, extent):
        return False
    condition, value, other = node.args
    return value.op == READ and condition.places[0] in value.places and is_number(other, 0)


def is_own(condition: Node, first: Node, extent: Affine) -> bool:
    """Return whether a condition holds in the one process that has a place.

    Args:
        condition: any.
        first: the number of a process's first element.
        extent: how many it has.
    """
    if condition.op != INSIDE or condition.size != extent:
        return False
    return condition.places[0].factor(first) == -1


def depends(extent: Affine, dim: str) -> bool:
    """Return whether a size depends on a dimension's, also in its quotients."""
    places = [extent]
    for node in in_order(extent.nodes):
        if node.op in PLACED:
            places += node.places
    return any(term == size_of(dim) for place in places for term, _ in place.terms)
