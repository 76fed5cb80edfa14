"""What is left of a state of which the loops of a recurrence keep the last steps alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from pullback.define.math.index import Affine
from pullback.kernels.loops.extents import Extents


@dataclass(frozen=True)
class Last:
    """The last step of a running total, of which a ring of steps is kept.

    Attributes:
        states: the total, and what was lost of it.
        step: which one that is.
        summed: how many dimensions before that of the steps are added up after it.
    """

    states: tuple[str, ...]
    step: Affine
    summed: int

    def finish(self, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
        """Return the total in a ring of them."""
        place = (Extents(sizes).number(self.step) or 0) % value.shape[self.summed]
        total = value.select(self.summed, place)
        return total.sum([*range(self.summed)]) if self.summed else total


@dataclass(frozen=True)
class End:
    """The last step of a state of which nothing else is read afterwards.

    Attributes:
        time: the index of the steps.
        place: which dimension that is.
        step: which one is the last.
    """

    time: str
    place: int
    step: Affine

    def repeat(self, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
        """Return a state whose every step is the last one, of all steps."""
        step = Extents(sizes).number(self.step) or 0
        return value.narrow(self.place, step, 1).expand_as(value)

    def spread(self, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
        """Return a state whose every step is the last one, of a ring of steps."""
        ring, shape = value.shape[self.place], [*value.shape]
        shape[self.place] = sizes[self.time]
        place = (Extents(sizes).number(self.step) or 0) % ring
        return value.narrow(self.place, place, 1).expand(shape)
