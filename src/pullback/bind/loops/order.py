"""The order in which the entries of a scatter are added: sorted by row, once for the same index."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.bind.dense import evaluate
from pullback.bind.memo import Memo
from pullback.define.math.extents import evaluate_size
from pullback.define.math.formula import Formula
from pullback.define.math.node import names_read
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops.segments import Segments


@dataclass(frozen=True, kw_only=True)
class Order:
    """Entries in the order of their rows.

    Attributes:
        begin: where the segment of each row begins; `end`: where it ends.
        entries: the numbers of the entries, sorted.
        shape: of an entry's indices.
    """

    begin: Tensor
    end: Tensor
    entries: Tensor
    shape: tuple[int, ...]

    def index(self, k: int) -> Tensor:
        """Return one index of all entries."""
        inner = math.prod(self.shape[k + 1 :])
        outer = self.entries if inner == 1 else self.entries // inner
        return outer if k == 0 else outer % self.shape[k]

    def tensors(self, segments: Segments) -> dict[str, Tensor]:
        """Return the tensors that a kernel reads, by their names."""
        names = [name for name, _ in segments.bound]
        return {
            segments.end("begin").name: self.begin,
            segments.end("end").name: self.end,
            **{segments.index_of(n, "").name: self.index(k) for k, n in enumerate(names)},
            **{segments.value_of(n, "").name: self.index(k) for k, n in enumerate(names)},
        }


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What was made of some tensors.

    Attributes:
        copies: of the tensors, on a CPU: NumPy changes them unseen.
        tensors: what was made.
    """

    copies: tuple[Tensor, ...]
    tensors: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Sorter:
    """Sorts the entries of one sum.

    Attributes:
        indexed: whose sum it is.
        segments: that it runs over.
        known: the orders of index tensors that are still there.
    """

    indexed: Formula
    segments: Segments
    known: Memo[tuple[object, ...], Remembered]

    def tensors(
        self, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the tensors that say what the order is."""
        nodes = self.segments.place.nodes
        given = [arguments[name] for name in names_read(nodes)]
        sources = [value for value in given if isinstance(value, Tensor)]
        if len(sources) < len(given) or is_captured(sources):
            return self.make(arguments, sizes)  # a scalar is a part of the place
        key = (*map(key_of, sources), *sizes.items())
        found = self.known.get(key)
        if found is None or not all(map(torch.equal, found.copies, sources)):
            copies = tuple(source.clone() for source in sources if source.is_cpu)
            found = Remembered(copies=copies, tensors=self.make(arguments, sizes))
            self.known[key] = found
            for source in sources:
                weakref.finalize(source.untyped_storage(), self.known.pop, key, None).atexit = False
        return found.tensors

    def make(self, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, Tensor]:
        """Sort the entries."""
        segments, ranges = self.segments, Ranges(self.indexed.ranges.sizes)
        ranges.sizes |= dict(segments.bound)
        env = {index: ranges.size(index) for index in (*segments.batch, *dict(segments.bound))}
        places = evaluate.compute_places(self.indexed, arguments, sizes, segments.place, env)
        shape = [int(evaluate_size(extent, sizes) or 0) for extent in segments.shape(ranges)]
        rows = int(evaluate_size(ranges.size(segments.row), sizes) or 0)
        return sort(places, shape, len(segments.batch), rows).tensors(segments)


def sort(places: Tensor, shape: Sequence[int], batched: int, rows: int) -> Order:
    """Return the order of some entries.

    Args:
        places: the row of each; one that is outside is left out.
        shape: how far the indices of the batch and of the entries run.
        batched: how many of them are the batch's.
        rows: how many there are.
    """
    batch, inner = shape[:batched], shape[batched:]
    many, per = math.prod(batch), math.prod(inner)
    beyond = many * rows
    keys = places.reshape(many, per)
    inside = (keys >= 0) & (keys < rows)
    if many > 1:
        keys = keys + torch.arange(many, device=keys.device)[:, None] * rows
    keys = torch.where(inside, keys, beyond).reshape(-1)
    if beyond < torch.iinfo(torch.int32).max:
        keys = keys.to(torch.int32)
    ordered, entries = torch.sort(keys, stable=True)
    starts = torch.searchsorted(
        ordered, torch.arange(beyond + 1, dtype=keys.dtype, device=keys.device)
    )
    return Order(
        begin=starts[:-1].reshape(*batch, rows),
        end=starts[1:].reshape(*batch, rows),
        entries=entries % per if many > 1 else entries,
        shape=tuple(inner),
    )


def key_of(tensor: Tensor) -> tuple[object, ...]:
    """Return what a tensor's values are known by while its memory is there."""
    return (
        *(tensor.untyped_storage()._cdata, tensor.data_ptr(), tensor.dtype, tensor._version),
        *(tensor.shape, tensor.stride()),
    )


def is_captured(tensors: Sequence[Tensor]) -> bool:
    """Return whether a graph is captured: replayed, it sorts what is in the tensors then."""
    on_gpu = any(tensor.is_cuda for tensor in tensors)
    return on_gpu and torch.cuda.is_current_stream_capturing()


def make_sorters(indexed: Formula, segments: Sequence[Segments]) -> tuple[Sorter, ...]:
    """Return what sorts the entries of some sums."""
    return tuple(
        Sorter(indexed=indexed, segments=each, known=Memo(MOST_KNOWN)) for each in segments
    )


# Index tensors whose order is remembered, for each sum.
MOST_KNOWN = 8
