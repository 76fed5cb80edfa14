"""All steps of some states as one formula, for loops that write states and read them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import reduce, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.node import READ, Node, read
from pullback.define.math.recurrence import Group


@dataclass(frozen=True, kw_only=True)
class ScanFormula:
    """All steps of some groups as one formula.

    Attributes:
        formula: its outputs are the states, and others that are computed at the same step. It reads
            them by their names as it reads its parameters.
        turned: of each of its outputs, the order of the dimensions that it is for.
    """

    formula: Formula
    turned: tuple[tuple[int, ...], ...]


def write_scan(
    formula: Formula,
    groups: Sequence[Group],
    others: Mapping[str, tuple[tuple[str, ...], Node]],
    last: str,
    apart: Container[str] = (),
) -> ScanFormula:
    """Return the formula of the loops of some groups.

    Args:
        formula: whose states the groups are of.
        groups: of the same sequential index.
        others: what else is computed: its indices and its element.
        last: the index that comes last in every tensor, so that its elements are neighbours.
        apart: states that others read, also at the same place.
    """
    states = [
        pair
        for group in groups
        for pair in zip(
            group.states,
            steps.with_others(formula, group, alike=True, apart=apart),
            strict=True,
        )
    ]
    found = {state.name: (state.indices, node) for state, node in states} | dict(others)
    orders = {
        name: tuple(sorted(range(len(own)), key=lambda k, own=own: own[k] == last))
        for name, (own, _) in found.items()
    }

    def turned(node: Node) -> Node | None:
        if node.op != READ or node.name not in names:
            return None
        return read(node.name, [node.places[k] for k in orders[node.name]], node.type)

    names = {state.name for state, _ in states}
    indices = [tuple(own[k] for k in orders[name]) for name, (own, _) in found.items()]
    nodes = reduce.rewrite_reads(
        [node for _, node in found.values()], steps.simplified, formula.ranges, turned
    )
    every = Group(tuple(state for state, _ in states), groups[0].weights)
    made = steps.formula_of(formula, every, nodes, indices, FreeNames(formula.line), {})
    parameters = [p for p in made.line.parameters if p.name not in names]
    named = zip(steps.outputs_of(nodes, indices), found, strict=True)
    outputs = [replace(output, name=name) for output, name in named]
    line = replace(made.line, parameters=tuple(parameters), outputs=tuple(outputs))
    inverse = [tuple(order.index(k) for k in range(len(order))) for order in orders.values()]
    return ScanFormula(formula=replace(made, line=line), turned=tuple(inverse))
