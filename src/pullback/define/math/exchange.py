"""What a sum so far is multiplied by when another statistic of its pass gets a newer value.

Multiplication by what lacks the index goes through a sum: of `exp(s - d)*v` with an old `d` a newer
one makes `exp(-new d + old d)` times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.define.math.node import READ, SUM, Node, in_order, names_read
from pullback.define.math.term import add_parts, split_sum, term_of


def _reads(node: Node, names: Iterable[str]) -> bool:
    return not set(names).isdisjoint(names_read([node]))


def may_exchange(op: str, body: Node, index: str, own: Node) -> bool:
    """Return whether what was reduced with one value of a statistic serves with a newer one.

    Not if it depends on the statistic of other rows, whose newer values come later, as on the
    greatest of all scores.

    Args:
        op: of the reduction.
        body: what is reduced.
        index: over which index.
        own: the read of the statistic at its own indices, which lacks the index.
    """
    if op != SUM or body.type != "real":
        return False
    other = own.name
    if any(node.op == READ and node.name == other and node is not own for node in in_order([body])):
        return False
    term = term_of(body)
    if any(_reads(part, [other]) for part in (*term.conditions, *term.under)):
        return False
    for factor in term.over:
        if not _reads(factor, [other]):
            continue
        if factor.op != "exp":
            return False
        parts = split_sum(factor.args[0])
        if any(index in part.free for _, part in parts if _reads(part, [other])):
            return False
    return True


def find_rates(body: Node, running: Sequence[str]) -> tuple[Node, ...]:
    """Return the exponents by which a sum depends on statistics of its own pass."""
    return tuple(
        add_parts(parts)
        for factor in term_of(body).over
        if factor.op == "exp"
        and (parts := [p for p in split_sum(factor.args[0]) if _reads(p[1], running)])
    )
