"""Which expressions are equal but for the names of their indices: they are printed once.

In the gradients of `exp(x[n] - y[m])` the same stands once with m bound and once with n.
"""

from __future__ import annotations

from collections.abc import Iterable

from pullback.define.math.index import Affine, is_size
from pullback.define.math.node import INSIDE, PLACED, READ, REDUCTIONS, Node, in_order


class Alike:
    """The form of each node, a number, and its indices in the order in which the form has them."""

    def __init__(self, roots: Iterable[Node]) -> None:
        self.forms: dict[tuple[object, ...], int] = {}
        self.known: dict[Node, tuple[int, tuple[str, ...]]] = {}
        for node in in_order(roots):
            self.known[node] = self._of(node)

    def __getitem__(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """Return a node's form and indices."""
        return self.known[node]

    def _of(self, node: Node) -> tuple[int, tuple[str, ...]]:
        own = self._indices(node)
        numbers = {index: number for number, index in enumerate(own)}
        if node.op in REDUCTIONS:
            numbers[node.bound] = -1
        parts = tuple(self._part(arg, numbers) for arg in node.args)
        places = tuple(self._place(place, numbers) for place in _places(node))
        key = (node.op, node.type, _rest(node), parts, places)
        return self.forms.setdefault(key, len(self.forms)), own

    def _indices(self, node: Node) -> tuple[str, ...]:
        found = [index for arg in node.args for index in self.known[arg][1]]
        for place in _places(node):
            found += [term for term, _ in place.terms if isinstance(term, str)]
        return tuple(index for index in dict.fromkeys(found) if index in node.free)

    def _part(self, node: Node, numbers: dict[str, int]) -> tuple[object, ...]:
        form, indices = self.known[node]
        return (form, *(numbers[index] for index in indices))

    def _place(self, place: Affine, numbers: dict[str, int]) -> tuple[object, ...]:
        found: list[object] = [place.constant]
        for term, factor in place.terms:
            if isinstance(term, Node):
                found.append((self._part(term, numbers), factor))
            else:
                found.append((term if is_size(term) else numbers[term], factor))
        return tuple(found)


def _places(node: Node) -> tuple[Affine, ...]:
    return node.places if node.op in PLACED else ()


def _rest(node: Node) -> object:
    """Return what a node's data is besides its indices."""
    if node.op == READ:
        return node.name
    if node.op in REDUCTIONS or node.op == INSIDE:
        return node.size
    return repr(node.data) if node.op not in PLACED else None
