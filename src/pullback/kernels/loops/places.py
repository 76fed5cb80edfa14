"""Affine indices in C++, and the guards that say where one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pullback.define.math.index import (
    Affine,
    at,
    divided,
    is_counted,
    is_quotient,
    is_size,
    split_remainders,
)
from pullback.define.math.node import EQUAL, INSIDE, READ, Node, in_order, place_of
from pullback.kernels.loops.extents import times
from pullback.kernels.loops.scope import RefusedLoops, Scope

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

# What places are divided by as a constant of the kernel, which is an `int`.
MOST_DIVISOR = 2**31 - 1
# Steps this far from the first or the last one are few.
NEAR = 8


@dataclass(frozen=True)
class Digits:
    """A place as `left*(dividend % divisor) + whole*(dividend//divisor) + shift`.

    The dividend grows with the lane, one by one; the shift is the same in all lanes.
    """

    dividend: Affine
    divisor: int
    left: int
    whole: int
    shift: Affine


class Places:
    """The places of one kernel."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def index(self, index: str, copy: Mapping[str, int]) -> str:
        """Return an index; of the lanes' index, the first lane's value."""
        if index in self.emitter.written:
            return str(copy[index])
        variable = self.emitter.variables[index]
        if index == self.emitter.tile and self.emitter.is_stacked:
            return f"{variable} + {copy[index]}"
        if index == self.emitter.tile:
            return f"{variable}_{copy.get(index, 0)}"
        if index in self.emitter.abreast:
            return f"{variable} + {copy[index]}" if copy.get(index) else variable
        vector = copy.get(index, 0)
        if index == self.emitter.backed and vector >= self.emitter.counts[index] // 2:
            return f"{variable}_{vector}"
        return f"{variable} + {vector} * lanes" if vector else variable

    def place(self, place: Affine, copy: Mapping[str, int]) -> str:
        """Return an affine index in C++, for the first lane."""
        number = place.constant
        parts: list[str] = []
        for term, factor in place.terms:
            if not isinstance(term, str):
                parts.append(times(self.one_of(term, copy), factor))
            elif is_size(term):
                parts.append(times(self.emitter.extents.term(term), factor))
            elif term in self.emitter.written:
                number += copy[term] * factor
            elif term == self.emitter.tile and self.emitter.is_stacked:
                number += copy[term] * factor
                parts.append(times(self.emitter.variables[term], factor))
            else:
                parts.append(times(f"({self.index(term, copy)})", factor))
        if number or not parts:
            parts.append(str(number))
        return " + ".join(parts)

    def one_of(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a whole number that is the same in all lanes."""
        if self.emitter.is_constant(node):
            return self.emitter.constant(node)
        if self.emitter.here.lane in node.free:
            raise RefusedLoops("a place that data decides lane by lane")
        return f"one({self.emitter.value(node, copy)})"

    def whole(self, place: Affine, copy: Mapping[str, int]) -> str:
        """Return an affine index as a vector."""
        lane = self.emitter.here.lane
        inner = [(term, f) for term, f in place.terms if self.varies(term)]
        outer = Affine(place.constant, tuple(t for t in place.terms if t not in inner))
        text = f"splat(int64_t({self.place(outer, copy)}))"
        for term, factor in inner:
            if isinstance(term, str):
                assert term == lane
                first = self.index(term, copy)
                text += f" + (splat(int64_t({first})) + numbers<Whole>()) * {factor}"
            else:
                text += f" + {self.emitter.value(term, copy)} * {factor}"
        return text

    def divided(self, node: Node) -> tuple[Affine, int] | None:
        """Return which place is divided by which number, rounded down; None if none is."""
        if not is_quotient(node):
            return None
        place, divisor = divided(node)
        known = divisor <= MOST_DIVISOR and self.lane_factor(place) in (0, 1)
        return (place, divisor) if known else None

    def quotient(self, node: Node, copy: Mapping[str, int]) -> str | None:
        """Return a place that is divided by a number, as a vector; None if it is none."""
        found = self.divided(node)
        if found is None:
            return None
        place, divisor = found
        first = f"int64_t({self.place(place, copy)})"
        if self.lane_factor(place):
            return f"divided<{divisor}>({first})"
        return f"splat(floor_divide({first}, int64_t{{{divisor}}}))"

    def rest(self, place: Affine, size: str, copy: Mapping[str, int]) -> str | None:
        """Return the guard of a place that is what a division leaves; None if it is none."""
        [own] = self.digits([place]) or [None]
        if own is None or (own.left, own.whole) != (1, 0):
            return None
        first, shift = (f"int64_t({self.place(e, copy)})" for e in (own.dividend, own.shift))
        return f"rest_inside<{own.divisor}>({first}, {shift}, {size})"

    def digits(self, own: Sequence[Affine]) -> list[Digits] | None:
        """Return places as digits of one number; None if they are none."""
        nodes = [part for place in own for part in place.nodes if self.varies(part)]
        for part in nodes:
            if (found := self.divided(part)) and self.lane_factor(found[0]) == 1:
                digits = [self.take_digits(place, part, *found) for place in own]
                known = [each for each in digits if each is not None]
                return known if len(known) == len(own) else None
        return None

    def take_digits(
        self, place: Affine, quotient: Node, dividend: Affine, divisor: int
    ) -> Digits | None:
        """Return a place as digits of a number; None if more in it differs from lane to lane."""
        whole, left = place.factor(quotient), place.factor(self.emitter.here.lane or "")
        shift = place - place_of(quotient) * whole - dividend * left
        if self.lane_factor(shift) != 0:
            return None
        return Digits(dividend, divisor, left, whole + left * divisor, shift)

    def varies(self, term: str | Node) -> bool:
        """Return whether a part of a place differs from lane to lane."""
        lane = self.emitter.here.lane
        return term == lane if isinstance(term, str) else lane in term.free

    def lane_factor(self, place: Affine) -> int | None:
        """Return the factor of the lane's index in a place; None if it is not affine in that."""
        lane = self.emitter.here.lane
        if lane is None:
            return 0
        if any(lane in node.free for node in place.nodes):
            return None
        return place.factor(lane)

    def inside(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a guard."""
        place, size = node.places[0], self.emitter.extents.text(node.size)
        if self.certain(place, node.size):
            return "splat(true)"
        if rest := self.rest(place, size, copy):
            return rest
        factor = self.lane_factor(place)
        if factor == 0:
            return f"splat(pullback::index::inside({self.place(place, copy)}, {size}))"
        if factor == 1:
            return f"inside_lanes(int64_t({self.place(place, copy)}), {size})"
        if factor == -1:
            return f"inside_lanes({size} - 1 - ({self.place(place, copy)}), {size})"
        return f"inside_each(Whole({self.whole(place, copy)}), {size})"

    def equal(self, place: Affine, copy: Mapping[str, int]) -> str:
        """Return the condition that a place is 0."""
        for sign in (1, -1):
            if rest := self.rest(place * sign, "1", copy):
                return rest
        factor = self.lane_factor(place)
        if factor == 0:
            return f"splat(({self.place(place, copy)}) == 0)"
        if factor in (1, -1):
            return f"inside_lanes(int64_t({self.place(place * factor, copy)}), 1)"
        return f"eq(Whole({self.whole(place, copy)}), Whole{{}})"

    def certain(self, place: Affine, size: Affine) -> bool:
        """Return whether an index is inside a size by a test that the lane's loop makes."""
        scope = self.testing()
        if scope is None or not self.is_testable(place):
            return False
        scope.tests[self.test(place, size, scope)] = None
        return True

    def holds(self, selection: Node) -> bool | None:
        """Return whether a condition on the step holds, by tests that the lane's loop makes.

        At the few steps where they fail, lanes are computed as edges are. None for any other one,
        and where the loop would make no test else: that takes longer than to select.
        """
        condition, *branches = selection.args
        scope, found = self.testing(), self.usual(condition)
        if scope is None or found is None or not (scope.tests or self.are_tested(branches)):
            return None
        usual, guards = found
        for guard in guards:
            [place] = guard.places
            if guard.op == INSIDE:
                scope.tests[self.test(place, guard.size, scope)] = None
            else:
                scope.tests[f"({self.place(place, {})}) != 0"] = None
        return usual

    def are_tested(self, values: Sequence[Node]) -> bool:
        """Return whether a step is read that has to be tested for."""
        emitter = self.emitter
        assert emitter.sequential
        reads = (part for part in in_order(values) if part.op == READ)
        return any(
            emitter.sequential[0] in place.free and not emitter.memory.is_proven(read, d)
            for read in reads
            if read.name not in emitter.rings
            for d, place in enumerate(read.places)
        )

    def usual(self, condition: Node) -> tuple[bool, list[Node]] | None:
        """Return what a condition is at all steps but a few, and the guards that it is made of.

        None if it is of more than of the step and of where the lanes are.
        """
        if condition.op in {INSIDE, EQUAL}:
            return (condition.op == INSIDE, [condition]) if self.is_usual(condition) else None
        if condition.op not in {"logical_not", "logical_and", "logical_or"}:
            return None
        found = [self.usual(arg) for arg in condition.args]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            return None
        values, guards = [value for value, _ in parts], [g for _, own in parts for g in own]
        if condition.op == "logical_not":
            return not values[0], guards
        return (all(values) if condition.op == "logical_and" else any(values)), guards

    def is_usual(self, guard: Node) -> bool:
        """Return whether a guard differs at few steps, the first ones or the last, or at edges."""
        emitter, [place] = self.emitter, guard.places
        if emitter.sequential is None or not self.is_testable(place):
            return False
        index = emitter.sequential[0]
        if index not in place.free:
            return guard.op == INSIDE
        size = emitter.ranges.size(index)
        if guard.op == INSIDE:
            ends = [place - at(index)] if guard.size == size else []
        else:
            from_first = place * place.factor(index) - at(index)
            ends = [from_first, from_first + size]
        return any(not end.terms and abs(end.constant) <= NEAR for end in ends)

    def testing(self) -> Scope | None:
        """Return the lane's loop, if it may test something for a whole block of lanes."""
        outer = self.lane_place()
        if outer is None or self.emitter.here.edge or self.emitter.backed:
            return None
        return self.emitter.scopes[outer]

    def is_testable(self, place: Affine) -> bool:
        """Return whether a place is known where the lane's loop tests something."""
        outer = self.lane_place()
        around = self.emitter.scopes[: outer + 1] if outer is not None else []
        bound = frozenset[str]().union(*(scope.indices for scope in around))
        known = all(
            is_quotient(part) and is_counted(part.args[0].places[0]) for part in place.nodes
        )
        return known and place.free - self.emitter.written <= bound

    def lane_place(self) -> int | None:
        """Return which of the open loops is that of the lane."""
        return next((k for k, scope in enumerate(self.emitter.scopes) if scope.lane_scope), None)

    def test(self, place: Affine, size: Affine, scope: Scope) -> str:
        """Return the test that a place is inside for all copies and lanes of a block."""
        low, high = self.reach(place, scope)
        return f"({low}) >= 0 && ({high}) < {self.emitter.extents.text(size)}"

    def reach(self, place: Affine, scope: Scope) -> tuple[str, str]:
        """Return the least and the greatest value of a place in a block, in C++."""
        place, remainders = split_remainders(place)
        moves = [own.many * (own.divisor - 1) for own in remainders]
        low, high = list[str](), list[str]()
        for term, factor in place.terms:
            if term in self.emitter.written:
                assert isinstance(term, str)
                moves.append((self.emitter.counts[term] - 1) * factor)
            else:
                ends = [times(f"({end})", factor) for end in self.ends(term, scope)]
                low.append(ends[factor < 0])
                high.append(ends[factor > 0])
        least = place.constant + sum(min(move, 0) for move in moves)
        most = place.constant + sum(max(move, 0) for move in moves)
        return " + ".join([*low, str(least)]), " + ".join([*high, str(most)])

    def ends(self, term: str | Node, scope: Scope) -> tuple[str, str]:
        """Return the least and the greatest value of a term in a block, in C++."""
        if isinstance(term, Node):
            dividend, divisor = divided(term)
            low, high = self.reach(dividend, scope)
            by = f"int64_t{{{divisor}}}"
            return f"floor_divide(int64_t({low}), {by})", f"floor_divide(int64_t({high}), {by})"
        if is_size(term):
            size = self.emitter.extents.term(term)
            return size, size
        variable = self.emitter.variables[term]
        if term == scope.lane:
            return variable, f"{variable} + {self.emitter.counts.get(term, 1)} * lanes - 1"
        if term == self.emitter.tile:
            return f"{variable}_0", f"{variable}_{self.emitter.counts[term] - 1}"
        return variable, variable
