"""What outputs need of each step, computed with the steps: `hoist`, the other way round.

The gradient for a GRU's inputs reads three gates by an index that no state has, that for its matrix
sums over all steps. Read afterwards, all that they need is computed again, over whole tensors. With
the steps it is at hand: left are copies, and a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pullback.define.math import bounds, reduce
from pullback.define.math.adjoint import written_out
from pullback.define.math.formula import Formula
from pullback.define.math.index import at
from pullback.define.math.lift import Search
from pullback.define.math.node import PLACED, REDUCTIONS, Node, in_order
from pullback.define.math.recurrence import Group, State, reads_of
from pullback.define.math.term import Term, term_of

# What is computed again in no time.
CHEAP = ("add", "sub", "mul", "neg", "where", "number", "scalar", "logical_not", "logical_and")


def sink(formula: Formula, wanted: Iterable[int]) -> Formula | None:
    """Return a formula with states that its outputs read; None if there is nothing to gain.

    Only outputs with an index that no state has: a loop computes others with its steps.

    Args:
        formula: of a recurrence.
        wanted: the places of the outputs that are computed.
    """
    sunk, lines = formula, formula.line.outputs
    for place in (k for k, group in enumerate(formula.groups) if len(group.weights) == 1):
        group, found = sunk.groups[place], _Elements(sunk, place)
        every = {index for state in group.states for index in state.indices}
        collected = {
            k: found.collect(sunk.elements[k]) for k in wanted if not {*lines[k].labels} <= every
        }
        carried = _find_carried(sunk, group)
        sums = {name: found.collect(state.node) for name, state in carried.items()}
        home = max(group.states, key=lambda state: len(state.indices))
        for node in collected.values():
            found.visit(node, (), home)
        found.take_cheap(True)
        for node in sums.values():
            found.visit(node, (), home)
        if not (parts := found.parts()) and not carried:
            continue
        states = [state for state in group.states if state.name not in carried]
        for name, node in sums.items():
            part = replace(carried[name], node=found.rewrite(node))
            states = [replace(s, node=written_out(s.node, part, sunk.ranges)) for s in states]
        groups = [*sunk.groups]
        groups[place] = replace(group, states=(*states, *parts))
        found.take_cheap(False)
        # What was not visited may need the same elsewhere.
        elements = tuple(
            found.rewrite(collected[k]) if k in collected else node
            for k, node in enumerate(sunk.elements)
        )
        sunk = replace(sunk, elements=elements, groups=tuple(groups))
    return None if sunk is formula else sunk


def _find_carried(formula: Formula, group: Group) -> Mapping[str, State]:
    """Return the states that only carry a sum over other states to a later step.

    That step may as well sum up itself: so what is summed is computed once for all lanes.
    """
    ((time, _),) = group.weights
    own = {state.name: state for state in group.states}
    others = (state.node for each in formula.groups if each != group for state in each.states)
    kept = {read.name for read in reads_of([*formula.nodes, *others], own)}
    kept |= {output.name for output in formula.line.outputs}
    for read in reads_of([state.node for state in group.states], own):
        if read.places[own[read.name].indices.index(time)] == at(time):
            kept.add(read.name)
    found = {n: s for n, s in own.items() if n not in kept and _sums_up(s.node, own)}
    # One that reads itself, or another of these, would be there after it was written out.
    return {n: s for n, s in found.items() if not any(True for _ in reads_of([s.node], found))}


def _is_cheap(node: Node) -> bool:
    """Return whether an expression only adds, multiplies and selects."""
    return all(n.op in PLACED or n.op in CHEAP for n in in_order([node]))


def _sums_up(node: Node, names: Iterable[str]) -> bool:
    """Return whether a sum in an expression reads some names."""
    sums = (each for each in in_order([node]) if each.op in REDUCTIONS)
    return any(True for _ in reads_of(sums, names))


class _Elements(Search):
    """What is computed at the steps of a group, from states at the same place.

    Attributes:
        own: the states of the group.
        others: the states that are not there yet.
        takes_cheap: whether what only multiplies is one, too: of what sums over states need.
    """

    def __init__(self, formula: Formula, place: int) -> None:
        super().__init__(formula)
        self.own = {state.name: state for state in formula.groups[place].states}
        self.takes_cheap = False
        self.others = {s.name for group in formula.groups[place + 1 :] for s in group.states}

    def take_cheap(self, takes: bool) -> None:
        """Take what only multiplies, or leave it, from here on."""
        self.takes_cheap = takes
        self.seen.clear()

    def takes(self, node: Node, state: State) -> bool:
        """Return whether an expression has as many indices as a state, and reads states."""
        if node.op in PLACED or node.type != "real" or len(node.free) != len(state.indices):
            return False
        if not self.takes_cheap and _is_cheap(node):
            return False
        if not any(True for _ in reads_of([node], self.own)) or bounds.find_gathers(node):
            return False
        return not _sums_up(node, self.own)

    def fits(self, node: Node, state: State) -> bool:
        """Return whether all that an expression reads is there at its step."""
        own = {name: tuple(map(at, each.indices)) for name, each in self.own.items()}
        is_here = all(read.places == own[read.name] for read in reads_of([node], own))
        is_there = not any(True for _ in reads_of([node], self.others))
        return node.free == frozenset(state.indices) and is_here and is_there

    def collect(self, node: Node) -> Node:
        """Return an expression in whose products the factors of each step are one factor.

        Those are what has no other indices than the states that are read in the product.
        """

        def known(each: Node) -> Node | None:
            if each.op not in ("mul", "div", "neg") or each.type != "real":
                return None
            term = term_of(each)
            factors = (*term.over, *term.under)
            reading = [f for f in factors if any(True for _ in reads_of([f], self.own))]
            if not reading or any(factor.height for factor in reading):
                return None
            free = frozenset[str]().union(*(factor.free for factor in reading))
            over, under = ([f for f in fs if f.free <= free] for fs in (term.over, term.under))
            together = Term(over=tuple(over), under=tuple(under)).value
            rest = replace(
                term,
                over=(together, *(f for f in term.over if f not in over)),
                under=tuple(f for f in term.under if f not in under),
            )
            return rest.node

        return reduce.rewrite_nodes([node], lambda each: each, self.ranges, known)[0]
