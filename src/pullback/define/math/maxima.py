"""Places of maxima that a forward keeps for its gradients, which go to these alone.

Without them a gradient looks for the nearest of all points, or for the greatest of a window, again:
once for each tensor that it is a gradient for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pullback.define.dimension import Batch, Name
from pullback.define.line import Line, Tensor
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.functions import TABLE
from pullback.define.math.index import BATCH, Affine, at, is_quotient
from pullback.define.math.index import size as size_of
from pullback.define.math.node import (
    ARGMAX,
    MAX,
    PLACED,
    READ,
    SUM,
    Node,
    in_order,
    operands,
    place_of,
    rename_indices,
)
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import argmax_of, substitute
from pullback.define.math.required import find_unguarded, is_inside


def keep_places(formula: Formula, names: FreeNames) -> Iterator[tuple[Node, Tensor]]:
    """Yield the places of a formula's maxima, each with the output that it may become.

    Args:
        formula: in index notation.
        names: those that are free in its line.
    """
    dims, facts, seen = _name_dims(formula), FormulaFacts({}, ()), set[int]()
    for place, ranges in find_places(formula):
        if is_of_blocks(place):
            continue  # an output would have it for each element
        number, indices = facts.identity(place)
        own = [(ranges.size(index), index) for index in indices if index != BATCH]
        if number in seen or len(dict(own)) < len(own) or not dims.keys() >= dict(own).keys():
            continue
        named = rename_indices(place, (i for _, i in own), (dims[size] for size, _ in own))
        reads = [check for check in find_unguarded(named) if check.node.op == READ]
        if not all(is_inside(formula, check) for check in reads):
            continue
        labels = [label for size, label in dims.items() if size in dict(own)]
        if not any({*labels} <= {*tensor.labels} for tensor in _tensors(formula.line)):
            continue  # one for each pair of rows
        seen.add(number)
        every = (*[Batch()][: BATCH in indices], *(Name(name=label) for label in labels))
        name = names.fresh("_".join([ARGMAX, *labels]))
        yield named, Tensor(name=name, dims=every, dtype="int64", detached=True)


def find_places(formula: Formula) -> Iterator[tuple[Node, Ranges]]:
    """Yield the places of a formula's maxima, each with the ranges of its indices.

    Of a maximum within another one it is that at the other one's place.
    """
    ranges = Ranges(formula.sizes)
    left, seen = [*formula.nodes], set[Node]()
    while left:
        node = left.pop()
        if node in seen or not node.height:
            continue
        seen.add(node)
        if node.op == MAX and node.type == "real":
            place = argmax_of(node)
            yield place, ranges
            index, body = ranges.opened(node)
            left.append(substitute(body, {index: place_of(place)}, ranges))
        elif node.op == SUM:
            left.append(ranges.opened(node, alone=False)[1])
        elif node.op in TABLE:
            left += node.args


def is_of_blocks(node: Node) -> bool:
    """Return whether whole blocks of an index share a value, as those of 64 in `x[n//64]`.

    Loops compute it once for each block.
    """
    outside = in_order([node], lambda part: () if is_quotient(part) else operands(part))
    places = [place for part in outside if part.op in PLACED for place in part.places]
    return not node.free <= {term for place in places for term, _ in place.terms}


def find_shift(place: Node, other: Node, ranges: Ranges) -> dict[str | Node, Affine] | None:
    """Return at which indices a place is another one; None if it is at none.

    Of `argmax[p](x[t + p])`, `argmax[p](x[t + p - q])` is the one at t - q.
    """
    reads = [[part for part in in_order([root]) if part.op == READ] for root in (place, other)]
    found: dict[str | Node, Affine] = {}
    for own, theirs in zip(*reads, strict=False):
        for here, there in zip(own.places, theirs.places, strict=False):
            left = here.free & place.free - found.keys()
            index = min(left, default=None)
            if len(left) == 1 and index and abs(here.factor(index)) == 1:
                rest = (here - at(index) * here.factor(index)).replaced(found)
                found[index] = (there - rest) * here.factor(index)
    # What the other one runs over itself is an index of its own alone.
    is_free = all(value.free <= other.free for value in found.values())
    if not found.keys() >= place.free or not is_free:
        return None
    at_others = {str(index): value for index, value in found.items()}
    return found if substitute(place, at_others, ranges) is other else None


def _tensors(line: Line) -> list[Tensor]:
    return [tensor for tensor in (*line.outputs, *line.tensors) if not tensor.many]


def _name_dims(formula: Formula) -> Mapping[Affine, str]:
    """Return the names of dimensions by their sizes, those of outputs first."""
    labels = [label for output in formula.line.outputs for label in output.labels]
    found: dict[Affine, str] = {}
    for name in (*labels, *formula.line.dimensions):
        if name != BATCH:
            found.setdefault(formula.sizes.get(name, size_of(name)), name)
    return found
