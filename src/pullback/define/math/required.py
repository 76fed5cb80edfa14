"""What a definition assumes and a call may break: that every size is 1 or more.

`x[0]` of an empty tensor reads outside it, and so may `i < size(n) + size(m) - 1` where m is 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pullback.define.math import bounds, show
from pullback.define.math.extents import evaluate_size
from pullback.define.math.facts import Fact, derive_facts, is_positive, list_sums
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, size
from pullback.define.math.inside import OutOfBounds
from pullback.define.math.node import (
    ARGMAX,
    EQUAL,
    INSIDE,
    MAX,
    READ,
    REDUCTIONS,
    Node,
    in_order,
    place_of,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.subscripts import is_data
from pullback.define.math.term import split_conjunction

# How many calls of different sizes are remembered.
MOST = 256
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")

Reductions = tuple[tuple[str, Affine], ...]


@dataclass(frozen=True)
class Check:
    """A read or a maximum, and where it is evaluated.

    Attributes:
        node: the read or maximum.
        around: the reductions that it is in.
        facts: in a branch of `where`: what is known of indices where it is taken.
    """

    node: Node
    around: Reductions
    facts: tuple[Fact, ...] = ()


_checks: WeakKeyDictionary[Node, tuple[Check, ...]] = WeakKeyDictionary()
_branches: WeakKeyDictionary[Node, tuple[Check, ...]] = WeakKeyDictionary()
_passed: WeakKeyDictionary[Node, set[tuple[tuple[str, int], ...]]] = WeakKeyDictionary()


def require_inside(indexed: Formula, sizes: Mapping[str, int]) -> None:
    """Stop unless every unguarded read stays inside its tensor in a call of these sizes.

    Args:
        indexed: the formula.
        sizes: of every dimension, every new index and "...". Symbolic sizes, while tracing, are not
            checked.

    Raises:
        PullbackError: PB141, a read that is outside its tensor; PB148, a maximum over nothing.
    """
    if any(type(value) is not int for value in sizes.values()):
        return
    key = tuple(sizes.items())
    outputs = zip((o.labels for o in indexed.line.outputs), indexed.nodes, strict=True)
    states = ((state.indices, state.node) for state in indexed.states.values())
    for labels, root in (*outputs, *states):
        own = {label: _extent(indexed, label, sizes) for label in labels}
        passed = _passed.setdefault(root, set())
        if key in passed or 0 in own.values():
            continue
        for check in _checks_of(root):
            _require(indexed, check, own, sizes)
        if 0 in sizes.values():
            _require_branches(indexed, root, own, sizes)
        if len(passed) < MOST:
            passed.add(key)


def _extent(indexed: Formula, label: str, sizes: Mapping[str, int]) -> int:
    found = evaluate_size(indexed.sizes.get(label) or size(label), sizes)
    return sizes.get(label, 1) if found is None else max(found, 0)


def _checks_of(root: Node) -> tuple[Check, ...]:
    if root not in _checks:
        _checks[root] = tuple(find_unguarded(root))
    return _checks[root]


def find_unguarded(root: Node) -> Iterator[Check]:
    """Yield the reads and maxima that are evaluated wherever their indices have values."""
    seen: set[Check] = set()
    left = [Check(root, ())]
    while left:
        check = left.pop()
        node, around = check.node, check.around
        if check in seen:
            continue
        seen.add(check)
        if node.op in (READ, MAX, ARGMAX):
            yield check
        if node.op in REDUCTIONS:
            around = (*around, (node.bound, node.size))
        left += [Check(arg, around) for arg in _evaluated_operands(node)]


def _evaluated_operands(node: Node) -> Iterable[Node]:
    """Return the operands that are evaluated wherever a node is.

    A branch is not, and neither is what stands beside a condition on indices: `inside and x[e] > 0`
    does not hold where the index is outside, whatever is there.
    """
    if node.op == "where":
        return node.args[:1]
    if node.op == "logical_and":
        parts = split_conjunction(node)
        sure = [part for part in parts if all(n.op != READ for n in in_order([part]))]
        return sure or list(filter(_is_of_indices, parts)) or parts
    return node.args


def _is_of_indices(condition: Node) -> bool:
    """Return whether a condition is on indices alone, where an argmax counts as one."""
    if condition.op in (INSIDE, EQUAL):
        places = condition.places
    elif condition.op in COMPARISONS and all(arg.type == "int" for arg in condition.args):
        places = tuple(map(place_of, condition.args))
    else:
        return False
    return all(node.op == ARGMAX for place in places for node in place.nodes)


def _require_branches(
    indexed: Formula, root: Node, own: Mapping[str, int], sizes: Mapping[str, int]
) -> None:
    """Stop at a read under `where` that is inside only if no size is 0: `where(n > 3, x[0], 0)`."""
    if root not in _branches:
        _branches[root] = find_guarded(root, indexed.ranges)
    for check in _branches[root]:
        around = {bound: evaluate_size(extent, sizes) or 0 for bound, extent in check.around}
        extents = {**own, **around}
        taken = all(_may_hold(fact, extents, sizes) for fact in check.facts)
        if taken and all(extent > 0 for extent in around.values()):
            _require_read(indexed, check.node, extents, sizes, check)


def find_guarded(root: Node, ranges: Ranges) -> tuple[Check, ...]:
    """Return the reads that are evaluated where some conditions hold, as many as are looked at."""
    return tuple(itertools.islice(_iter_guarded(root, ranges), MOST))


def _iter_guarded(root: Node, ranges: Ranges) -> Iterator[Check]:
    seen: set[Check] = set()
    left = [Check(root, ())]
    while left and len(seen) < MOST * MOST:
        check = left.pop()
        node, around = check.node, check.around
        if check in seen:
            continue
        seen.add(check)
        if node.op == READ and check.facts:
            yield check
        if node.op == "where":
            condition, *branches = node.args
            for branch, holds in zip(branches, (True, False), strict=True):
                known = derive_facts(condition, holds, Ranges({**ranges.sizes, **dict(around)}))
                known = [fact for fact in known if not any(map(is_data, list_sums([fact])))]
                more = tuple(dict.fromkeys((*check.facts, *known)))
                # A branch without facts about indices is still a branch.
                left.append(Check(branch, around, more or (Affine(0),)))
            left.append(Check(condition, around, check.facts))
            continue
        if node.op in REDUCTIONS:
            around = (*around, (node.bound, node.size))
        left += [Check(arg, around, check.facts) for arg in node.args]


def _require(
    indexed: Formula, check: Check, own: Mapping[str, int], sizes: Mapping[str, int]
) -> None:
    around = {bound: evaluate_size(extent, sizes) for bound, extent in check.around}
    extents = {**own, **{bound: extent or 0 for bound, extent in around.items()}}
    if any(extents[bound] <= 0 for bound, _ in check.around):
        return
    node = check.node
    if node.op == READ:
        _require_read(indexed, node, extents, sizes)
    elif (evaluate_size(node.size, sizes) or 0) <= 0:
        raise bounds.empty(indexed.line, node)


def _require_read(
    indexed: Formula,
    read: Node,
    extents: Mapping[str, int],
    sizes: Mapping[str, int],
    check: Check | None = None,
) -> None:
    for place, (label, whole), extent, (least, most) in _list_outside(
        indexed, read, extents, sizes
    ):
        if check is None or _depends(indexed, check, place, whole, extents, sizes):
            one = label if label.isdecimal() else f"'{label}' of size {extent}"
            raise OutOfBounds.error(
                f"{indexed.line.qualname}: {show.format_inside(read)} is outside of "
                f"'{read.name}': it reads {least if least < 0 else most} of the dimension {one}",
                help="write pad(...) around it if zeros are meant there",
            )


def _list_outside(
    indexed: Formula, read: Node, extents: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[tuple[Affine, tuple[str, Affine], int, tuple[int, int]]]:
    """Yield places of a read that are outside, with their dimension, its size, and their ends."""
    for place, (label, whole) in zip(read.places, _dimensions(indexed, read.name), strict=True):
        if label == BATCH or is_data(place):
            continue
        if any(not evaluate_size(part.size, sizes) for part in place.nodes if part.op == ARGMAX):
            continue  # there is no greatest element, which the check of the maximum says
        extent = evaluate_size(whole, sizes)
        least, most = _ends(place, extents, sizes)
        if extent is not None and (least < 0 or most >= extent):
            yield place, (label, whole), extent, (least, most)


def find_larger(indexed: Formula, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return larger sizes of dimensions with which reads that are outside of them may be inside."""
    found: dict[str, int] = {}
    for output, root in zip(indexed.line.outputs, indexed.nodes, strict=True):
        own = {label: _extent(indexed, label, sizes) for label in output.labels}
        for check in _checks_of(root):
            if check.node.op == READ:
                extents = own | {bound: evaluate_size(e, sizes) or 0 for bound, e in check.around}
                for _, (label, _), _, (_, most) in _list_outside(
                    indexed, check.node, extents, sizes
                ):
                    name = label.rstrip("'")
                    found[name] = max(found.get(name, sizes.get(name, 0)), most + 1)
    return {name: many for name, many in found.items() if many > sizes.get(name, many)}


