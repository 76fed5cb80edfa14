"""What is known of indices where conditions hold: which sums of them are not negative."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pullback.define.math.index import Affine, never_negative, undivide
from pullback.define.math.node import Node, place_of
from pullback.define.math.ranges import Ranges

OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Either:
    """Lists of facts, of which one holds.

    Attributes:
        options: the facts of each.
    """

    options: tuple[tuple[Fact, ...], ...]


# A sum of indices that is not negative, or lists of such facts of which one holds.
Fact = Affine | Either


def move_fact(fact: Fact, move: Callable[[Affine], Affine]) -> Fact:
    """Return what a fact is with another sum in place of each."""
    if isinstance(fact, Affine):
        return move(fact)
    return Either(tuple(tuple(move_fact(own, move) for own in each) for each in fact.options))


def list_sums(facts: Iterable[Fact]) -> Iterator[Affine]:
    """Yield the sums in some facts, those of all options too."""
    for fact in facts:
        if isinstance(fact, Affine):
            yield fact
        else:
            yield from list_sums(itertools.chain.from_iterable(fact.options))


def derive_facts(condition: Node, holds: bool, ranges: Ranges) -> list[Fact]:  # noqa: PLR0911
    """Return what is known of indices where a condition holds, or where it does not."""
    match condition.op:
        case "logical_and" | "logical_or":
            found = [derive_facts(part, holds, ranges) for part in condition.args]
            is_all = holds == (condition.op == "logical_and")
            return [*itertools.chain.from_iterable(found)] if is_all else _one_of(found)
        case "logical_not":
            return derive_facts(condition.args[0], not holds, ranges)
        case "inside":
            place, size = condition.places[0], condition.size
            return [place, size - place - 1] if holds else _one_of([[-place - 1], [place - size]])
        case "equal":
            return _derive_from_comparison("eq" if holds else "ne", condition.places[0], ranges)
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne" as name:
            x, y = condition.args
            if x.type != "int" or y.type != "int":
                return []
            name = name if holds else OPPOSITE[name]
            return _derive_from_comparison(name, place_of(x) - place_of(y), ranges)
        case _:
            return []


def _one_of(options: Sequence[Sequence[Fact]]) -> list[Fact]:
    """Return what is known where one of some lists of facts holds: nothing if one is empty."""
    return [Either(tuple(map(tuple, options)))] if all(options) else []


def _derive_from_comparison(name: str, difference: Affine, ranges: Ranges) -> list[Fact]:
    """Return what follows from `difference < 0` and the like."""
    match name:
        case "lt":
            return [-difference - 1]
        case "le":
            return [-difference]
        case "gt":
            return [difference - 1]
        case "ge":
            return [difference]
        case "eq":
            return [difference, -difference]
        case _:
            # A value that is not the least is at least one more.
            either = (difference, -difference)
            more = [side - 1 for side in either if is_positive(side, (), ranges)]
            return [*more] or _one_of([[side - 1] for side in either])


def is_positive(place: Affine, facts: Sequence[Fact], ranges: Ranges) -> bool:
    """Return whether a sum of indices is certainly 0 or more where some facts hold."""
    sums = [fact for fact in facts if isinstance(fact, Affine)]
    left = [fact for fact in facts if isinstance(fact, Either)]
    return _follows(place, sums, ranges) or (
        bool(left) and _is_contradicted([*sums, -place - 1], left, ranges)
    )


def _is_contradicted(sums: list[Affine], left: list[Either], ranges: Ranges) -> bool:
    """Return whether some facts cannot all hold: of each `left` one option has to.

    Where all options but one are excluded, that one is known (unit propagation).
    """
    while True:
        for each in left:
            possible = [
                option
                for option in each.options
                if not any(
                    isinstance(own, Affine) and _follows(-own - 1, sums, ranges) for own in option
                )
            ]
            if not possible:
                return True
            if len(possible) == 1:
                break
        else:
            return False
        left = [other for other in left if other is not each]
        sums = [*sums, *(own for own in possible[0] if isinstance(own, Affine))]
        left += [own for own in possible[0] if isinstance(own, Either)]


def _follows(place: Affine, facts: Sequence[Affine], ranges: Ranges) -> bool:
    """Return whether a sum of indices is 0 or more because one other is, or two are."""
    place, facts = undivide(place), [*map(undivide, facts)]
    pairs = (x + y for x, y in itertools.combinations(facts, 2))
    for known in (Affine(0), *facts, *pairs):
        bounds = ranges.bounds(place - known)
        if bounds is not None and never_negative(bounds[0]):
            return True
    return False
