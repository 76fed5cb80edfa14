"""The expression graph: nodes are hash-consed, so that equal ones are the same object.

A shared subexpression is therefore computed once, and whether two derivatives share one is a
comparison of pointers. Source: A. Ershov, "On programming of arithmetic operations" (1958).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Literal
from weakref import WeakValueDictionary

from pullback.define.math.index import Affine, at, is_quotient, undivide_range

Type = Literal["bool", "int", "real"]
# The data of a node besides its operands: a number, a name and its indices, a bound index.
Data = int | float | bool | str | tuple[object, ...] | None

NUMBER, READ, SCALAR = "number", "read", "scalar"
# What index notation adds: an affine index as a number; the conditions 0 <= e < size and e == 0;
# and reductions over a bound index.
INDEX, INSIDE, EQUAL = "index", "inside", "equal"
SUM, MAX, ARGMAX = "sum", "max", "argmax"
PLACED = (READ, INDEX, INSIDE, EQUAL)
REDUCTIONS = (SUM, MAX, ARGMAX)
# Names of an index under which a node is remembered.
MOST_RENAMED = 16


class Node:
    """One expression.

    Attributes:
        op: "number", "read" (of a tensor), "scalar" (a parameter), the name of a function of the
            table, or one of those above.
        args: the operands; of a read, the int nodes in its indices.
        data: what is no operand: the number; `(name, *indices)` of a read; the scalar's name; the
            affine index of "index", "inside" and "equal"; `(bound index, size)` of a reduction.
        type: of its value.
        free: the indices it depends on; its "shape".
        height: how many reductions are nested in it.
        places: its affine indices: all those of a read, the one of an index or a condition. No
            other node has any.
        serial: the order in which nodes were made.
        renamed: itself with an index renamed: what is opened is often opened again.
    """

    __slots__ = (
        *("__weakref__", "args", "data", "free", "height", "op", "places", "renamed", "serial"),
        "type",
    )

    op: str
    args: tuple[Node, ...]
    data: Data
    type: Type
    free: frozenset[str]
    height: int
    places: tuple[Affine, ...]
    serial: int
    renamed: dict[tuple[str, str], Node]

    @property
    def name(self) -> str:
        """The name of the tensor or scalar that it reads."""
        if self.op == SCALAR:
            assert isinstance(self.data, str)
            return self.data
        assert self.op == READ
        assert isinstance(self.data, tuple)
        return str(self.data[0])

    @property
    def indices(self) -> tuple[Affine, ...]:
        """Where a read reads."""
        assert self.op == READ
        return self.places

    @property
    def bound(self) -> str:
        """The index that a reduction runs over."""
        assert self.op in REDUCTIONS
        assert isinstance(self.data, tuple)
        return str(self.data[0])

    @property
    def size(self) -> Affine:
        """How far the bound index of a reduction runs, or the index of "inside" may."""
        assert self.op in (*REDUCTIONS, INSIDE)
        assert isinstance(self.data, tuple)
        assert isinstance(self.data[1], Affine)
        return self.data[1]

    @property
    def number(self) -> float:
        """The value of a number."""
        assert self.op == NUMBER
        assert isinstance(self.data, int | float)
        return self.data

    def __repr__(self) -> str:
        """Return the operation with its data and operands; `show.format_node` writes formulas."""
        data = self.data if isinstance(self.data, tuple) else (self.data,)
        parts = (*data, *self.args) if self.op not in PLACED else data
        return f"{self.op}({', '.join(str(part) for part in parts if part is not None)})"


_made: WeakValueDictionary[tuple[object, ...], Node] = WeakValueDictionary()
_lock = threading.Lock()
_serial = 0


def make(op: str, args: tuple[Node, ...], data: Data, type: Type, free: frozenset[str]) -> Node:
    """Return the one node with this content; `free` adds to the operands' indices.

    A reduction has a canonical index (`close`), so that sums that differ in its name are one node.
    """
    # By repr: 1, 1.0 and True are three numbers, and so are 0.0 and -0.0.
    key = (op, args, repr(data) if isinstance(data, int | float) else data, type)
    global _serial  # noqa: PLW0603  (numbers the nodes of this process)
    with _lock:
        node = _made.get(key)
        if node is None:
            node = Node()
            node.op, node.args, node.data, node.type = op, args, data, type
            node.free = free.union(*(arg.free for arg in args))
            node.height = max((arg.height for arg in args), default=0)
            if op in REDUCTIONS:
                node.free -= {node.bound}
                node.height += 1
            if op in PLACED and isinstance(data, tuple):
                found = [each for each in data if isinstance(each, Affine)]
                node.places = tuple(found[:1] if op == INSIDE else found)
            node.serial = _serial = _serial + 1
            node.renamed = {}
            _made[key] = node
    return node


def number(value: float) -> Node:
    """Return a number: True and False are conditions, an int is whole, a float is real."""
    type: Type = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"
    return make(NUMBER, (), value, type, frozenset())


def read(name: str, indices: Iterable[Affine], type: Type = "real") -> Node:
    """Return the element of a tensor at some indices."""
    places = tuple(indices)
    return _make_placed(READ, (name, *places), places, type)


def scalar(name: str, type: Type) -> Node:
    """Return a scalar parameter."""
    return make(SCALAR, (), name, type, frozenset())


def index(place: Affine) -> Node:
    """Return an affine index, or a size, as a whole number.

    One of data alone, without indices or sizes, is a sum of products, as it is written.
    """
    if not place.terms:
        return number(place.constant)
    if len(place.nodes) == 1 and place == Affine(0, ((place.nodes[0], 1),)):
        return place.nodes[0]
    if not is_value(place):
        return _make_placed(INDEX, (place,), (place,), "int")
    total: Node | None = None
    for term, factor in place.terms:
        assert isinstance(term, Node)
        part = term if factor == 1 else _whole("mul", number(factor), term)
        total = part if total is None else _whole("add", total, part)
    assert total is not None
    if place.constant == 0:
        return total
    return _whole("add" if place.constant > 0 else "sub", total, number(abs(place.constant)))


def quotient(place: Affine, divisor: int) -> Affine:
    """Return an index or a size divided by a number, rounded down, in its canonical form."""
    whole, left = divmod(place, divisor)
    if not left.terms:
        return whole
    return whole + Affine(0, ((_whole("floor_divide", index(left), number(divisor)), 1),))


def _whole(op: str, x: Node, y: Node) -> Node:
    return make(op, (x, y), None, "int", frozenset())


def place_of(node: Node) -> Affine:  # noqa: PLR0911  (one for each kind of node)
    """Return a whole number as an index: the inverse of `index`."""
    assert node.type == "int"
    match node.op:
        case "number":
            return Affine(int(node.number))
        case "index":
            return node.places[0]
        case "add":
            return place_of(node.args[0]) + place_of(node.args[1])
        case "sub":
            return place_of(node.args[0]) - place_of(node.args[1])
        case "neg":
            return -place_of(node.args[0])
        case "mul" if any(arg.op == NUMBER for arg in node.args):
            x, y = node.args if node.args[0].op == NUMBER else node.args[::-1]
            return place_of(y) * int(x.number)
        case _:
            return Affine(0, ((node, 1),))


def inside(place: Affine, size: Affine) -> Node:
    """Return the condition 0 <= place < size; for data and a number, two comparisons of numbers."""
    if is_value(place) and is_value(size):
        value, zero = index(place), number(0)
        over, under = _compare("le", zero, value), _compare("lt", value, index(size))
        return make("logical_and", (over, under), None, "bool", frozenset())
    if place.nodes:
        place, size = undivide_range(place, size)
    return _make_placed(INSIDE, (place, size), (place,), "bool")


def equal(place: Affine) -> Node:
    """Return the condition that an index is 0; for data alone, a comparison of numbers.

    The negative of an index has the same node.
    """
    if not place.terms:
        return number(place.constant == 0)
    if is_value(place):
        more = Affine(max(place.constant, 0), tuple(t for t in place.terms if t[1] > 0))
        return _compare("eq", index(more), index(more - place))
    if place.nodes:
        whole, wide = undivide_range(place, Affine(1))
        if whole != place:
            return inside(whole, wide)
    if place.terms[0][1] < 0:
        place = -place
    return _make_placed(EQUAL, (place,), (place,), "bool")


def is_value(place: Affine) -> bool:
    """Return whether a place has neither an index nor a size in it, but only data and numbers."""
    return len(place.nodes) == len(place.terms) and not any(map(is_quotient, place.nodes))


def _compare(op: str, x: Node, y: Node) -> Node:
    return make(op, (x, y), None, "bool", frozenset())


def _make_placed(op: str, data: tuple[object, ...], places: Iterable[Affine], type: Type) -> Node:
    args = tuple(node for place in places for node in place.nodes)
    return make(op, args, data, type, frozenset[str]().union(*(place.free for place in places)))


def remake(node: Node, args: tuple[Node, ...], change: Callable[[Affine], Affine]) -> Node:
    """Return a node with other operands or other indices, without simplifying."""
    match node.op:
        case "read":
            return read(node.name, map(change, node.places), node.type)
        case "index":
            return index(change(node.places[0]))
        case "inside":
            return inside(change(node.places[0]), node.size)
        case "equal":
            return equal(change(node.places[0]))
        case _:
            return make(node.op, args, node.data, node.type, frozenset())


def rename_index(node: Node, old: str, new: str) -> Node:
    """Return a node with a free index renamed; the new name is not in it yet."""
    if old not in node.free:
        return node
    found = node.renamed.get((old, new))
    if found is None:
        if len(node.renamed) >= MOST_RENAMED:
            node.renamed.clear()
        found = node.renamed[old, new] = replace_term(node, old, at(new), old)
    return found


def replace_term(node: Node, term: str | Node, other: Affine, index: str) -> Node:
    """Return a node with another sum in place of a term of its places.

    Args:
        node: the node.
        term: what is replaced.
        other: by what; no index of it is bound in the node.
        index: one that the term has.
    """
    rebuilt: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {term: other}
    for part in in_order([node], lambda part: tuple(a for a in part.args if index in a.free)):
        if index in part.free:
            args = tuple(rebuilt.get(arg, arg) for arg in part.args)
            rebuilt[part] = remake(part, args, lambda place: place.replaced(others))
            if part.type == "int" and part is not term:
                others[part] = place_of(rebuilt[part])
    return rebuilt.get(node, node)


def rename_indices(node: Node, old: Iterable[str], new: Iterable[str]) -> Node:
    """Return a node with free indices renamed, one after the other."""
    for own, name in zip(old, new, strict=True):
        node = rename_index(node, own, name)
    return node


def close(op: str, index: str, size: Affine, body: Node) -> Node:
    """Return a reduction of `body` over an index.

    Its bound index is named by how many reductions are nested in it, so it differs from theirs; and
    no expression has such an index free, so substitution captures nothing.
    """
    assert not any(name.startswith("#") for name in body.free), "opened first"
    bound = f"#{body.height + 1}"
    type = "int" if op == ARGMAX else body.type
    return make(op, (rename_index(body, index, bound),), (bound, size), type, frozenset())


def is_number(node: Node, value: float | None = None) -> bool:
    """Return whether a node is a number, or that number; -0.0 is not 0."""
    if node.op != NUMBER:
        return False
    return value is None or (
        node.number == value and not (value == 0 and str(node.data).startswith("-"))
    )


def may_divide_by_zero(node: Node) -> bool:
    """Return whether a node divides whole numbers by something that may be 0."""
    if node.op not in ("floor_divide", "remainder", "fmod") or node.type != "int":
        return False
    return node.args[1].op != NUMBER or node.args[1].number == 0


def operands(node: Node) -> tuple[Node, ...]:
    """Return a node's operands."""
    return node.args


def in_order(
    roots: Iterable[Node], operands: Callable[[Node], tuple[Node, ...]] = operands
) -> Iterator[Node]:
    """Yield every node once, operands first."""
    seen: set[Node] = set()
    # A node is below its operands, with None above it: then all of them have been yielded.
    stack: list[Node | None] = [*roots]
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:
            node = stack.pop()
            assert node
        elif node in seen:
            continue
        elif args := operands(node):
            stack += (node, None)
            stack += args[::-1]
            continue
        seen.add(node)
        yield node


def names_read(roots: Iterable[Node]) -> list[str]:
    """Return the tensors and scalars that some expressions read, in order of appearance."""
    leaves = (node.name for node in in_order(roots) if node.op in (READ, SCALAR))
    return list(dict.fromkeys(leaves))
