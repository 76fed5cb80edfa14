"""Recurrences whose step only adds, multiplies or compares: PyTorch has functions for these.

In `s[t] = s[t - 1] + x[t]` each element is all before it combined with one more, which is
`torch.cumsum` of x. At its first place the step reads a boundary, and an adjoint may be 0 at its
last one; there the step itself is taken.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from pullback.define.math import build, steps
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at
from pullback.define.math.node import EQUAL, INSIDE, READ, Node, in_order, is_number, number
from pullback.define.math.recurrence import Group, State, reads_of

# How many formulas are remembered, for all operators together.
MOST = 512
# What changes nothing when it is combined with something.
NEUTRAL = {
    "add": 0.0,
    "mul": 1.0,
    "maximum": -math.inf,
    "minimum": math.inf,
    "logaddexp": -math.inf,
}
# Of these the greatest of several is the same in any order; sums and products may overflow.
ORDERLESS = ("maximum", "minimum")


@dataclass(frozen=True, kw_only=True)
class Cumulative:
    """A group whose states follow from one that is a cumulative function.

    Attributes:
        op: what combines: "add", "mul", "maximum", "minimum" or "logaddexp".
        place: which state of the group that is.
        elements: the formula of what is combined, over the state's indices.
        starts: whether the first place has a value of its own, which follows from a boundary.
        ends: whether the last one has, which reads no state, and anything reads it.
        others: the formula of the other states, which read that one; None if there are none.
        outputs: the outputs and other states that are the same without that value at the end.
        is_read: whether anything else reads the state.
    """

    op: str
    place: int
    elements: Formula
    starts: bool
    ends: bool
    others: Formula | None
    outputs: tuple[str, ...]
    is_read: bool


class _Unlike(Exception):  # noqa: N818  (such a step is no cumulative function)
    """Another step."""


@functools.lru_cache(maxsize=MOST)
def find_cumulative(formula: Formula, group: Group) -> Cumulative | None:
    """Return how a group is a cumulative function; None if it is not."""
    if len(group.weights) != 1:
        return None
    nodes = steps.with_others(formula, group)
    names = {read.name for read in reads_of(nodes, [s.name for s in group.states])}
    if len(names) != 1:
        return None
    place = next(k for k, state in enumerate(group.states) if state.name in names)
    state = group.states[place]
    if state.node.type == "bool":
        return None
    walk = _Walk(state, group.weights[0])
    try:
        element = walk.element(nodes[place])
    except _Unlike:
        return None
    if element is None or walk.first not in walk.exceptions:
        return None
    same = (state.indices, None if walk.is_cut else walk.whole)
    lines = zip(formula.line.outputs, formula.nodes, strict=True)
    others = {
        **{o.name: (o.labels, n) for o, n in lines if o.name not in formula.states},
        **{s.name: (s.indices, n) for s, n in zip(group.states, nodes, strict=True) if s != state},
    }
    rest = [k for k, s in enumerate(group.states) if others.get(s.name, same) != same]
    later = [s.node for g in formula.groups[formula.groups.index(group) + 1 :] for s in g.states]
    later += [
        n
        for o, n in zip(formula.line.outputs, formula.nodes, strict=True)
        if o.name in formula.states
    ]
    readers = [node for labels, node in others.values() if (labels, node) != same]
    is_read = any(True for _ in reads_of([*readers, *later], [state.name]))
    return Cumulative(
        op=walk.op,
        place=place,
        elements=steps.formula_of_some(formula, group, [element], [state.indices]),
        starts=walk.starts,
        ends=is_read and walk.last in walk.exceptions,
        others=steps.formula_of_some(
            formula, group, [nodes[k] for k in rest], [group.states[k].indices for k in rest]
        )
        if rest
        else None,
        outputs=tuple(name for name, each in others.items() if each == same),
        is_read=is_read,
    )


class _Walk:
    """The way from a step down to its read of the step before.

    Attributes:
        op: what combines, once that is known.
        starts: whether the first place has a value of its own.
        exceptions: the places at which the step before is not read.
        whole: the step without the conditions around what combines.
        is_cut: whether what is combined lacks its value at the last place.
    """

    def __init__(self, state: State, weight: tuple[str, int]) -> None:
        self.state = state
        self.time, self.direction = weight
        self.extent = state.extents[state.indices.index(self.time)]
        ends = (Affine(0), self.extent - 1)
        self.first, self.last = ends if self.direction > 0 else ends[::-1]
        self.op = ""
        self.starts = False
        self.exceptions: set[Affine] = set()
        self.whole: Node | None = None
        self.is_cut = False

    def element(self, node: Node) -> Node | None:
        """Return what a step combines with the one before; None for that one itself."""
        if node.op == READ:
            self.require_step_before(node)
            return None
        places = [k for k, a in enumerate(node.args) if any(True for _ in self.reads(a))]
        if len(places) != 1:
            raise _Unlike
        (place,) = places
        if node.op == "where" and place > 0:
            return self.selected(node, place)
        op = "add" if node.op == "sub" and place == 0 else node.op
        if op not in NEUTRAL or self.op not in ("", op) or len(node.args) != 2:
            raise _Unlike
        if self.op and op not in ORDERLESS:
            raise _Unlike
        self.op = op
        self.whole = self.whole or node
        inner, other = self.element(node.args[place]), node.args[1 - place]
        if inner is not None:
            return build.apply(op, inner, other)
        return build.apply("neg", other) if node.op == "sub" else other

    def reads(self, node: Node) -> list[Node]:
        """Return the reads of the state in an expression."""
        return list(reads_of([node], [self.state.name]))

    def require_step_before(self, node: Node) -> None:
        """Stop at a read of something else."""
        before = {i: at(i) for i in self.state.indices}
        before[self.time] = at(self.time) - self.direction
        if list(node.places) != list(before.values()) or node.args:
            raise _Unlike

    def selected(self, node: Node, place: int) -> Node | None:
        """Return what is combined where the step before is selected."""
        exception = self.exception(node.args[0], is_true=place == 2)
        if exception not in (self.first, self.last):
            raise _Unlike
        self.exceptions.add(exception)
        inner, other = self.element(node.args[place]), node.args[3 - place]
        # Whether 0 or 1 says nothing more is known only further up, where they are combined.
        if exception == self.first and not (inner is None and self.is_neutral(other)):
            self.starts = True
        if inner is not None and self.reads_beside(inner):
            # What only that branch reads may be outside.
            self.is_cut |= exception == self.last
            zero = number(0) if inner.type == "int" else number(0.0)
            guarded = [node.args[0], zero, zero]
            guarded[place] = inner
            return build.apply("where", *guarded)
        return inner

    def reads_beside(self, node: Node) -> bool:
        """Return whether an expression reads something at another time, or where data says."""
        reads = (n for n in in_order([node]) if n.op == READ)
        places = (place for read in reads for place in read.places)
        return any(p.nodes or (self.time in p.free and p.index is None) for p in places)

    def is_neutral(self, node: Node) -> bool:
        """Return whether a value changes nothing."""
        return bool(self.op) and is_number(node, NEUTRAL[self.op])

    def exception(self, condition: Node, *, is_true: bool) -> Affine | None:
        """Return the only place at which a condition is, or is not; None if that is unknown."""
        if condition.op == "logical_not":
            return self.exception(condition.args[0], is_true=not is_true)
        if condition.op not in (EQUAL, INSIDE) or condition.args:
            return None
        place = condition.places[0]
        factor, rest = place.factor(self.time), place.replaced({self.time: Affine(0)})
        if abs(factor) != 1 or rest.free:
            return None
        if condition.op == EQUAL:
            return rest * -factor if is_true else None
        if is_true or condition.size != self.extent or factor != 1:
            return None
        return {Affine(-1): Affine(0), Affine(1): self.extent - 1}.get(rest)
