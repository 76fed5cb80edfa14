"""Affine indices, as between the brackets of a read: whole-number sums, `i + p`, `2*i - 1`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

    def __divmod__(self, divisor: int) -> tuple[Affine, Affine]:
        """Return what is a multiple of a number, divided by it, and what is left."""
        terms = tuple((term, f // divisor) for term, f in self.terms if f % divisor == 0)
        whole = Affine(self.constant // divisor, terms)
        return whole, self - whole * divisor

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


def is_quotient(node: Node) -> bool:
    """Return whether a whole number is a place that is divided by a number: `i//2`, `(h + p)//4`.

    What data decides is none, nor is what has one value, `size(n)//2`.
    """
    if node.op != "floor_divide" or node.args[0].op != "index" or node.args[1].op != "number":
        return False
    return bool(node.free) and node.args[1].number > 0 and is_counted(node.args[0].places[0])


def is_counted(place: Affine) -> bool:
    """Return whether an index is made of indices, sizes and quotients alone, and of no data."""
    return all(is_fixed(part) or is_quotient(part) for part in place.nodes)


def divided(quotient: Node) -> tuple[Affine, int]:
    """Return which place is divided, and by which number."""
    return quotient.args[0].places[0], int(quotient.args[1].number)


def undivide(place: Affine) -> Affine:
    """Return a sum that is 0 or more where another one is, without the quotients in that.

    `e//c + r` is where e + c*r is, and `r - e//c` where c*(r + 1) - 1 - e is. What is multiplied,
    as in `e - c*(e//c)`, stays.
    """
    for term in place.nodes:
        factor = place.factor(term)
        if abs(factor) == 1 and is_quotient(term):
            dividend, divisor = divided(term)
            rest = (place - Affine(0, ((term, factor),))) * divisor
            more = dividend if factor > 0 else -dividend + (divisor - 1)
            return undivide(rest + more)
    return place


def undivide_range(place: Affine, extent: Affine) -> tuple[Affine, Affine]:
    """Return a place without quotients, and how far it may go where another one is inside.

    `0 <= e//c < n` is where `0 <= e < c*n` is.
    """
    least, most = undivide(place), undivide(extent - 1 - place)
    return least, least + most + 1


@dataclass(frozen=True)
class Remainder:
    """`many*(dividend % divisor)`, a part of an index.

    Attributes:
        dividend: what is divided.
        divisor: by which number.
        quotient: of both, with which it is written: dividend - divisor*quotient.
        many: what it is multiplied by.
    """

    dividend: Affine
    divisor: int
    quotient: Node
    many: int

    @property
    def once(self) -> Affine:
        """It, not multiplied."""
        return self.dividend - Affine(0, ((self.quotient, self.divisor),))


def take_remainder(
    place: Affine, quotient: Node, *, whole: bool
) -> tuple[Affine, Remainder] | None:
    """Return a sum without the remainder that a quotient is of, and that; None if there is none.

    Of `e//c` and e both e is c*(e//c) + r. So of `e - c*(e//c)` nothing is left but r, and of
    `e - e//c` it is `(c - 1)*(e//c)`. Where both have one sign that would say less of the ends.

    Args:
        place: the sum.
        quotient: one in it.
        whole: leave e, and nothing of the quotient: of `e - 2*c*(e//c)` -e, and 2*r.
    """
    factor = place.factor(quotient)
    for dividend, divisor in _shares(place, quotient):
        own, times = dividend.terms[0]
        many, odd = divmod(-factor, divisor) if whole else divmod(place.factor(own), times)
        found = Remainder(dividend, divisor, quotient, many)
        left = place - found.once * many
        signs = [place.factor(term) * each * factor < 0 for term, each in dividend.terms]
        is_left = not whole and any(left.factor(term) for term, _ in dividend.terms)
        if not odd and all(signs) and not is_left:
            return left, found
    return None


def _shares(place: Affine, quotient: Node) -> Iterator[tuple[Affine, int]]:
    """Yield what a quotient is of which number: e//6 of e by 6, and of e//2 by 3."""
    dividend, divisor = divided(quotient)
    yield dividend, divisor
    for other in filter(is_quotient, place.nodes):
        of, by = divided(other)
        whole, odd = divmod(dividend - of, by)
        if by < divisor and divisor % by == 0 and odd == Affine(0):
            yield whole + Affine(0, ((other, 1),)), divisor // by


def split_remainders(place: Affine, *, whole: bool = False) -> tuple[Affine, list[Remainder]]:
    """Return a sum without its remainders, and these.

    Args:
        place: the sum.
        whole: so that nothing of their quotients is left.
    """
    found = list[Remainder]()

    def outermost(quotient: Node) -> tuple[bool, int]:
        dividend, divisor = divided(quotient)
        return not dividend.nodes, divisor

    for quotient in sorted(filter(is_quotient, place.nodes), key=outermost):
        if taken := take_remainder(place, quotient, whole=whole):
            place = taken[0]
            found.append(taken[1])
    return place, found


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