def _dimensions(indexed: Formula, name: str) -> list[tuple[str, Affine]]:
    """Return the indices of a tensor or state, and how far they run."""
    if (state := indexed.states.get(name)) is not None:
        return list(zip(state.indices, state.extents, strict=True))
    [tensor] = [tensor for tensor in indexed.line.tensors if tensor.name == name]
    return [(label, size(label)) for label in tensor.labels]


def _depends(  # noqa: PLR0913, PLR0917
    indexed: Formula,
    check: Check,
    place: Affine,
    extent: Affine,
    extents: Mapping[str, int],
    sizes: Mapping[str, int],
) -> bool:
    """Return whether a read in a branch is inside only because sizes are 1 or more."""
    if not is_inside_for_facts(indexed, check, place, extent):
        return False  # the data says that it is inside
    return any(
        all(_ends(left, extents, sizes)[0] < 0 for left in end)
        for end in list_left(check, place, extent)
    )


def is_inside_for_facts(indexed: Formula, check: Check, place: Affine, extent: Affine) -> bool:
    """Return whether a read in a branch is inside where that is taken, if no size is 0."""
    ranges = Ranges({**indexed.sizes, **dict(check.around)})
    return all(is_positive(end, check.facts, ranges) for end in (place, extent - 1 - place))


