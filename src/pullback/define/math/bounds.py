"""What every call has to check: reads at indices that data gives, and maxima; and their context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from pullback.define.line import Line
from pullback.define.math import show
from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, MAX, READ, REDUCTIONS, Node, in_order
from pullback.define.math.term import negate, split_conjunction
from pullback.diagnostic import PullbackError, Rule

EmptyMaximum = Rule("PB148", "empty-maximum")


# Where the other part of a condition has a say: of `a and b`, `a or b`.
OTHERWISE: Mapping[str, Callable[[Node], list[Node]]] = {
    "logical_and": split_conjunction,
    "logical_or": lambda part: split_conjunction(negate(part)),
}


@dataclass(frozen=True, kw_only=True)
class Gather:
    """One index of a read that data gives.

    Attributes:
        read: of the tensor.
        dimension: which of the tensor's indices.
        place: that index.
        conditions: those of all selections around it; where one does not hold, nothing is read.
        bound: the indices of the reductions around it, with their sizes, the outermost first.
    """

    read: Node
    dimension: int
    place: Affine
    conditions: tuple[Node, ...]
    bound: tuple[tuple[str, Affine], ...]


@dataclass(frozen=True)
class Surroundings:
    """The selections and reductions around a node."""

    conditions: tuple[Node, ...] = ()
    bound: tuple[tuple[str, Affine], ...] = ()

    def under(self, *conditions: Node) -> Surroundings:
        """Return the surroundings within a selection."""
        return Surroundings(tuple(dict.fromkeys((*self.conditions, *conditions))), self.bound)


@dataclass(frozen=True, kw_only=True)
class Maximum:
    """A maximum, or the place of one, in an expression.

    Attributes:
        node: the "max" or "argmax".
        conditions: those of all selections around it; where one does not hold, it is not needed.
        bound: the indices of the reductions around it, with their sizes, the outermost first.
    """

    node: Node
    conditions: tuple[Node, ...]
    bound: tuple[tuple[str, Affine], ...]


def find_gathers(root: Node) -> tuple[Gather, ...]:
    """Return the indices of reads in an expression that depend on data."""
    found = _find_with_context(
        root, lambda n: n.op == READ and any(place.nodes for place in n.places)
    )
    return tuple(dict.fromkeys(own for node, context in found for own in _own(node, context)))


def find_maxima(root: Node) -> tuple[Maximum, ...]:
    """Return the maxima of an expression."""
    return tuple(
        Maximum(node=node, conditions=context.conditions, bound=context.bound)
        for node, context in _find_with_context(root, lambda n: n.op in (MAX, ARGMAX))
    )


def _find_with_context(
    root: Node, wanted: Callable[[Node], bool]
) -> list[tuple[Node, Surroundings]]:
    """Return the nodes that are wanted, once with each of their surroundings."""
    leading: set[Node] = set()
    for part in in_order([root]):
        if wanted(part) or any(arg in leading for arg in part.args):
            leading.add(part)
    found: list[tuple[Node, Surroundings]] = []
    seen: set[tuple[Node, Surroundings]] = set()
    left = [(root, Surroundings())]
    while left:
        node, context = left.pop()
        if node not in leading or (node, context) in seen:
            continue
        seen.add((node, context))
        if wanted(node):
            found.append((node, context))
        left += reversed(list(_operands(node, context, leading)))
    return found


def _own(node: Node, context: Surroundings) -> Iterator[Gather]:
    for dimension, place in enumerate(node.places):
        if place.nodes:
            yield Gather(
                read=node,
                dimension=dimension,
                place=place,
                conditions=context.conditions,
                bound=context.bound,
            )


def _operands(
    node: Node, context: Surroundings, leading: Collection[Node]
) -> Iterator[tuple[Node, Surroundings]]:
    if node.op in REDUCTIONS:
        yield (
            node.args[0],
            Surroundings(context.conditions, (*context.bound, (node.bound, node.size))),
        )
    elif node.op == "where":
        condition, x, y = node.args
        yield condition, context
        yield x, context.under(*split_conjunction(condition))
        yield y, context.under(negate(condition))
    elif node.op in OTHERWISE:
        # What one part says already selects what the other is asked for: `0 <= i < n and x[i] > 0`.
        x, y = node.args
        parts = OTHERWISE[node.op]
        yield x, context.under(*(part for part in parts(y) if part not in leading))
        yield y, context.under(*parts(x))
    else:
        for arg in node.args:
            yield arg, context


def empty(line: Line, maximum: Node) -> PullbackError:
    """Return the error for a maximum over nothing."""
    shown = show.format_inside(maximum)
    return EmptyMaximum.error(
        f"{line.called}: {shown} is the maximum over an index that has no values",
        help="a maximum needs a dimension of size 1 or more",
    )
