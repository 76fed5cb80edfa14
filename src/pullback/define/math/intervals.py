"""What is certain on a block of rows and columns: which conditions hold, and what vanishes there.

An index has a least and a greatest value on a block, and so has data that has only rows or only
columns, such as the segment of each. What follows for a condition is True, False or not known.
Where nothing is selected a block is skipped: of causal attention half of them, of a window most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from pullback.define.math.index import Affine
from pullback.define.math.node import (
    EQUAL,
    INDEX,
    INSIDE,
    NUMBER,
    REDUCTIONS,
    Node,
    in_order,
)

# The least and the greatest value.
Interval = tuple[int, int]
# Of an index, a size in bars, or a whole number that data gives; None where that is not known.
Bounds = Callable[[str | Node], Interval | None]

# What a value certainly is, everywhere on a block; "any" if nothing is certain.
Certain = Literal["zero", "least", "finite", "any"]

COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def find_conditions(roots: Sequence[Node], indices: frozenset[str]) -> list[Node]:
    """Return the outermost conditions on indices and whole numbers, reductions left out."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    left = list(roots)
    while left:
        node = left.pop()
        if node in seen or node.op in REDUCTIONS:
            continue
        seen.add(node)
        if node.type == "bool" and node.free & indices and _is_whole(node):
            found[node] = None
        else:
            left += node.args
    return list(found)


def _is_whole(condition: Node) -> bool:
    return all(
        node.op in (INSIDE, EQUAL)
        or (node.op in COMPARED and all(arg.type == "int" for arg in node.args))
        for node in _atoms(condition)
    )


def _atoms(condition: Node) -> Iterator[Node]:
    """Yield the conditions that another one is made of."""
    words = ("logical_and", "logical_or", "logical_not")
    for node in in_order([condition], lambda n: n.args if n.op in words else ()):
        if node.op not in words:
            yield node


def holds(  # noqa: PLR0911  (one a kind)
    condition: Node, bounds: Bounds
) -> bool | None:
    """Return whether a condition holds everywhere or nowhere; None if that is not known."""
    match condition.op:
        case "logical_not":
            inner = holds(condition.args[0], bounds)
            return None if inner is None else not inner
        case "logical_and" | "logical_or":
            decides = condition.op == "logical_or"
            parts = [holds(arg, bounds) for arg in condition.args]
            if decides in parts:
                return decides
            return None if None in parts else not decides
        case "inside":
            place, size = (reach(p, bounds) for p in (condition.places[0], condition.size))
            if place is None or size is None:
                return None
            if place[0] >= 0 and place[1] < size[0]:
                return True
            return False if place[1] < 0 or place[0] >= size[1] else None
        case "equal":
            return _compare("eq", reach(condition.places[0], bounds), (0, 0))
        case _:
            x, y = (interval_of(arg, bounds) for arg in condition.args)
            return _compare(condition.op, x, y)


def _compare(op: str, x: Interval | None, y: Interval | None) -> bool | None:
    if x is None or y is None:
        return None
    low, high = x[0] - y[1], x[1] - y[0]
    certain = {
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }
    always, never = certain[op]
    return True if always else False if never else None


def interval_of(node: Node, bounds: Bounds) -> Interval | None:
    """Return the least and the greatest value of a whole number."""
    if node.op == NUMBER:
        return int(node.number), int(node.number)
    return reach(node.places[0], bounds) if node.op == INDEX else bounds(node)


def reach(place: Affine, bounds: Bounds) -> Interval | None:
    """Return the least and the greatest value of an index."""
    low = high = place.constant
    for term, factor in place.terms:
        own = bounds(term)
        if own is None:
            return None
        ends = (own[0] * factor, own[1] * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


def certain_value(
    root: Node, indices: frozenset[str], is_finite: Callable[[Node], bool]
) -> Certain:
    """Return what a value certainly is: on a block where known conditions have been written in.

    As the operations are, and not better: 0 times what may be infinite is not certainly 0.

    Args:
        root: the value.
        indices: of rows and columns.
        is_finite: whether a value that lacks one of them is finite everywhere.
    """
    known: dict[Node, Certain] = {}

    def operands(node: Node) -> tuple[Node, ...]:
        return node.args if node.op in FOLDED else ()

    for node in in_order([root], operands):
        if node.op == NUMBER:
            known[node] = _of_number(node.number)
        elif node.op in FOLDED:
            values = node.args[1:] if node.op == "where" else node.args
            known[node] = FOLDED[node.op](*(known[arg] for arg in values))
        elif node.type == "int":
            known[node] = "finite"
        else:
            known[node] = "finite" if not indices <= node.free and is_finite(node) else "any"
    return known[root]


def _of_number(value: float) -> Certain:
    if value == 0:
        return "zero"
    return "finite" if math.isfinite(value) else "least" if value == -math.inf else "any"


def _add(x: Certain, y: Certain) -> Certain:
    if "any" in (x, y):
        return "any"
    if "least" in (x, y):
        return "least"
    return "zero" if x == y == "zero" else "finite"


def _sub(x: Certain, y: Certain) -> Certain:
    return "any" if y == "least" else _add(x, y)


def _mul(x: Certain, y: Certain) -> Certain:
    is_zero = "zero" in (x, y) and {x, y} <= {"zero", "finite"}
    return "zero" if is_zero else "any"


FOLDED: dict[str, Callable[..., Certain]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "neg": lambda x: "any" if x == "least" else x,
    "exp": lambda x: "zero" if x == "least" else "any",
    "real": lambda x: x,
    "where": lambda x, y: x if x == y else "any",
}
