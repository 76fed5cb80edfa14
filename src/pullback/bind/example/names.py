"""Names for the dimensions of an example's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.bind.example.independence import BatchSplit
from pullback.bind.example.sizes import Axis, Move
from pullback.bind.example.trial import Shapes
from pullback.define.dimension import Expression, Name, Number

# The usual names of a weight's dimensions, and of a batch of signals and of images.
WEIGHT = "oiklr"
BY_RANK: Mapping[int, str] = {3: "ncl", 4: "nchw"}
LETTERS = "nmkpqdlrstuvabcefghijowyz"


@dataclass(frozen=True)
class Labels:
    """The names of the dimensions and outputs.

    Attributes:
        dims: of each tensor, without its batch.
        axes: the name of each dimension that changes.
        owners: the parameter that each tensor belongs to.
        outputs: the outputs' names.
    """

    dims: list[tuple[Expression, ...]]
    axes: Mapping[Axis, str]
    owners: Sequence[str]
    outputs: Sequence[str]

    def of(self, parameter: str) -> tuple[Expression, ...] | None:
        """Return the dimensions of a parameter; None for a list whose elements differ in them."""
        own = {d for d, owner in zip(self.dims, self.owners, strict=True) if owner == parameter}
        return own.pop() if len(own) == 1 else None

    def visible(self) -> list[str]:
        """Return the names that the line contains."""
        shown = (name for (t, _), name in self.axes.items() if self.of(self.owners[t]) is not None)
        return list(dict.fromkeys(shown))


@dataclass(frozen=True)
class Naming:
    """Finds the names: tied dimensions have one name, and fixed ones are numbers."""

    owners: Sequence[str]
    splits: Sequence[BatchSplit]
    base: Shapes
    moves: Sequence[Move]

    def labels(self, taken: Sequence[str], outputs: Sequence[str]) -> Labels:
        """Return names for all dimensions that differ from the inputs' and outputs' names."""
        groups = self.groups()
        called = self.called(groups, {*taken, *outputs})
        dims: list[tuple[Expression, ...]] = [
            tuple(
                Name(name=called[groups[t, d]]) if (t, d) in groups else Number(value=shape[d])
                for d in self.core(t)
            )
            for t, shape in enumerate(self.base)
        ]
        axes = {
            (t, d): called[groups[t, d]]
            for t in range(len(self.base))
            for d in self.core(t)
            if (t, d) in groups
        }
        return Labels(dims, axes, self.owners, outputs)

    def called(self, groups: Mapping[Axis, int], taken: set[str]) -> dict[int, str]:
        """Return a name for each set of tied dimensions."""
        called: dict[int, str] = {}
        # A weight first, since its dimensions have names of their own.
        order = sorted(range(len(self.base)), key=lambda t: not self.is_weight(t))
        for tensor in order:
            for dim in self.core(tensor):
                group = groups.get((tensor, dim))
                if group is not None and group not in called:
                    free = (name for name in self.candidates(tensor, dim) if name not in taken)
                    called[group] = next(free)
                    taken.add(called[group])
        return called

    def is_weight(self, tensor: int) -> bool:
        """Return whether a tensor is a matrix of weights, by its name."""
        return "weight" in self.owners[tensor] and len(self.base[tensor]) > 1

    def core(self, tensor: int) -> range:
        """Return a tensor's dimensions that are not batch dimensions."""
        rank = len(self.base[tensor])
        return range(rank - self.splits[tensor].after, rank)

    def groups(self) -> dict[Axis, int]:
        """Return the dimensions that share a name: they change together and have one size."""
        numbers: dict[tuple[int, int, int], int] = {}
        found: dict[Axis, int] = {}
        for index, move in enumerate(self.moves):
            for axis, step in move.steps.items():
                key = (index, step, self.base[axis[0]][axis[1]])
                found[axis] = numbers.setdefault(key, len(numbers))
        return found

    def candidates(self, tensor: int, dim: int) -> Iterator[str]:
        """Yield names for a dimension, the best first: those that are customary."""
        name, rank = self.owners[tensor], len(self.base[tensor])
        if self.is_weight(tensor):
            yield from WEIGHT[dim : dim + 1]
        elif "bias" in name:
            yield "o"
        elif not self.splits[tensor].batched:
            yield from BY_RANK.get(rank, "")[dim : dim + 1]
        yield from LETTERS
        number = 0
        while True:
            yield f"d{number}"
            number += 1
