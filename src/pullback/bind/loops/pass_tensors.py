"""What a pass over blocks reads and writes: tensors, and products that two passes have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from pullback.define.math.index import BATCH

# The elements of a cache line, at which each row of a block's own memory begins.
LINE = 16


@dataclass(frozen=True, kw_only=True)
class PassTensor:
    """A tensor of a pass.

    Attributes:
        value: in the dtype that loops read.
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


def width_of(columns: int) -> int:
    """Return how many elements a row of a block has in memory."""
    return -(-columns // LINE) * LINE
