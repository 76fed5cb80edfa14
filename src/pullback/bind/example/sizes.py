"""The example's dimensions: which may change, and which only together with others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pullback.bind.example.trial import (
    FILLS,
    ExampleTrial,
    Fill,
    Shapes,
    agree,
    freeze_shapes,
    vary_values,
)

Axis = tuple[int, int]  # a tensor, and one of its dimensions
Kind = Literal["one", "two", "three", "multiple", "less", "mixed"]
KINDS: tuple[Kind, ...] = ("one", "two", "three", "multiple", "less")
MOST_TOGETHER = 6  # up to so many open dimensions, every set is tried
MOST_MIXED = 200  # sets of dimensions of different sizes that are tried
LARGE = 8  # an example's size above this is made smaller
COUNTS = (1, 2, 3, 4, 5, 6)  # of steps
SMALLEST = 2  # a size of 1 could be there to broadcast


@dataclass(frozen=True)
class Move:
    """Dimensions that change together, and by how much in a step."""

    kind: Kind
    steps: Mapping[Axis, int]
    counts: tuple[int, ...] = ()  # numbers of steps that forward takes

    def of(self, shapes: Shapes, count: int) -> Shapes:
        """Return shapes after some steps."""
        changed = [list(shape) for shape in shapes]
        for (tensor, dim), step in self.steps.items():
            changed[tensor][dim] += count * step
        return tuple(tuple(shape) for shape in changed)


def settle(trial: ExampleTrial, *, ones: bool) -> None:
    """Make an example's large sizes smaller, and those of 1 (`ones`) larger, if forward allows."""
    base = [list(shape) for shape in trial.base]
    others = {size for shape in base for size in shape if size > 3}
    for shape in base:
        for dim, size in enumerate(shape):
            if size == 1 and ones:
                for other in (2, 3, *sorted(others), 1):
                    shape[dim] = other
                    if trial.accepts(freeze_shapes(base), closely=True):
                        break
    trial.base = freeze_shapes(base)
    # An integer may be an index, which a smaller size would make invalid.
    if all(e.is_floating_point() or e.is_complex() for e in trial.examples):
        shrink(trial)


def shrink(trial: ExampleTrial) -> None:
    """Make an example's large sizes small, equal ones alike, all at once or one by one."""
    present = {size for shape in trial.base for size in shape}
    small = (size for size in itertools.count(4) if size not in present)
    fewer = {size: next(small) for size in sorted(present) if size > LARGE}
    for chosen in (fewer, *({size: to} for size, to in fewer.items())):
        shapes = freeze_shapes([chosen.get(size, size) for size in shape] for shape in trial.base)
        if chosen and trial.accepts(shapes):
            trial.base = shapes
            if chosen is fewer:
                return


