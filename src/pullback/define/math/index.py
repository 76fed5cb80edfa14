"""Affine indices, as between the brackets of a read: whole-number sums, `i + p`, `2*i - 1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pullback.define.math.node import Node

Value = TypeVar("Value")


class Once(Generic[Value]):
    """As `functools.cached_property`, without the lock that it takes before Python 3.12.

    There are millions of places, and what they are asked for took a tenth of a definition's time.
    """

    def __init__(self, compute: Callable[..., Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, own: object, of: type) -> Value:
        """Return the value, which from now on is the object's own attribute."""
        value = own.__dict__[self.compute.__name__] = self.compute(own)
        return value


# All batch dimensions together count as one index.
BATCH = "..."


@dataclass(frozen=True)
class Affine:
    """`constant` plus whole multiples of indices, sizes and integer-valued nodes.

    What follows from it is computed once: whoever writes loops asks for it over and over.

    Attributes:
        constant: what is added.
        terms: what is multiplied, and by how much, in a fixed order. An index is its name; the
            size of a dimension is its name in bars, `|n|`; a gather's index is a node.
    """

    constant: int = 0
    terms: tuple[tuple[str | Node, int], ...] = ()

    @Once
    def _hash(self) -> int:
        return hash((self.constant, self.terms))

    def __hash__(self) -> int:
        return self._hash

    @Once
    def index(self) -> str | None:
        """The index, if it is one alone."""
        if self.constant == 0 and len(self.terms) == 1:
            term, factor = self.terms[0]
            if factor == 1 and isinstance(term, str) and not is_size(term):
                return term
        return None

    @Once
    def free(self) -> frozenset[str]:
        """The indices in it."""
        found: set[str] = set()
        for term, _ in self.terms:
            if not isinstance(term, str):
                found |= term.free
            elif not is_size(term):
                found.add(term)
        return frozenset(found)

    @Once
    def nodes(self) -> tuple[Node, ...]:
        """The integer-valued nodes in it."""
        return tuple(term for term, _ in self.terms if not isinstance(term, str))

    def factor(self, term: str | Node) -> int:
        """Return what a term is multiplied by."""
        return dict(self.terms).get(term, 0)

    def replaced(self, others: Mapping[str | Node, Affine]) -> Affine:
        """Return the sum with other sums in place of some terms."""
        if not any(term in others for term, _ in self.terms):
            return self
        constant = self.constant
        total: dict[str | Node, int] = {}
        for term, factor in self.terms:
            other = others.get(term)
            if other is not None:
                constant += other.constant * factor
            for own, times in ((term, 1),) if other is None else other.terms:
                total[own] = total.get(own, 0) + times * factor
        return affine(constant, total)

    def __add__(self, other: Affine | int) -> Affine:
        """Add another sum, or a number."""
        other = Affine(other) if isinstance(other, int) else other
        total = dict(self.terms)
        for term, factor in other.terms:
            total[term] = total.get(term, 0) + factor
        return affine(self.constant + other.constant, total)

    def __mul__(self, factor: int) -> Affine:
        """Multiply by a whole number."""
        return affine(self.constant * factor, {term: each * factor for term, each in self.terms})

    def __neg__(self) -> Affine:
        """Return the negative."""
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        """Subtract another sum, or a number."""
        return self + (-other)

    def __str__(self) -> str:
        terms = [str(term) if factor == 1 else f"{factor}*{term}" for term, factor in self.terms]
        return " + ".join([*terms, str(self.constant)] if self.constant or not terms else terms)


def affine(constant: int, terms: dict[str | Node, int]) -> Affine:
    """Return the sum in its canonical form: no term times zero, in a fixed order."""
    kept = [(term, factor) for term, factor in terms.items() if factor]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Affine(constant, tuple(kept))


def at(index: str) -> Affine:
    """Return an index alone."""
    return Affine(0, ((index, 1),))


def size_of(index: str) -> str:
    """Return the term that stands for the size of a dimension."""
    return f"|{index}|"


def size(index: str) -> Affine:
    """Return the size of a dimension: a number where its name is one, as in `x[n, 3]`."""
    name = index.rstrip("'")  # the second dimension of x[n, n] is called n'
    return Affine(int(name)) if name.isdecimal() else Affine(0, ((size_of(name), 1),))


def never_negative(sizes: Affine) -> bool:
    """Return whether a sum of sizes cannot be negative, whatever they are: each is at least 1.

    A quotient that is rounded down, `(h - p)//2`, is less than 1 below the exact one.
    """
    for term, factor in sizes.terms:
        if isinstance(term, str):
            continue
        if term.op != "floor_divide" or not is_fixed(term):
            return False
        dividend, divisor = term.args[0], int(term.args[1].number)
        whole = _dividend(dividend)
        least = whole - (divisor - 1) if factor > 0 else whole
        rest = sizes - Affine(0, ((term, factor),))
        return never_negative(rest * divisor + least * factor)
    factors = [factor for _, factor in sizes.terms]
    return all(factor > 0 for factor in factors) and sizes.constant + sum(factors) >= 0


def is_fixed(node: Node) -> bool:
    """Return whether a whole number is made of sizes and numbers alone."""
    if node.op == "floor_divide":
        return is_fixed(node.args[0]) and node.args[1].op == "number" and node.args[1].number > 0
    if node.op == "index":
        return not node.free and all(is_fixed(term) for term in node.places[0].nodes)
    return node.op == "number"


def _dividend(node: Node) -> Affine:
    return node.places[0] if node.op == "index" else Affine(0, ((node, 1),))


def is_size(term: str) -> bool:
    """Return whether a term is a size and not an index."""
    return term.startswith("|")


def _order(item: tuple[str | Node, int]) -> tuple[int, str, int]:
    term = item[0]
    # Nodes come in the order of their text: the order in which they were made varies between runs.
    return (0, term, 0) if isinstance(term, str) else (1, repr(term), term.serial)
