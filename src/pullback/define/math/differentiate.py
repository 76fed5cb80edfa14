"""Reverse and forward mode on the graph: the derivative of a formula is a formula.

Each function's own derivative is in the table; the chain rule is here. A derivative that is zero is
None and never a product with zero, so that no NaN comes out of a branch that is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pullback.define.math import build, reduce
from pullback.define.math.functions import TABLE
from pullback.define.math.node import (
    MAX,
    NUMBER,
    READ,
    SUM,
    Node,
    in_order,
    is_number,
    number,
    place_of,
    read,
    rename_index,
)
from pullback.define.math.ranges import Ranges

# The derivative of a function by one of its operands, times `grad`: None is zero.
Rule = Callable[[Node, Node], Node]


def vjp(outputs: Sequence[tuple[Node, Node]], wrt: Sequence[str]) -> list[Node | None]:
    """Return the gradient for each name, element by element; None if it is zero.

    This is for pointwise formulas; the caller sums over the dimensions that a tensor lacks.
    `reverse.gradients` is for all formulas.

    Args:
        outputs: expressions, each with the gradient that arrives for it.
        wrt: names of tensors.
    """
    gradients: dict[str, Node | None] = dict.fromkeys(wrt)
    for node, adjoint in Reverse(wrt, Ranges()).reads(outputs):
        before = gradients[node.name]
        gradients[node.name] = adjoint if before is None else plus(before, adjoint)
    return [gradients[name] for name in wrt]


class Reverse:
    """The chain rule from outputs to reads; here a gradient has all indices of its output."""

    def __init__(
        self,
        wrt: Sequence[str],
        ranges: Ranges,
        results: Mapping[Node, Node] | None = None,
        kept: Mapping[Node, Node] | None = None,
    ) -> None:
        self.wrt = set(wrt)
        self.graph = OpenedGraph(ranges, results, kept)
        self.adjoints: dict[Node, Node] = {}

    def reads(self, outputs: Sequence[tuple[Node, Node]]) -> Iterator[tuple[Node, Node]]:
        """Yield each read of the tensors with the gradient that arrives for it, or a part of it."""
        roots = [node for node, _ in outputs]
        active = self.graph.active(roots, self.wrt)
        for node, grad in outputs:
            self.give(node, grad, node)
        for node in reversed(list(in_order(roots, self.graph.operands))):
            if node not in active:
                continue
            for adjoint in self.arrived(node):
                if node.op == READ and node.name in self.wrt:
                    yield node, adjoint
                    continue
                for place, arg in enumerate(self.graph.operands(node)):
                    part = self.pulled(node, place, adjoint) if arg in active else None
                    if part is not None:
                        self.give(arg, part, node)

    def give(self, node: Node, grad: Node, source: Node) -> None:
        """Add a part, which comes from the gradient of `source`, to a node's gradient."""
        before = self.adjoints.get(node)
        self.adjoints[node] = grad if before is None else plus(before, grad)

    def arrived(self, node: Node) -> list[Node]:
        """Return a node's gradient, in parts that are propagated one by one."""
        return [self.adjoints[node]] if node in self.adjoints else []

    def pulled(self, node: Node, place: int, grad: Node) -> Node | None:
        """Return what a node's gradient adds to its operand's."""
        return self.graph.pulled(node, place, grad)


def jvp(
    outputs: Sequence[Node],
    tangents: Mapping[str, Node],
    ranges: Ranges | None = None,
    results: Mapping[Node, Node] | None = None,
) -> list[Node | None]:
    """Return the tangent of each expression; None if it is zero.

    Args:
        outputs: expressions.
        tangents: the tensors' tangents, by name: reads of other tensors of the same dimensions.
        ranges: of the indices, where they are not the dimensions of their name.
        results: nodes whose values need not be computed, each with the read of its value.
    """
    graph = OpenedGraph(ranges or Ranges(), results)
    active = graph.active(outputs, set(tangents))
    pushed: dict[Node, Node | None] = {}
    for node in in_order(outputs, graph.operands):
        if node not in active:
            continue
        if node.op == READ:
            tangent = tangents[node.name]
            pushed[node] = read(tangent.name, node.places) if tangent.op == READ else tangent
            continue
        total: Node | None = None
        for place, arg in enumerate(graph.operands(node)):
            tangent = pushed.get(arg)
            part = None if tangent is None else graph.pushed(node, place, tangent)
            if part is not None:
                total = part if total is None else plus(total, part)
        pushed[node] = total
    return [pushed.get(node) for node in outputs]