@dataclass
class MoveSearch:
    """Finds the moves; a dimension without one is fixed.

    A dimension is idle if forward takes more of it but does not use that, as a kernel does with the
    longer of two vectors. It is tied to others if one of those cannot change without it.
    """

    trial: ExampleTrial
    open: list[Axis]
    moves: list[Move] = field(default_factory=list[Move])
    idle: set[Axis] = field(default_factory=set[Axis])

    def run(self) -> None:
        """Try dimensions alone, then sets of equal ones, then sets of different ones."""
        for kind in KINDS:
            size = 1
            while size <= min(len(self.open), MOST_TOGETHER):
                found = self.first(kind, size)
                # What was found may allow a smaller set: a kernel fits a larger image.
                size = 1 if found else size + 1
                if size > min(len(self.open), MOST_TOGETHER) and self.release(kind):
                    size = 1
        for kind in ("one", "multiple"):
            while any(self.first(kind, size, equal=False) for size in (2, 3)):
                pass
        while self.open and self.mixed():
            pass

    def first(self, kind: Kind, size: int, *, equal: bool = True) -> bool:
        """Find the first set of dimensions that may change together."""
        for axes in self.sets(size, equal=equal):
            if self.idle.issuperset(axes):
                continue
            steps = self.steps(kind, axes)
            if steps and (counts := self.counts(move := Move(kind, steps))):
                if size == 1 and not self.matters(move):
                    self.idle.update(axes)
                    continue
                self.accept(Move(kind, steps, counts))
                return True
        return False

    def mixed(self) -> bool:
        """Find the first set whose sizes are sums and multiples, as those of stacked gates are.

        Dimensions that change already may be among them.
        """
        by_size: dict[int, list[Axis]] = {}
        for axis in self.open:
            by_size.setdefault(self.size(axis), []).append(axis)
        moving = dict.fromkeys(axis for move in self.moves for axis in move.steps)
        groups = [*by_size.values(), *([axis] for axis in moving)]
        for count in (2, 3):
            for chosen in itertools.islice(itertools.combinations(groups, count), MOST_MIXED):
                if not any(group in by_size.values() for group in chosen):
                    continue
                sizes = [self.size(group[0]) for group in chosen]
                ratios = [{1, size // min(sizes)} for size in sizes]
                for steps in itertools.product(*map(sorted, ratios)):
                    each = zip(chosen, steps, strict=True)
                    move = Move("mixed", {axis: step for group, step in each for axis in group})
                    if counts := self.counts(move):
                        self.accept(Move("mixed", move.steps, counts))
                        return True
        return False

    def release(self, kind: Kind) -> bool:
        """Let one idle dimension change alone after all."""
        for axis in sorted(self.idle):
            steps = self.steps(kind, (axis,))
            if steps and (counts := self.counts(Move(kind, steps))):
                self.accept(Move(kind, steps, counts))
                return True
        return False

    def accept(self, move: Move) -> None:
        """Take a move."""
        self.moves.append(move)
        self.open = [axis for axis in self.open if axis not in move.steps]
        self.idle.difference_update(move.steps)

    def matters(self, move: Move) -> bool:
        """Return whether forward uses what one step adds."""
        shapes = move.of(self.trial.base, 1)
        before, after = self.trial.at(self.trial.base), self.trial.at(shapes)
        if before is None or after is None or before.shapes != after.shapes:
            return True
        tensors = [tensor.clone() for tensor in self.trial.filled(shapes)]
        for tensor, dim in move.steps:
            added = tensors[tensor].select(dim, -1)
            added.copy_(vary_values(added, 1))
        other = self.trial.attempt(tensors)
        return other is None or not agree(after, other)

    def sets(self, size: int, *, equal: bool) -> Iterator[tuple[Axis, ...]]:
        """Yield sets of open dimensions that have one size, or several."""
        for axes in itertools.combinations(self.open[: 2 * MOST_TOGETHER], size):
            if (len({self.size(axis) for axis in axes}) == 1) is equal:
                yield axes

    def size(self, axis: Axis) -> int:
        """Return a dimension's size now."""
        return self.trial.base[axis[0]][axis[1]]

    def steps(self, kind: Kind, axes: Sequence[Axis]) -> dict[Axis, int] | None:
        """Return by how much dimensions change in one step."""
        sizes = [self.size(axis) for axis in axes]
        if kind == "multiple":
            # Dimensions in a ratio, as the channels of groups, keep that ratio.
            shared = math.gcd(*sizes) if len(set(sizes)) > 1 else 1
            return {axis: self.size(axis) // shared for axis in axes}
        step = {"one": 1, "two": 2, "three": 3, "less": -1}[kind]
        return dict.fromkeys(axes, step)

    def counts(self, move: Move) -> tuple[int, ...]:
        """Return which numbers of steps forward takes; none if it takes only one."""
        for shapes in self.contexts():
            found: list[int] = []
            for count in COUNTS:
                moved = move.of(shapes, count)
                if min(map(min, filter(None, moved))) < SMALLEST and move.kind == "less":
                    break
                if self.trial.accepts(moved, closely=count == 1):
                    found.append(count)
                elif count == 1:
                    break
            if len(found) > 1:
                return tuple(found)
        return ()

    def contexts(self) -> Iterator[Shapes]:
        """Yield the example's shapes, and larger ones."""
        yield self.trial.base
        shapes = self.trial.base
        for move in self.moves:
            if move.kind != "less":
                shapes = move.of(shapes, move.counts[-1])
        if self.moves:
            yield shapes


def find_moves(trial: ExampleTrial) -> list[Move]:
    """Return how the dimensions change, and leave the trial with the values that let most do so."""
    axes = [(t, d) for t, shape in enumerate(trial.base) for d in range(len(shape))]
    best: tuple[tuple[int, int], Fill, list[Move]] | None = None
    for fill in FILLS:
        trial.fill = fill
        if not trial.accepts(trial.base):
            continue
        search = MoveSearch(trial, list(axes))
        search.run()
        # Prefers few fixed dimensions, then many sizes that forward takes.
        missing = sum(len(COUNTS) - len(move.counts) for move in search.moves)
        score = (len(search.open), missing)
        if best is None or score < best[0]:
            best = score, fill, search.moves
        if score == (0, 0):
            break
    assert best, "the example itself is taken"
    trial.fill = best[1]
    return best[2]
