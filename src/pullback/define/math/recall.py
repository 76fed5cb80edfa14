"""What a derivative reads back from the outputs instead of computing it again.

Where an output is `a/b`, each product with `a` over and `b` under has that output as a factor: the
gradient of a softmax, `grad*e/z - sum(grad*e)*e/z/z`, is `grad*y - sum(grad*y)*y`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.math import extents
from pullback.define.math.cost import cost
from pullback.define.math.draft import is_real
from pullback.define.math.formula import Formula, element
from pullback.define.math.index import BATCH, Affine, at, never_negative
from pullback.define.math.node import ARGMAX, Node, remake
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.term import term_of

# The sizes at which costs are compared; LESS for one that makes others smaller, as a filter's does.
USUAL, LESS = 64, 4
# A byte of memory takes as long as this many operations.
BYTE = 2


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
    """

    ranges: Ranges
    program: FormulaFacts
    wholes: dict[int, tuple[tuple[str, ...], Node]]
    quotients: dict[tuple[int, int], tuple[tuple[str, ...], tuple[str, ...], Node]]

    @staticmethod
    def of(results: Mapping[Node, Node], ranges: Ranges) -> Known:
        """Return the table of some results."""
        known = Known(ranges, FormulaFacts({}, ()), {}, {})
        for node, read in results.items():
            number, names = known.program.identity(node)
            known.wholes[number] = (names, read)
            if node.op == "div":
                (over, names), (under, others) = map(known.program.identity, node.args)
                if set(others) <= set(names):
                    known.quotients[over, under] = (names, others, read)
        return known

    def read(self, node: Node) -> Node | None:
        """Return the read that a node can be replaced by; None if the node is not a result."""
        number, names = self.program.identity(node)
        if number not in self.wholes:
            return None
        own, read = self.wholes[number]
        return self._renamed(read, dict(zip(own, names, strict=True)))

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
