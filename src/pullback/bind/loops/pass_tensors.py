"""What a pass over blocks reads and writes: tensors as they have to lie, and held products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pullback.bind.loops.own_call import write_last
from pullback.define.math.index import BATCH

# The elements of a cache line, at which each row of a block's own memory begins.
LINE = 16


@dataclass(frozen=True, kw_only=True)
class PassTensor:
    """A tensor of a pass.

    Attributes:
        value: its numbers.
        labels: its indices.
        is_state: whether it is written, so that it stays where it is.
    """

    value: Tensor
    labels: tuple[str, ...]
    is_state: bool

    def dimension(self, place: int) -> int:
        """Return the dimension of one of its indices: `...` has several before those after it."""
        before = BATCH in self.labels[:place]
        return place - len(self.labels) + self.value.dim() if before else place


@dataclass(frozen=True, kw_only=True)
class Held:
    """Products of matrices that are held for some rows: two passes over these have them.

    Attributes:
        tiles: the products, as blocks identify them: block after block, row by row.
        first: the first of the rows.
        is_new: whether this pass computes them; it reads them otherwise.
    """

    tiles: Mapping[object, Tensor]
    first: int
    is_new: bool


NOTHING = Held(tiles={}, first=0, is_new=False)


@dataclass
class LaidOut:
    """Tensors of a call in the dtypes and layouts that its passes read, made once for all of these.

    Attributes:
        known: these, and what each was made of, by a name and the layout.
    """

    known: dict[tuple[object, ...], tuple[Tensor, Tensor]] = field(
        default_factory=dict[tuple[object, ...], tuple[Tensor, Tensor]]
    )

    def get_or_make(
        self, key: tuple[object, ...], value: Tensor, make: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return a tensor as it has to lie; vectors of passes have the same names."""
        if key not in self.known or self.known[key][0] is not value:
            self.known[key] = (value, make(value))
        return self.known[key][1]


def lay_out_halves(value: Tensor, down: int, across: int) -> Tensor:
    """Return a tensor in bfloat16, as matrices of two of its dimensions whose rows have no gaps."""
    rows = value.to(torch.bfloat16).movedim((down, across), (-2, -1))
    return without_gaps(rows).movedim((-2, -1), (down, across))


def without_gaps(value: Tensor) -> Tensor:
    """Return matrices of the last two dimensions, in whose rows elements lie side by side."""
    if value.stride(-1) == 1 and value.stride(-2) >= value.shape[-1]:
        return value
    return write_last(value, (value.dim() - 2, value.dim() - 1))


def width_of(columns: int) -> int:
    """Return how many elements a row of a block has in memory."""
    return -(-columns // LINE) * LINE
