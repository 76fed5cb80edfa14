"""The indices of one call: how far each runs, and which dimensions its values have."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.bind.dense.value import Axis
from pullback.define.line import Line
from pullback.define.math.extents import evaluate_size
from pullback.define.math.index import BATCH, Affine, size
from pullback.define.math.node import Node
from pullback.define.shape import Size, broadcast

if TYPE_CHECKING:
    from pullback.bind.loops.nests import Own
    from pullback.define.math.formula import Formula

# How far each index that a node may have runs, the outermost first.
Env = Mapping[str, Affine]
ALL_BATCH = size(BATCH)
# Finds the loops of a formula for some sizes, which may do so many times the work that others may;
# None if there are none, or they are wrong.
FindLoops = Callable[["Formula", Mapping[str, int], torch.device, float], "Own | None"]


@dataclass(frozen=True, kw_only=True)
class GpuWays:
    """How a GPU computes what PyTorch's operations would compute more slowly.

    Attributes:
        half: the dtype in which matrices are multiplied that have it; None if all are converted.
        find_loops: finds the loops of what is between products of matrices; None if there are none.
        accuracy: of functions in these, in units in the last place.
    """

    half: torch.dtype | None = None
    find_loops: FindLoops | None = None
    accuracy: int = 4


NO_GPU = GpuWays()


@dataclass(frozen=True, kw_only=True)
class SpaceCall:
    """One call of an operator.

    Attributes:
        line: of the operator.
        arguments: the values of its parameters, by name.
        sizes: of every name of the line and of every new index.
        compute: the dtype of real numbers.
        device: of the tensors.
        ways: how a GPU computes it.
    """

    line: Line
    arguments: Mapping[str, object]
    sizes: Mapping[str, Size]
    compute: torch.dtype
    device: torch.device
    ways: GpuWays = NO_GPU


class Space:
    """The sizes of a call.

    Attributes:
        labels: the indices of each tensor.
        batch: the sizes of `...`.
        sizes: of every index.
        starts: where an index that runs over a slice of its range begins; `wholes`: the range.
    """

    def __init__(self, call: SpaceCall) -> None:
        self.labels = labels_of(call.line)
        self.has_batch = any(BATCH in own for own in self.labels.values())
        self.batch = self._batch(call)
        self.sizes: dict[str, Size] = {**call.sizes, BATCH: math.prod(self.batch)}
        self.starts: dict[Affine, int] = {}
        self.wholes: dict[Affine, Affine] = {}
        self._extents: dict[Affine, Size] = {}

    def _batch(self, call: SpaceCall) -> tuple[Size, ...]:
        batch: tuple[Size, ...] = ()
        for tensor in call.line.tensors:
            value, own = call.arguments.get(tensor.name), self.labels[tensor.name]
            if BATCH in own and isinstance(value, Tensor):
                first = own.index(BATCH)
                shape = tuple(value.shape[first : value.dim() - (len(own) - 1 - first)])
                batch = broadcast(call.line, tensor, shape, batch)
        return batch

    def extent(self, size: Affine) -> Size:
        """Return a size as a number."""
        known = self._extents.get(size)
        if known is None:
            value = evaluate_size(size, self.sizes)
            assert value is not None, size
            known = self._extents[size] = max(value, 0)
        return known

    def slice_of(self, whole: Affine, name: str, start: int, extent: int) -> Affine:
        """Return the size of a slice of a range; a name has one slice at a time."""
        window = size(name)
        self._extents[window] = extent
        self.starts[window] = self.start(whole) + start
        self.wholes[window] = self.whole(whole)
        return window

    def start(self, size: Affine) -> int:
        """Return where an index of this size begins: not at 0 within a slice."""
        return self.starts.get(size, 0)

    def whole(self, size: Affine) -> Affine:
        """Return a size; for a slice's, the size of its whole range."""
        return self.wholes.get(size, size)

    def covers(self, size: Affine, extent: Size) -> bool:
        """Return whether an index runs over a whole dimension of a tensor."""
        return self.start(size) == 0 and self.extent(size) == extent

    def is_batch(self, size: Affine) -> bool:
        """Return whether an index of this size runs over all of `...`."""
        return self.has_batch and size == ALL_BATCH

    def axes_of(self, index: str, size: Affine) -> list[Axis]:
        """Return the axes of an index: one that runs over `...` has one for each dimension."""
        return [(index, k) for k in range(len(self.batch) if self.is_batch(size) else 1)]

    def axes(self, env: Env) -> tuple[Axis, ...]:
        """Return the axes of some indices, in their order."""
        found: list[Axis] = []
        for index, own in env.items():
            found += self.axes_of(index, own)
        return tuple(found)

    def length(self, axis: Axis, env: Env) -> Size:
        """Return how far an axis runs."""
        own = env[axis[0]]
        return self.batch[axis[1]] if self.is_batch(own) else self.extent(own)

    def dimension(self, read: Node, index: int) -> int:
        """Return the dimension of a tensor that an index of its read is for."""
        own = self.labels[read.name]
        return index if BATCH not in own[:index] else index - len(own)


@functools.lru_cache(maxsize=1024)
def labels_of(line: Line) -> dict[str, tuple[str, ...]]:
    """Return the indices of each tensor of a line, and of each output."""
    return {tensor.name: tensor.labels for tensor in (*line.tensors, *line.outputs)}
