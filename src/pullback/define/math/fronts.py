"""Fronts of two sequential indices as the steps of one: `R[i, j]` as `R[f, j]`, where f = i + j.

What a front reads of a state was computed by the front before or the one before that, at the same
or a neighbouring j: so the elements of a front are neighbours, as the lanes of loops need them.
Source: L. Lamport, "The parallel execution of DO loops" (1974).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pullback.define.math import reduce
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, at
from pullback.define.math.node import READ, Node, read
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State


@dataclass(frozen=True, kw_only=True)
class Fronts:
    """How two indices i and j become the number of a front and j.

    Attributes:
        index: the number of the front.
        gone: the name of i.
        along: the name of j.
        factor: by how much the number grows with j; with i it grows by 1.
        place: i, by the others.
        extents: how far i and j run.
        states: the indices of the states whose elements are in fronts, by their names.
        sizes: how far the indices run that are no dimensions, the number of the front among them.
    """

    index: str
    gone: str
    along: str
    factor: int
    place: Affine
    extents: tuple[Affine, Affine]
    states: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, Affine]

    @property
    def extent(self) -> Affine:
        """How many fronts there are."""
        return self.sizes[self.index]

    def replace_in(self, indices: tuple[str, ...]) -> tuple[str, ...]:
        """Return indices with the number of the front in place of i."""
        return tuple(self.index if index == self.gone else index for index in indices)

    def move(self, node: Node) -> Node:
        """Return an expression with fronts as steps."""
        # Where a front has i = j = 0.
        first = at(self.index) - self.place - at(self.along) * self.factor

        def moved(each: Node) -> Node | None:
            if each.op != READ or each.name not in self.states:
                return None
            places = dict(zip(self.states[each.name], each.places, strict=True))
            places[self.gone] += places[self.along] * self.factor + first
            return read(each.name, list(places.values()), each.type)

        ranges = Ranges(self.sizes)
        [node] = reduce.rewrite_reads([node], lambda each: each, ranges, moved)
        return reduce.substitute(node, {self.gone: self.place}, ranges)


def skew(formula: Formula, group: Group) -> tuple[Formula, Group, Fronts] | None:
    """Return a formula in which the states of a group have fronts as steps.

    Args:
        formula: whose states the group is of.
        group: of several sequential indices.

    Returns: the formula, the group in it, and the fronts; None where there are more than two
        indices, or neither has the weight 1, or a dimension of a state has no name of its own.
    """
    names = [index for state in group.states for index in state.indices if index != BATCH]
    if len(group.weights) != 2 or not all(map(str.isidentifier, names)):
        return None
    (gone, weight), (along, other) = sorted(group.weights, key=lambda each: abs(each[1]) != 1)
    if abs(weight) != 1:
        return None
    fronts = _number_fronts(formula, group, gone, along, other * weight)
    states = (
        State(
            name=state.name,
            indices=fronts.replace_in(state.indices),
            extents=tuple(
                fronts.extent if index == gone else extent
                for index, extent in zip(state.indices, state.extents, strict=True)
            ),
            node=fronts.move(state.node),
        )
        for state in group.states
    )
    made = Group(tuple(states), ((fronts.index, weight),))
    groups = tuple(made if each == group else each for each in formula.groups)
    return replace(formula, groups=groups, sizes=fronts.sizes), made, fronts


def _number_fronts(formula: Formula, group: Group, gone: str, along: str, factor: int) -> Fronts:
    first = group.states[0]
    extents = dict(zip(first.indices, first.extents, strict=True))
    names = FreeNames(formula.line)
    names.taken.update(formula.states)
    # Fronts of the same name are the same ones.
    index = names.fresh(f"front_{gone}_{abs(factor) if abs(factor) > 1 else ''}{along}")
    # Where the number falls with j, the last j of i = 0 has number 0.
    least = (extents[along] - 1) * max(-factor, 0)
    many = extents[gone] + (extents[along] - 1) * abs(factor)
    return Fronts(
        index=index,
        gone=gone,
        along=along,
        factor=factor,
        place=at(index) - at(along) * factor - least,
        extents=(extents[gone], extents[along]),
        states={state.name: state.indices for state in group.states},
        sizes={**formula.sizes, index: many},
    )
