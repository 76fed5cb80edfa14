"""Checkpoints: which states of a gradient need not all be kept while its steps run back over them.

A gradient such as that of `h[t] = a*h[t - 1] + x` reads h from the last step to the first. Of a
state that is no output only some steps are kept on the way there, and those of each block are
computed again just before it is run back over. Source: A. Griewank, A. Walther, "Evaluating
Derivatives" (2008), chapter 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pullback.define.math.formula import Formula
from pullback.define.math.node import Node
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, find_reads

# How many steps a block has.
EVERY = 32
# No state is needed so many steps before and behind a block together.
MOST_AROUND = 32


@dataclass(frozen=True)
class Walks:
    """All states of a formula, as those of two walks over the same steps.

    Attributes:
        there: the states that are computed first.
        back: those that are computed from them, the other way.
    """

    there: Group
    back: Group

    @property
    def states(self) -> tuple[State, ...]:
        """All of them."""
        return (*self.there.states, *self.back.states)


@dataclass(frozen=True)
class Reach:
    """How far from a step states are read, along their own walk.

    Attributes:
        before: steps at most.
        behind: steps at most.
    """

    before: int
    behind: int


def find_walks(formula: Formula) -> Walks | None:
    """Return a formula's states as two walks; None if they are not."""
    groups = formula.groups
    turn = next((k for k, g in enumerate(groups) if g.weights != groups[0].weights), 0)
    if not turn:
        return None
    there, back = (_join(each, formula.ranges) for each in (groups[:turn], groups[turn:]))
    if there is None or back is None:
        return None
    [(time, one)], [(other, reverse)] = there.weights, back.weights
    return Walks(there, back) if time == other and one * reverse < 0 else None


def names_of(group: Group) -> list[str]:
    """Return the names of a group's states."""
    return [state.name for state in group.states]


def _join(groups: Sequence[Group], ranges: Ranges) -> Group | None:
    """Return groups as one with the same steps; None if those of one go before another's."""
    weights = groups[0].weights
    if len(weights) > 1 or any(group.weights != weights for group in groups):
        return None
    joined = Group(tuple(state for group in groups for state in group.states), weights)
    reach = find_reach(joined, joined.states, ranges)
    return joined if reach and not reach.behind else None


def find_reach(group: Group, readers: Iterable[State], ranges: Ranges) -> Reach | None:
    """Return how far from their own step some expressions read states; None if that is no number.

    Args:
        group: of the states that are read, with one sequential index.
        readers: the expressions.
        ranges: of the indices.
    """
    ((time, weight),) = group.weights
    shifts = [0.0]
    for reader in readers:
        for read in find_reads(reader, group.states, ranges):
            shifts += [end * weight for end in read.shifts[time] or (-math.inf, math.inf)]
    if not all(map(math.isfinite, shifts)):
        return None
    return Reach(int(-min(shifts)), int(max(shifts)))


def reader_of(node: Node) -> State:
    """Return an expression as what reads states."""
    return State("", (), (), node)


def count_steps(steps: int, reach: Reach) -> int:
    """Return how many steps a block has: at least all that the block after it needs.

    Of few steps there are many blocks as well: loops are compared with other code on tiny inputs.
    """
    return EVERY if steps >= 3 * EVERY else max(1, reach.before, steps // 12)


def count_kept(steps: int, reach: Reach) -> int:
    """Return how many steps of a state are kept, at least one, which may be no block's."""
    blocks = -(-steps // count_steps(steps, reach))
    return max(1, (blocks - 1) * reach.before)
