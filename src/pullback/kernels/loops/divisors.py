"""Divisions by what stays the same: one reciprocal outside, and multiplications.

A quotient so made is off by a rounding more, so that x/x may be less than 1. Only sums, differences
and products are made of such quotients: what compares, rounds or has an edge where it is not
defined, as acos(x/max(x)) has, gets them divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pullback.define.math.node import SUM, Node

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

# What does not magnify the error of its operands where they are not near an edge.
SMOOTH = ("add", "sub", "mul", "neg", "div", "where", SUM)
# Multiplications that a quotient costs.
WORK = 2


class Divisors:
    """The divisors of one kernel.

    Attributes:
        emitter: what writes it.
        exact: the nodes that something else than sums and products is made of.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.exact: set[Node] = set()

    def see(self, roots: Iterable[Node], *, exact: bool = False) -> None:
        """Learn what is made of the parts of some expressions.

        Args:
            roots: the expressions.
            exact: whether something else than sums and products is made of them.
        """
        seen: set[Node] = set()
        left = [(root, exact) for root in roots]
        while left:
            node, is_exact = left.pop()
            if node in self.exact or (node in seen and not is_exact):
                continue
            seen.add(node)
            if is_exact:
                self.exact.add(node)
            # However its terms are rounded, a sum depends on their order.
            smooth = node.op in SMOOTH and (not is_exact or node.op == SUM)
            left += [(arg, not smooth or arg.type != "real") for arg in node.args]

    def takes(self, node: Node) -> bool:
        """Return whether a node is a division by what is known outside of the loop that it is in.

        A single one for each row is divided.
        """
        if node.op != "div" or node in self.exact:
            return False
        depth = self.emitter.depth(node)
        is_repeated = self.emitter.scopes[depth].lane is not None
        return is_repeated and self.emitter.depth(node.args[1]) < depth

    def quotient(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return what computes such a division."""
        dividend, divisor = node.args
        return f"{self.emitter.value(dividend, copy)} / {self.divisor(divisor, copy)}"

    def divisor(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a variable that vectors are divided by, made where the value is known."""
        emitter = self.emitter
        with emitter.at_depth(emitter.depth(node)):
            key = emitter.key(node, copy)
            known = emitter.here.divisors
            if key not in known:
                known[key] = emitter.name("d")
                text = f"const Divisor {known[key]}({emitter.value(node, copy)});"
                emitter.line(text, 10)
            return known[key]
