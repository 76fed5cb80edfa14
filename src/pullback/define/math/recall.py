"""What a derivative reads back from the outputs instead of computing it again.

Where an output is `a/b`, each product with `a` over and `b` under has that output as a factor: the
gradient of a softmax, `grad*e/z - sum(grad*e)*e/z/z`, is `grad*y - sum(grad*y)*y`.

So it is with what a step of a recurrence passes back, `p = l*exp(a)`: the gradient for a is `p*h`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.define.math import extents
from pullback.define.math.build import rebuild
from pullback.define.math.cost import cost
from pullback.define.math.draft import is_real
from pullback.define.math.formula import Formula, element
from pullback.define.math.functions import TABLE
from pullback.define.math.index import BATCH, Affine, at, never_negative
from pullback.define.math.maxima import find_shift
from pullback.define.math.node import ARGMAX, SUM, Node, close, in_order, read, remake, rename_index
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import State, reads_of
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import Term, is_whole, select, split_guard, term_of

# The sizes at which costs are compared; LESS for one that makes others smaller, as a filter's does.
USUAL, LESS = 64, 4
# A byte of memory takes as long as this many operations.
BYTE = 2
# Factors of a state are read from it if they cost as many multiplications, an exponential.
COSTLY = 8
# Products further down in sums and differences are left as they are.
DEEPEST = 64


def results_of(indexed: Formula) -> dict[Node, Node]:
    """Return the outputs that a derivative may read, each with the read that stands for it."""
    if indexed.line.returns_gradients:
        return {}  # a call may not have computed them
    pairs = zip(indexed.nodes, indexed.line.outputs, strict=True)
    return {
        node: element(output, indexed.line.qualname)
        for node, output in pairs
        if ((is_real(output) and node.args) or node.op == ARGMAX)
        and node.free == frozenset(output.labels)
    }


def recall_results(
    nodes: Sequence[Node], results: Mapping[Node, Node], ranges: Ranges
) -> tuple[Node, ...]:
    """Return expressions with reads in place of what is known by `results`."""
    if not results:
        return tuple(nodes)
    known = Known.of(results, ranges)
    return rewrite_nodes(nodes, known.factored, ranges, known.read)


@dataclass(frozen=True)
class Known:
    """Results, which are recognised whatever names their indices have.

    Attributes:
        ranges: of all indices.
        program: tells what is equal but for the names.
        wholes: for each result's number, the names of its indices and the read.
        quotients: for the numbers of a dividend and its divisor, the names of the indices of both,
            and the read.
        places: those of maxima, each with its read.
    """

    ranges: Ranges
    program: FormulaFacts
    wholes: dict[int, tuple[tuple[str, ...], Node]]
    quotients: dict[tuple[int, int], tuple[tuple[str, ...], tuple[str, ...], Node]]
    places: dict[Node, Node]

    @staticmethod
    def of(results: Mapping[Node, Node], ranges: Ranges) -> Known:
        """Return the table of some results."""
        places = {node: result for node, result in results.items() if node.op == ARGMAX}
        known = Known(ranges, FormulaFacts({}, ()), {}, {}, places)
        for node, result in results.items():
            number, names = known.program.identity(node)
            known.wholes[number] = (names, result)
            if node.op == "div":
                (over, names), (under, others) = map(known.program.identity, node.args)
                if set(others) <= set(names):
                    known.quotients[over, under] = (names, others, result)
        return known

    def read(self, node: Node) -> Node | None:
        """Return the read that a node can be replaced by; None if the node is not a result."""
        number, names = self.program.identity(node)
        if number not in self.wholes:
            return self._elsewhere(node) if node.op == ARGMAX else None
        own, read = self.wholes[number]
        return self._renamed(read, dict(zip(own, names, strict=True)))

    def _elsewhere(self, node: Node) -> Node | None:
        """Return the read of a place that is known, at other indices than its own."""
        for place, result in self.places.items():
            if moved := find_shift(place, node, self.ranges):
                return remake(result, (), lambda own, moved=moved: own.replaced(moved))
        return None

    def factored(self, node: Node) -> Node:
        """Return a product with a read in place of a quotient in it."""
        if node.op not in ("mul", "div") or node.type != "real":
            return node
        term = term_of(node)
        for k, over in enumerate(term.over):
            for j, under in enumerate(term.under):
                read = self._quotient(over, under)
                if read is not None:
                    return replace(
                        term,
                        over=(*term.over[:k], read, *term.over[k + 1 :]),
                        under=(*term.under[:j], *term.under[j + 1 :]),
                    ).node
        return node

    def _quotient(self, over: Node, under: Node) -> Node | None:
        (number, names), (other, others) = map(self.program.identity, (over, under))
        if (number, other) not in self.quotients:
            return None
        own, own_others, read = self.quotients[number, other]
        new = dict(zip(own, names, strict=True))
        same = others == tuple(new[name] for name in own_others)
        return self._renamed(read, new) if same else None

    def _renamed(self, read: Node, names: Mapping[str, str]) -> Node | None:
        """Return a read at other indices; None if one may run beyond what the output has."""
        size = self.ranges.size
        if not all(never_negative(size(old) - size(new)) for old, new in names.items()):
            return None
        others: dict[str | Node, Affine] = {old: at(new) for old, new in names.items()}
        return remake(read, (), lambda place: place.replaced(others))


def usual_cost(indexed: Formula, sizes: Mapping[str, int]) -> int:
    """Return roughly what a derivative costs, in operations."""
    found = cost(indexed, sizes)
    return found.flops + BYTE * found.read


def usual_sizes(indexed: Formula) -> dict[str, int]:
    """Return usual sizes for all names of a line."""
    names = (*indexed.line.dimensions, *indexed.counts, BATCH)
    sizes = {name: USUAL for name in names if name not in indexed.sizes}
    for size in indexed.sizes.values():
        less = {str(term).strip("|") for term, factor in size.terms if factor < 0}
        sizes |= {name: LESS for name in less & sizes.keys()}
    for index, size in indexed.sizes.items():
        value = extents.evaluate_size(size, sizes)
        sizes[index] = USUAL if value is None else int(value)
    return sizes


@dataclass(frozen=True)
class StateProduct:
    """A state that is a product: `where(conditions, over/under, 0)`.

    Attributes:
        state: which one it is.
        term: the product.
        found: expressions with a read of it, by what they were and the conditions around them.
    """

    state: State
    term: Term
    found: dict[tuple[Node, frozenset[Node]], Node] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State, states: Collection[str]) -> StateProduct | None:
        """Return a state as a product; None if it is none, or a cheap one.

        It reads no other state: others may then read it at the same step.
        """
        term, others = term_of(state.node), {*states} - {state.name}
        is_one = term.factor == 1 and is_whole(state.node, term) and len(term.over) > 1
        parts = in_order([*term.over, *term.under])
        work = sum(TABLE[part.op].work for part in parts if part.op in TABLE)
        if not is_one or work < COSTLY or any(True for _ in reads_of([state.node], others)):
            return None
        return cls(state, term)

    def recall(self, node: Node, around: frozenset[Node] = frozenset(), depth: int = 0) -> Node:
        """Return an expression with a read of the state in place of its factors.

        Args:
            node: the expression.
            around: conditions under which alone it counts.
            depth: how far down it is.
        """
        key = (node, around)
        if key not in self.found:
            self.found[key] = self._recalled(node, around, depth) if depth < DEEPEST else node
        return self.found[key]

    def _recalled(self, node: Node, around: frozenset[Node], depth: int) -> Node:
        conditions, value = split_guard(node)
        if conditions:
            new = self.recall(value, around | {*conditions}, depth + 1)
            return node if new is value else select(conditions, new)
        if node.op in ("add", "sub", "neg"):
            new = tuple(self.recall(part, around, depth + 1) for part in node.args)
            return node if new == node.args else rebuild(node, new)
        if node.op == SUM:
            return self._in_sum(node, around, depth)
        return self._in_product(node, around) if node.op in ("mul", "div") else node

    def _in_sum(self, node: Node, around: frozenset[Node], depth: int) -> Node:
        """Return a sum over an index of the state, of products that it is a factor of."""
        (body,) = node.args
        for index, extent in zip(self.state.indices, self.state.extents, strict=True):
            if extent == node.size and index not in body.free:
                named = rename_index(body, node.bound, index)
                new = self.recall(named, around, depth + 1)
                if new is not named:
                    return close(SUM, index, node.size, new)
        return node

    def _in_product(self, node: Node, around: frozenset[Node]) -> Node:
        term, own = term_of(node), self.term
        over, under = Counter(term.over), Counter(term.under)
        is_there = around | {*term.conditions} >= {*own.conditions}
        is_there = is_there and node.free >= {*self.state.indices}
        if not is_there or not (over >= Counter(own.over) and under >= Counter(own.under)):
            return node
        left = list((over - Counter(own.over)).elements())
        below = list((under - Counter(own.under)).elements())
        passed = read(self.state.name, map(at, self.state.indices))
        return replace(term, over=(passed, *left), under=tuple(below)).node
