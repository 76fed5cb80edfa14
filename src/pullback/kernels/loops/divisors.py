"""Divisions by a loop invariant: one reciprocal outside of the loop, and multiplications in it.

Several invariants, as in `s*x/r/r/r`, are one factor, `s/r/r/r`: it rounds as often. A single
quotient has one rounding more, so x/x may be less than 1. Only sums, differences and products use
it. What compares or rounds, or is undefined beyond an edge as acos(x/max(x)) is, divides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pullback.define.math import build
from pullback.define.math.node import SUM, Node, number

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
        """Record how the parts of some expressions are used.

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
        """Return whether a node is a division by an invariant of the loop that it is in.

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
        rest, factors = dividend, [divisor]
        while self.takes(rest):
            rest, other = rest.args
            factors.append(other)
        scale: Node | None = None
        if rest.op == "mul" and rest not in self.exact:
            first, second = sorted(rest.args, key=self.emitter.depth)
            if self.emitter.depth(first) < self.emitter.depth(node):
                scale, rest = first, second
        if scale is None and len(factors) == 1:
            return f"{self.emitter.value(dividend, copy)} / {self.divisor(divisor, copy)}"
        factor = scale or number(1.0)
        for other in reversed(factors):
            factor = build.apply("div", factor, other)
        return f"{self.emitter.value(rest, copy)} * {self.emitter.value(factor, copy)}"

    def divisor(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a variable to divide vectors by, declared as far out as its value is known."""
        emitter = self.emitter
        with emitter.at_depth(emitter.depth(node)):
            key = emitter.key(node, copy)
            known = emitter.here.divisors
            if key not in known:
                known[key] = emitter.name("d")
                value = emitter.value(node, copy)
                made = f"({value})" if emitter.here.lane else f" = Divisor::alike({value})"
                emitter.line(f"const Divisor {known[key]}{made};", 10)
            return known[key]