def is_inside(indexed: Formula, check: Check) -> bool:
    """Return whether a read of a tensor is inside wherever its indices have values, at any size."""
    dimensions = zip(check.node.places, _dimensions(indexed, check.node.name), strict=True)
    return all(
        label == BATCH
        or (not is_data(place) and is_inside_for_facts(indexed, check, place, extent))
        for place, (label, extent) in dimensions
    )


def list_left(check: Check, place: Affine, extent: Affine) -> tuple[list[Affine], list[Affine]]:
    """Return what is left before and behind a place less each fact, of which one is not negative.

    If all of one list are negative, the read is inside only because sizes are 1 or more.
    """
    facts = [*list_sums(check.facts)]
    known = (Affine(0), *facts, *(x + y for x, y in itertools.combinations(facts, 2)))
    before, behind = ([end - fact for fact in known] for end in (place, extent - 1 - place))
    return before, behind


def _may_hold(fact: Fact, extents: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Return whether a fact holds for some values of the indices."""
    if isinstance(fact, Affine):
        return _ends(fact, extents, sizes)[1] >= 0
    return any(all(_may_hold(own, extents, sizes) for own in option) for option in fact.options)


def _ends(place: Affine, extents: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the least and the greatest value of an index, which data does not decide."""
    ranges = Ranges({index: Affine(max(extent, 1)) for index, extent in extents.items()})
    ends = ranges.bounds(place)
    assert ends is not None, place
    least, most = (evaluate_size(end, sizes) or 0 for end in ends)
    return least, most
