"""A formula -> its statements, which parse to the very same nodes.

What is used more than once gets a name: `t1[n, m] = exp(x[n] - y[m]); ...`. Every index that is not
a dimension is written with its limit; `notation.format_formula` removes those that follow from the
reads.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from pullback.define.math import build, show
from pullback.define.math.formula import Formula, strip_conversion
from pullback.define.math.functions import CONSTANTS
from pullback.define.math.index import BATCH, Affine, size
from pullback.define.math.node import (
    EQUAL,
    INDEX,
    INSIDE,
    PLACED,
    READ,
    REDUCTIONS,
    Node,
    in_order,
    is_number,
    names_read,
)
from pullback.define.math.node import index as index_number
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges

Form = tuple[int, tuple[Affine, ...]]

# How deep operations within operations are written, of which each takes several calls.
DEEPEST = 100


def write_elements(formula: Formula) -> str:
    """Return a pointwise formula as it is written after `=`: each tensor by its name alone."""
    taken = [value.name for value in (*formula.line.parameters, *formula.line.outputs)]
    outputs = zip(formula.line.outputs, formula.elements, formula.sums, strict=True)
    return show.format_statements(
        [(o.name, strip_conversion(node), summed) for o, node, summed in outputs], taken
    )


def write_rows(indexed: Formula) -> list[str]:
    """Return the statements of a formula, with the limit of every index that is not a dimension."""
    return list(_StatementWriter(indexed).rows())


def join_rows(indexed: Formula, rows: Sequence[str]) -> str:
    """Return statements as one text; a value alone needs no `y[n] =`."""
    output = indexed.line.outputs[0]
    own = output.labels
    head = f"{_format_read(output.name, own)} = "
    if len(rows) == 1 and rows[0].startswith(head) and all(map(_is_plain, own)):
        return rows[0].removeprefix(head)
    return "; ".join(rows)


def name_counts(indexed: Formula, text: str) -> str:
    """Return a text in which scalars that count an index are named, as in `k < n`: no `size(n)`."""
    for name in indexed.counts:
        text = text.replace(f"size({name})", name)
    return text


class _StatementWriter(show.Printer):
    """Prints the statements of one operator."""

    def __init__(self, indexed: Formula) -> None:
        states = [state for group in indexed.groups for state in group.states[::-1]]
        given = {state.name for state in states}
        pairs = zip(indexed.line.outputs, indexed.nodes, strict=True)
        # In the order in which they are written. An output that is a state is written once.
        self.written = [
            *((s.name, s.indices, strip_conversion(s.node)) for s in states),
            *((o.name, o.labels, strip_conversion(n)) for o, n in pairs if o.name not in given),
        ]
        roots = [node for _, _, node in self.written]
        super().__init__(roots, {}, indexed=True)
        self.indexed_ = indexed
        self.roots = roots
        self.ranges = Ranges(indexed.sizes)
        line = indexed.line
        values = [value.name for value in (*line.parameters, *line.outputs)]
        tensors = (*line.tensors, *line.outputs)
        labels = [*(t.labels for t in tensors), *(state.indices for state in states)]
        self.dims = list(dict.fromkeys(label for own in labels for label in own))
        self.used = {*values, *self.dims, *names_read(roots), *given}
        self.taken = {*values, *given}
        self.labels = {tensor.name: tensor.labels for tensor in line.tensors}
        self.labels |= {state.name: state.indices for state in states}
        self.facts = FormulaFacts({}, ())
        self.sizes, self.unclear = _bound_sizes(roots)
        self.first: dict[Form, Node] = {}
        self.named: dict[Form, str] = {}
        self._name()

    # --- names

    def form(self, node: Node) -> Form:
        """Return what nodes share that are equal but for the names of indices of equal ranges.

        One that stands in two sums, over different ranges, shares it with none.
        """
        if node in self.unclear:
            return -node.serial, ()
        number, indices = self.facts.identity(node)
        return number, tuple(self.extent(node, index) for index in indices)

    def extent(self, node: Node, index: str) -> Affine:
        """Return how far an index of a node runs."""
        return self.sizes[node].get(index) or self.ranges.size(index)

    def same(self, node: Node) -> Node:
        """Return the first node of the same form."""
        return self.first.setdefault(self.form(node), node)

    def operands(self, node: Node) -> tuple[Node, ...]:
        """Return a node's operands, each as the first node of its form."""
        shown = node.args[1:] if self.is_padded(node) else node.args
        return tuple(self.same(arg) for arg in shown)

    def _name(self) -> None:
        """Give a name to what would be printed more than once, and to what is too deep to print."""
        roots = [self.same(root) for root in self.roots]
        self.order = list(in_order(roots, self.operands))
        deep = dict[Node, int]()
        for node in self.order:
            deep[node] = 1 + max((deep[arg] for arg in self.operands(node)), default=0)
            if deep[node] > DEEPEST and node not in self.unclear and _is_worth_a_name(node):
                self.named[self.form(node)] = ""
                deep[node] = 0
        times = Counter(roots)
        for node in reversed(self.order):
            form = self.form(node)
            if times[node] > 1 and node not in self.unclear and _is_worth_a_name(node):
                self.named[form] = ""
            for arg in self.operands(node):
                times[arg] += 1 if form in self.named else times[node]
        for node in self.order:
            if self.form(node) in self.named:
                name = next(t for t in (f"t{n}" for n in count(1)) if t not in self.used)
                self.used = {*self.used, name}
                self.named[self.form(node)] = name

    def reference(self, node: Node) -> str | None:
        """Return a name at its indices, `t1[n, m]`."""
        name = self.named.get(self.form(node)) if node.args else None
        if name is None:
            return None
        first = self.facts.identity(self.same(node))[1]
        places = [first.index(index) for index in self.displayed(self.same(node))]
        own = self.facts.identity(node)[1]
        return _format_read(name, [self.bound.get(own[place], own[place]) for place in places])

    def displayed(self, node: Node) -> list[str]:
        """Return a node's indices in the order of the line, the bound ones where their range is."""
        ranges = [self.ranges.size(dim) for dim in self.dims]

        def order(index: str) -> tuple[float, str]:
            if not index.startswith("#"):
                return -1 if index == BATCH else self.dims.index(index), index
            extent = self.extent(node, index)
            place = ranges.index(extent) if extent in ranges else len(ranges)
            return place + 0.5, index

        return sorted(self.facts.identity(node)[1], key=order)

    # --- values

    def call(self, node: Node) -> str:
        """Print a function of its arguments, or `pad(x[i - 1])`."""
        if not self.is_padded(node):
            return super().call(node)
        _, value, other = node.args
        zero = is_number(other, 0) and other.type != "bool"
        return f"pad({self.read(value)}{'' if zero else f', {self.outer(other)}'})"

    def is_padded(self, node: Node) -> bool:
        """Return whether a selection is what `pad` makes of a read."""
        if node.op != "where" or node.args[1].op != READ:
            return False
        value = node.args[1]
        ranges = Ranges({**self.ranges.sizes, **self.sizes[value]})
        extents = map(self.ranges.size, self.labels[value.name])
        guards = [ranges.inside(*pair) for pair in zip(value.places, extents, strict=True)]
        left = [guard for guard in guards if not is_number(guard, 1)]
        if not left:
            return False
        both = functools.reduce(lambda x, y: build.apply("logical_and", x, y), left)
        return both is node.args[0]

    # --- statements

    def rows(self) -> Iterator[str]:
        """Yield the statements."""
        for node in self.order:
            name = self.named.get(self.form(node))
            if name:
                yield self.row(name, node, self.displayed(node))
        for name, labels, node in self.written:
            yield self.row(name, node, list(labels), is_output=True)

    def row(self, name: str, node: Node, indices: list[str], *, is_output: bool = False) -> str:
        """Return one statement."""
        self.bound = {}
        shown: list[str] = []
        known = self.indexed_.line.dimensions
        for index in indices:
            extent = self.ranges.size(index) if is_output else self.extent(node, index)
            # An index that can be written keeps its name, unless it could be taken for a number.
            if _is_plain(index) and not self.is_number_too(index, node):
                self.bound[index] = index
                new = index != BATCH and index not in known
            else:
                others = {each for each in indices if each != index}
                self.bound[index] = self.fresh(extent, index, node, others)
                new = not is_output and self.bound[index] not in (*known, BATCH)
            limit = show.format_node(index_number(extent))
            shown.append(f"{self.bound[index]} < {limit}" if new else self.bound[index])
        value = self.inner(node) if not is_output else self.outer(node)
        return f"{_format_read(name, shown)} = {value}"

    def bind(self, link: Node) -> str:
        """Name the index of a reduction, with its limit unless it is a dimension."""
        name = self.fresh(link.size, link.bound, link.args[0], set())
        self.bound[link.bound] = name
        if name == BATCH or (name in self.dims and name in self.indexed_.line.dimensions):
            return name
        return f"{name} < {show.format_node(index_number(link.size))}"

    def fresh(self, extent: Affine, index: str, body: Node, others: set[str]) -> str:
        """Return a name for an index: a dimension's of its size, or a usual one."""
        used = {*self.used - {*self.dims}, *self.bound.values(), *others}
        if extent == size(BATCH) and BATCH not in used and BATCH not in body.free:
            return BATCH
        known = self.indexed_.line.dimensions
        named = [dim for dim in self.dims if dim in known and self.ranges.size(dim) == extent]
        usual = (f"{stem}" for stem in "ijkl" if stem not in self.dims)
        more = (f"{(named or ['i'])[0]}{n}" for n in count(1))
        numbered = (*usual, *()) if not named else ()
        for name in (*named, *numbered):
            taken = name in used or (name in self.dims and name not in named)
            if not taken and not (name in CONSTANTS and self.is_number_too(index, body)):
                return name
        return next(name for name in more if name not in used and name not in self.dims)

    def is_number_too(self, index: str, body: Node) -> bool:
        """Return whether an index is used as a number, where `e` means another one."""
        if index not in CONSTANTS and not index.startswith("#"):
            return False
        numbers = (part for part in in_order([body]) if part.op in (INDEX, INSIDE, EQUAL))
        return any(index in part.free for part in numbers)


