"""Sums over the steps of a recurrence, as states that are added up while it runs.

A gradient such as `grad_a[d] = sum[b, t](l[b, t, d]*h[b, t - 1, d])` needs one element at each
step. Read afterwards, all of them have to be in memory. Added up step by step, only the last total
is, and what each addition loses is added to the next element. Source: W. Kahan, "Further remarks on
reducing truncation errors" (1965).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.define.math import build, reduce
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at
from pullback.define.math.node import SUM, Node, number, read, rename_index, rename_indices
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.term import select, split_guard


@dataclass(frozen=True, kw_only=True)
class Total:
    """An output that is the last element of a state, added up over other indices.

    Attributes:
        output: its name.
        states: the running total, and what was lost of it. Their indices are those that are added
            up afterwards, that of the steps, and the output's.
        element: what is added at a step.
        summed: how many indices are added up afterwards.
        last: the last step.
    """

    output: str
    states: tuple[State, State]
    element: Node
    summed: int
    last: Affine


def find_total(
    output: tuple[str, tuple[str, ...]], node: Node, group: Group, names: FreeNames, ranges: Ranges
) -> Total | None:
    """Return an output as a total; None if it is no sum over the steps of all that is in a state.

    Args:
        output: its name and its indices.
        node: its element, which reads states of the group.
        group: of one sequential index.
        names: that are taken.
        ranges: of the indices.
    """
    name, labels = output
    ((time, direction),) = group.weights
    opened = Ranges(ranges.sizes)
    body, bound = _open_sums(node, opened)
    indices = _find_indices(body, bound, group, opened)
    if indices is None or time not in indices.values() or body.height or body.type != "real":
        return None
    summed = tuple(index for index in indices.values() if index != time)
    every = (*summed, time, *labels)
    whole = [s for s in group.states if {*s.indices} == {*every}]
    if not whole or len({*every}) < len(every):
        return None
    for old, new in indices.items():
        body = rename_index(body, old, new)
    extents = dict(zip(whole[0].indices, whole[0].extents, strict=True))
    states = _add_up(
        body, (time, direction), {index: extents[index] for index in every}, names, ranges
    )
    last = extents[time] - 1 if direction > 0 else Affine(0)
    return Total(output=name, states=states, element=body, summed=len(summed), last=last)


def add_totals(formula: Formula, group: Group, totals: Sequence[Total]) -> tuple[Formula, Group]:
    """Return a formula, and its group that also adds up totals."""
    more = (state for total in totals for state in total.states)
    return formula.with_states(group, (*group.states, *more))


def _open_sums(node: Node, ranges: Ranges) -> tuple[Node, list[str]]:
    """Return what is added up, with the factors and conditions before it, and the indices."""
    around, bound = list[tuple[str, tuple[Node, ...]]](), list[str]()
    while True:
        if node.op == SUM:
            index, node = ranges.opened(node)
            bound.append(index)
        elif node.op == "neg":
            around.append(("mul", (number(-1.0),)))
            node = node.args[0]
        elif node.op == "mul" and (place := _factor_of(node)) is not None:
            around.append(("mul", (node.args[place],)))
            node = node.args[1 - place]
        else:
            conditions, value = split_guard(node)
            if not conditions or not value.height or any(c.height for c in conditions):
                break
            around.append(("where", conditions))
            node = value
    if not bound and node.op in ("add", "sub"):
        node, bound = _open_both(node, ranges)
    for op, own in reversed(around):
        node = select(own, node) if op == "where" else build.apply("mul", *own, node)
    return node, bound


def _open_both(node: Node, ranges: Ranges) -> tuple[Node, list[str]]:
    """Return two sums as one, if they are over the same ranges; else the node."""
    (one, bound), (other, others) = (_open_sums(each, ranges) for each in node.args)
    if [*map(ranges.size, bound)] != [*map(ranges.size, others)]:
        return node, []
    return build.apply(node.op, one, rename_indices(other, others, bound)), bound


def _factor_of(node: Node) -> int | None:
    """Return which operand of a product has no sum, and the other one is made of some."""
    for place, operand in enumerate(node.args):
        if not operand.height and node.args[1 - place].height:
            return place
    return None


def _find_indices(
    body: Node, bound: Sequence[str], group: Group, ranges: Ranges
) -> dict[str, str] | None:
    """Return which index of the states each bound one is; None if one is none, or several."""
    states = {state.name: state for state in group.states}
    ((time, _),) = group.weights
    found: dict[str, str] = {}
    for each in reads_of([body], states):
        state = states[each.name]
        for index, extent, place in zip(state.indices, state.extents, each.places, strict=True):
            for own in place.free & {*bound}:
                shift = place - at(own)
                is_own = not shift.terms and (index == time or not shift.constant)
                if not is_own or found.setdefault(own, index) != index:
                    return None
                if ranges.size(own) != extent:
                    return None
    is_each = len(found) == len(bound) == len({*found.values()})
    return found if is_each else None


def _add_up(
    element: Node,
    step: tuple[str, int],
    extents: Mapping[str, Affine],
    names: FreeNames,
    ranges: Ranges,
) -> tuple[State, State]:
    """Return the running total of an element, and what was lost of it."""
    time, direction = step
    total, lost = names.fresh("total"), names.fresh("lost")
    indices = tuple(extents)
    places = [at(index) - direction if index == time else at(index) for index in indices]

    def before(name: str) -> Node:
        return reduce.pad(name, places, extents.values(), ranges)

    given = build.apply("sub", element, before(lost))
    added = build.apply("add", before(total), given)
    now = read(total, map(at, indices))
    rest = build.apply("sub", build.apply("sub", now, before(total)), given)
    # Of an infinite total nothing is lost.
    is_number = build.apply("lt", build.apply("abs", rest), number(math.inf))
    kept = build.apply("where", is_number, rest, number(0.0))
    made = (total, added), (lost, kept)
    own, other = (State(name, indices, tuple(extents.values()), node) for name, node in made)
    return own, other
