"""Nodes -> text in the language itself, which parses to the very same nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from pullback.define.math.functions import TABLE
from pullback.define.math.index import BATCH, Affine, Remainder, is_size, split_remainders
from pullback.define.math.node import (
    EQUAL,
    INSIDE,
    NUMBER,
    PLACED,
    READ,
    REDUCTIONS,
    SUM,
    Node,
    in_order,
    names_read,
)

# How tightly each operator binds, as in Python.
BINDING = {
    **{"logical_or": 1, "logical_and": 2, "logical_not": 3},
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), 4),
    **dict.fromkeys(("add", "sub"), 5),
    **dict.fromkeys(("mul", "div", "remainder", "floor_divide"), 6),
    **{"neg": 7, "pow": 8, "powi": 8, INSIDE: 4, EQUAL: 4},
}
SIGNS = {
    **{"neg": "-", "logical_not": "not "},
    **{"logical_or": " or ", "logical_and": " and ", "add": " + ", "sub": " - ", "mul": "*"},
    **{"div": "/", "remainder": " % ", "floor_divide": "//", "pow": "**"},
    **{"lt": " < ", "le": " <= ", "gt": " > ", "ge": " >= ", "eq": " == ", "ne": " != "},
}
# Internal functions, written with those that users have.
CALLS = {"real": "float({})", "whole": "int({})", "tanh_softplus": "tanh(softplus({}))"}
ATOM = 9
EXACT = 10**15  # up to here a whole real number is written without a point


def format_node(node: Node, names: Mapping[Node, str] | None = None) -> str:
    """Return one expression; nodes in `names` are written by their name."""
    return Printer([node], names or {}).inner(node)


def format_inside(node: Node) -> str:
    """Return one expression with its indices; those that are bound around it get usual names."""
    printer = Printer([node], {}, indexed=True)
    usual = index_names(Affine(0))
    for index in sorted(node.free):
        if index.startswith("#"):
            printer.bound[index] = next(name for name in usual if name not in printer.taken)
    return printer.inner(node)


def format_statements(
    outputs: Sequence[tuple[str, Node, Sequence[str]]], taken: Iterable[str] = ()
) -> str:
    """Return assignments, `t = ...; y = ...`, with a name for what is used more than once.

    Args:
        outputs: their names and nodes, and the indices that they are summed over.
        taken: names that stand for something else.
    """
    roots = [node for _, node, _ in outputs]
    uses = Counter(arg for node in in_order(roots) for arg in node.args)
    uses.update(roots)
    taken = {*taken, *(name for name, _, _ in outputs)}
    used = {*taken, *(index for node in in_order(roots) for index in node.free)}
    names: dict[Node, str] = {}
    rows: list[tuple[str, str]] = []
    printer = Printer(roots, names, used)
    for node in in_order(roots):
        if uses[node] > 1 and is_worth_a_name(node):
            name = _fresh_name(used)
            rows.append((name, printer.inner(node)))
            names[node] = name
    for name, node, summed in outputs:
        value = printer.outer(node)
        rows.append((name, f"sum[{', '.join(summed)}]({value})" if summed else value))
    return rows[0][1] if len(rows) == 1 else "; ".join(f"{name} = {text}" for name, text in rows)


def is_worth_a_name(node: Node) -> bool:
    """Return whether a node is more than a leaf; a bound index stays where it is bound."""
    bound = any(index.startswith("#") for index in node.free)
    return bool(node.args) and node.op not in ("neg", "real", *PLACED) and not bound


def is_indexed(roots: Iterable[Node]) -> bool:
    """Return whether expressions need index notation: else a tensor's name stands for its element.

    A tensor that is read with other single indices than its own, and nowhere else, cannot be told
    from one that is not.
    """
    places: dict[str, tuple[Affine, ...]] = {}
    for node in in_order(roots):
        if node.op == READ:
            if places.setdefault(node.name, node.places) != node.places:
                return True
            if any(place.index is None for place in node.places):
                return True
        elif node.op in REDUCTIONS or node.op in PLACED:
            return True
    return False


def _fresh_name(used: set[str]) -> str:
    number = 1
    while f"t{number}" in used:
        number += 1
    used.add(f"t{number}")
    return f"t{number}"


class Printer:
    """Prints expressions; `bound` has the names of indices that are printed under another name."""

    def __init__(
        self,
        roots: Sequence[Node],
        names: Mapping[Node, str],
        used: Collection[str] = (),
        *,
        indexed: bool = False,
    ) -> None:
        self.names = names
        self.used = used  # grows while names are given
        self.indexed = indexed or is_indexed(roots)
        self.bound: dict[str, str] = {}
        free = (index for root in roots for index in root.free)
        self.taken = {*names_read(roots), *free}

    def reference(self, node: Node) -> str | None:
        """Return what stands for a node that has a name."""
        return self.names.get(node)

    def outer(self, node: Node) -> str:
        """Print a node, by its name if it has one."""
        return self.reference(node) or self.inner(node)

    def inner(self, node: Node) -> str:
        """Print a node's operation, even if the node has a name."""
        return self.body(node)[0]

    def at_least(self, node: Node, binding: int, *, bare: bool = False) -> str:
        """Print an operand, in parentheses if it binds less tightly."""
        if (name := self.reference(node)) is not None:
            return name
        written, own = self.body(node, bare=bare)
        return f"({written})" if own < binding else written

    def body(self, node: Node, *, bare: bool = False) -> tuple[str, int]:
        """Return a node's text and how tightly it binds."""
        if node.op == "real" and bare:
            [whole] = node.args
            name = self.reference(whole)
            return self.body(whole) if name is None else (name, ATOM)
        if node.op in BINDING:
            return self.operation(node), BINDING[node.op]
        return self.leaf(node, bare=bare) or (self.call(node), ATOM)

    def leaf(self, node: Node, *, bare: bool) -> tuple[str, int] | None:
        """Return a leaf's text and how tightly it binds; None for an operation or a call."""
        match node.op:
            case "number":
                written = format_number(node, bare=bare)
                return written, BINDING["neg"] if written.startswith("-") else ATOM
            case "scalar":
                return node.name, ATOM
            case "read":
                return self.read(node), ATOM
            case "index":
                return self.place(node.places[0])
            case _:
                return None

    def call(self, node: Node) -> str:
        """Print a function of its arguments."""
        if node.op in REDUCTIONS:
            return self.reduction(node)
        args = [self.at_least(arg, 0, bare=is_bare(node, arg)) for arg in node.args]
        return CALLS.get(node.op, f"{node.op}({{}})").format(", ".join(args))

    def operation(self, node: Node) -> str:
        """Print an operator between its operands."""
        if node.op in (INSIDE, EQUAL):
            return self.condition(node)
        binding = BINDING[node.op]
        args = node.args
        if node.op == "powi":
            return f"{self.at_least(args[0], ATOM)}**{node.data}"
        if node.op in ("neg", "logical_not"):
            return f"{SIGNS[node.op]}{self.at_least(args[0], binding)}"
        bare = [is_bare(node, arg) for arg in args]
        # A power groups from the right, comparisons not at all, everything else from the left.
        left = binding + (binding in (4, 8))
        first = self.at_least(args[0], left, bare=bare[0])
        second = self.at_least(args[1], binding + (binding != 8), bare=bare[1])
        return f"{first}{SIGNS[node.op]}{second}"

    def read(self, node: Node) -> str:
        """Print a read."""
        places = [self.place(place)[0] for place in node.places]
        return f"{node.name}[{', '.join(places)}]" if self.indexed and places else node.name

    def reduction(self, node: Node) -> str:
        """Print `sum[i, j](...)`; sums of sums are one."""
        inner, outer = node.args[0], dict(self.bound)
        indices = [self.bind(node)]
        while node.op == inner.op == SUM and self.reference(inner) is None:
            indices.append(self.bind(inner))
            inner = inner.args[0]
        written = f"{node.op}[{', '.join(indices)}]({self.outer(inner)})"
        self.bound = outer
        return written

    def bind(self, link: Node) -> str:
        """Name the index of a reduction, and return how it is bound."""
        used = {*self.taken, *self.used, *self.bound.values()}
        name = next(name for name in index_names(link.size) if name not in used)
        self.bound[link.bound] = name
        return name

    def condition(self, node: Node) -> str:
        """Print `0 <= e < size`, or `e == 0` with nothing negative in it."""
        place = node.places[0]
        if node.op == INSIDE:
            return f"0 <= {self.place(place)[0]} < {self.place(node.size)[0]}"
        rest, remainders = split_remainders(place, whole=True)
        terms = tuple((term, factor) for term, factor in rest.terms if factor > 0)
        left = Affine(max(rest.constant, 0), terms)
        for own in remainders:
            left += own.once * max(own.many, 0)
        return f"{self.place(left)[0]} == {self.place(left - place)[0]}"

    def place(self, place: Affine) -> tuple[str, int]:
        """Return an affine index and how tightly it binds; what is added comes first."""
        place, remainders = split_remainders(place, whole=True)
        factors = [*(factor for _, factor in place.terms), *(own.many for own in remainders)]
        # A sign before a quotient would be one of its dividend.
        signed = all(factor < 0 for factor in factors)
        parts = [(self.remainder(own, tight=signed), own.many) for own in remainders]
        parts += [(self.term(term, factor, tight=signed), factor) for term, factor in place.terms]
        parts.sort(key=lambda part: (part[1] < 0, "(" in part[0], part[0]))
        shown = [
            (name if abs(factor) == 1 else f"{abs(factor)}*{name}", factor < 0)
            for name, factor in parts
        ]
        if place.constant or not shown:
            shown.append((str(abs(place.constant)), place.constant < 0))
        (first, negative), *rest = shown
        is_product = any(sign in first for sign in ("*", "//", "%"))
        written = f"-{first}" if negative else first
        written += "".join(f" - {name}" if minus else f" + {name}" for name, minus in rest)
        tight = BINDING["neg"] if negative else BINDING["mul"] if is_product else ATOM
        return written, BINDING["add"] if rest else tight

    def remainder(self, own: Remainder, *, tight: bool) -> str:
        """Return what a division leaves, `(i + 1) % 2`, which is multiplied by a number."""
        written, binding = self.place(own.dividend)
        written = f"({written})" if binding < BINDING["mul"] else written
        is_bare = abs(own.many) == 1 and not tight
        return f"{written} % {own.divisor}" if is_bare else f"({written} % {own.divisor})"

    def term(self, term: str | Node, factor: int, *, tight: bool) -> str:
        """Return an index, a size or a gather's index, which is multiplied by a number."""
        if isinstance(term, Node):
            return self.at_least(term, BINDING["mul"] + (tight or abs(factor) != 1))
        if is_size(term):
            return f"size({term.strip('|')})"
        return self.bound.get(term, term)


def index_names(size: Affine) -> Iterator[str]:
    """Yield names for a bound index: its dimension's, else usual ones."""
    dims = [term.strip("|") for term, _ in size.terms if isinstance(term, str)]
    named = len(dims) == 1 and size.constant == 0 and dims != [BATCH]
    first = dims if named else ["i", "j", "k", "l"]
    yield from first
    for number in count(1):
        yield f"{first[0]}{number}"


def is_bare(node: Node, arg: Node) -> bool:
    """Return whether a real operand may be written as the whole number or condition it came from.

    It becomes real again by itself: in a function of real numbers, or beside a real operand.
    """
    function = TABLE.get(node.op)
    if arg.type != "real" or function is None:
        return False
    if function.kind == "real":
        return True
    others = [other for other in node.args if other is not arg]
    return any(other.type == "real" and other.op not in (NUMBER, "real") for other in others)


def format_number(node: Node, *, bare: bool) -> str:
    """Return a number as it is written."""
    value = node.number
    if node.type == "real" and bare and abs(value) < EXACT and value == int(value):
        return "-0.0" if str(value) == "-0.0" else str(int(value))
    return repr(node.data)