def _bound_sizes(roots: Iterable[Node]) -> tuple[dict[Node, dict[str, Affine]], set[Node]]:
    """Return how far the bound indices in each node run, and the nodes where they differ."""
    found: dict[Node, dict[str, Affine]] = {}
    unclear: set[Node] = set()
    left: list[tuple[Node, dict[str, Affine]]] = [(root, {}) for root in roots]
    while left:
        node, around = left.pop()
        own = {index: extent for index, extent in around.items() if index in node.free}
        if found.get(node, own) != own and node not in unclear:
            unclear.add(node)  # and so may be what is in it
        elif node in found:
            continue
        found.setdefault(node, own)
        if node.op in REDUCTIONS:
            own = {**own, node.bound: node.size}
        left += [(arg, own) for arg in node.args]
    return found, unclear


def _is_worth_a_name(node: Node) -> bool:
    """Return whether a node is longer than its name would be."""
    if not node.args or node.op in ("neg", "real", "whole", *PLACED):
        return False
    inner = [arg for arg in node.args if arg.args and arg.op not in PLACED]
    return node.op in REDUCTIONS or bool(inner)


def _is_plain(label: str) -> bool:
    """Return whether an index can be written as it is called: not `n'` and not 3."""
    return label.isidentifier() or label == BATCH


def _format_read(name: str, indices: Iterable[str]) -> str:
    shown = ", ".join(indices)
    return f"{name}[{shown}]" if shown else name