class OpenedGraph:
    """The graph as it is differentiated: a reduction is open, and its body is the one operand.

    A derivative in terms of a node's value takes the read in `results`, where there is one. A read
    of what is kept has what it is the value of as its operand.
    """

    def __init__(
        self,
        ranges: Ranges,
        results: Mapping[Node, Node] | None = None,
        kept: Mapping[Node, Node] | None = None,
    ) -> None:
        self.ranges = ranges
        self.results = results or {}
        self.kept = kept or {}
        self.opened: dict[Node, tuple[str, Node]] = {}
        self.defined: dict[Node, Node | None] = {}

    def operands(self, node: Node) -> tuple[Node, ...]:
        """Return the operands that a node may have a derivative by."""
        if node.op in (SUM, MAX):
            return (self.open(node)[1],)
        if node.op == READ and self.kept:
            if node not in self.defined:
                self.defined[node] = written_out(node, self.kept, self.ranges)
            defined = self.defined[node]
            return (defined,) if defined else ()
        return node.args if node.op in TABLE else ()

    def open(self, node: Node) -> tuple[str, Node]:
        """Return a reduction's index and body."""
        if node not in self.opened:
            index = self.dimension(node) if self.kept else None
            self.opened[node] = (
                (index, rename_index(node.args[0], node.bound, index))
                if index
                else self.ranges.opened(node, alone=False)
            )
        return self.opened[node]

    def dimension(self, node: Node) -> str | None:
        """Return the dimension that a reduction runs over; None if it is another range, or taken.

        So what is reduced over rows here and over columns there is one node, with one gradient.
        """
        [(term, _), *more] = node.size.terms or (("", 0),)
        index = "" if more or not isinstance(term, str) else term.strip("|")
        is_whole = index and self.ranges.size(index) == node.size
        return index if is_whole and index not in node.free else None

    def pulled(self, node: Node, place: int, grad: Node) -> Node | None:
        """Return a node's derivative by operand `place`, times `grad`; None if that is zero."""
        if node.op in (SUM, READ):
            return grad
        return pull_back(node, place, grad, self.results.get(node))

    def pushed(self, node: Node, place: int, tangent: Node) -> Node | None:
        """Return what a node's operand `place` adds to its tangent; None if that is zero."""
        if node.op == SUM:
            return reduce.sum_over(self.open(node)[0], tangent, self.ranges)
        if node.op == MAX:
            largest = place_of(reduce.argmax_of(node))
            return reduce.substitute(tangent, {self.open(node)[0]: largest}, self.ranges)
        return pull_back(node, place, tangent, self.results.get(node))

    def active(self, roots: Sequence[Node], wrt: set[str]) -> set[Node]:
        """Return the nodes on a path from an output to a real tensor of `wrt`."""
        active: set[Node] = set()
        for node in in_order(roots, self.operands):
            if node.op == READ and node.name in wrt and node.type == "real":
                active.add(node)
                continue
            rules = TABLE[node.op].vjp if node.op in TABLE else ("grad",)
            operands = self.operands(node)
            if any(rule and arg in active for rule, arg in zip(rules, operands, strict=False)):
                active.add(node)
        return active


def written_out(node: Node, written: Mapping[Node, Node], ranges: Ranges) -> Node | None:
    """Return the expression of what a node reads; None if that is not known.

    Args:
        node: an expression.
        written: reads at the indices of their own, each with what it is the value of.
        ranges: of the indices.
    """
    if node.op != READ:
        return None
    if node in written:
        return written[node]
    for own, value in written.items():
        if own.name == node.name:
            indices = (place.index or "" for place in own.places)
            return reduce.substitute(value, dict(zip(indices, node.places, strict=True)), ranges)
    return None


def pull_back(node: Node, place: int, grad: Node, result: Node | None = None) -> Node | None:
    """Return a node's derivative by operand `place`, times `grad`; None if that is zero.

    `result` is the node's value, if it need not be computed.

    A selection goes around the product: `where(c, grad*y, 0)` and not `where(c, grad, 0)*y`, which
    is NaN where c does not hold and y overflows.
    """
    if grad.op == "where":
        condition, x, y = grad.args
        if is_number(x, 0) or is_number(y, 0):
            part = pull_back(node, place, x if is_number(y, 0) else y, result)
            zero = number(0.0)
            return part and (
                where(condition, part, zero) if is_number(y, 0) else where(condition, zero, part)
            )
    function = TABLE[node.op]
    rule = function.vjp[place]
    if rule is None:
        return None
    if node.op == "powi":
        assert isinstance(node.data, int)
        # x**(n - 1), whose exponent is known only here
        return times(grad, times(number(float(node.data)), build.powi(node.args[0], node.data - 1)))
    if node.op == "mul":
        return times(grad, node.args[1 - place])
    operands = dict(zip(function.parameters, node.args, strict=True))
    return build.evaluate(rule, {"grad": grad, "result": result or node, **operands})


def where(condition: Node, x: Node, y: Node) -> Node:
    """Return a selection."""
    return build.apply("where", condition, x, y)


def plus(x: Node, y: Node) -> Node:
    """Return the sum of two parts of a gradient; two selections by one condition become one."""
    if is_number(x, 0):
        return y
    if is_number(y, 0):
        return x
    if x.op == y.op == "where" and x.args[0] is y.args[0]:
        return where(x.args[0], plus(x.args[1], y.args[1]), plus(x.args[2], y.args[2]))
    return times(number(2.0), x) if x is y else build.apply("add", x, y)


def times(x: Node, y: Node) -> Node:
    """Return a product with its number in front: 15*(grad*x) and not (grad*5)*(3*x)."""
    (a, u), (b, v) = _parts(x), _parts(y)
    rest = v if u is None else u if v is None else build.apply("mul", u, v)
    if rest is None or a * b == 1:
        return rest or number(a * b)
    if a * b == -1:
        return build.apply("neg", rest)
    return build.apply("mul", number(a * b), rest)


def _parts(node: Node) -> tuple[float, Node | None]:
    """Return the number in front of a product, and the rest."""
    if node.op == NUMBER:
        return float(node.number), None
    if node.op == "neg":
        factor, rest = _parts(node.args[0])
        return -factor, rest
    if node.op == "mul" and node.args[0].op == NUMBER and node.type == "real":
        return float(node.args[0].number), node.args[1]
    return 1.0, node
