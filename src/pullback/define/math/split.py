"""What an expression's value is in one of several processes that each have a part of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

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
from pullback.define.sharding import RefusedSplit

# "zero" is certainly zero, as a tensor that is None; "same" is the same in all processes; "own"
# depends on the part that the process has, and is right for it; the others are parts of a sum, a
# maximum or a minimum over all processes.
Kind = Literal["zero", "same", "own", "sum", "max", "min"]
Over = Literal["sum", "max", "min"]
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
    """

    def __init__(
        self,
        indexed: Formula,
        *,
        dims: Sequence[str] = (),
        partial: frozenset[str] = frozenset(),
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.dims = frozenset(dims)
        self.dim = dims[0] if dims else None
        self.partial = partial
        self.absent = absent
        self.labels = {tensor.name: tensor.labels for tensor in indexed.line.tensors}
        self.known: dict[tuple[Node, frozenset[str]], Kind] = {}

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
            return () if known or node.op in REDUCTIONS else node.args

        for node in in_order([root], remaining):
            key = (node, split & node.free)
            if key not in self.known:
                self.known[key] = self._of(node, split)
        return self.known[root, split & root.free]

    def _of(self, node: Node, split: frozenset[str]) -> Kind:
        if node.op in REDUCTIONS:
            return self._reduction(node, split)
        kinds: list[Kind] = [self.known[arg, split & arg.free] for arg in node.args]
        if node.op == NUMBER:
            return "zero" if is_number(node, 0) else "same"
        if node.op == SCALAR:
            return "same"
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
        return any(term in split or term in sizes for term, _ in place.terms)

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


def depends(extent: Affine, dim: str) -> bool:
    """Return whether a size depends on a dimension's, also in its quotients."""
    places = [extent]
    for node in in_order(extent.nodes):
        if node.op in PLACED:
            places += node.places
    return any(term == size_of(dim) for place in places for term, _ in place.terms)
