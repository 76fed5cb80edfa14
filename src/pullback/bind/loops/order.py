"""The order in which the entries of a scatter are added: sorted by row, once for the same index."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pullback.bind import runtime
from pullback.bind.dense import evaluate
from pullback.bind.loops import launches
from pullback.bind.memo import Memo
from pullback.define.math.block import tensor_of
from pullback.define.math.extents import evaluate_size
from pullback.define.math.formula import Formula
from pullback.define.math.node import ARGMAX, in_order, index, names_read, rename_index
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops.schedule import Schedule
from pullback.kernels.loops.segments import Segments


@dataclass(frozen=True, kw_only=True)
class Order:
    """Entries in the order of their rows.

    Attributes:
        begin: where the segment of each row begins; `end`: where it ends.
        indices: of the entries, sorted.
    """

    begin: Tensor
    end: Tensor
    indices: Sequence[Tensor]


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What was made of some tensors.

    Attributes:
        memory: of the tensors; where it is freed, this is forgotten.
        versions: how often each had been changed.
        copies: of the tensors, on a CPU: there NumPy may change them unseen.
        tensors: what was made.
    """

    memory: tuple[weakref.ref[torch.UntypedStorage], ...]
    versions: tuple[int, ...]
    copies: tuple[Tensor, ...]
    tensors: dict[str, Tensor]

    def holds(self, sources: Sequence[Tensor]) -> bool:
        """Return whether the tensors are as they were."""
        return (
            all(memory() is not None for memory in self.memory)
            and self.versions == versions_of(sources)
            and all(map(torch.equal, self.copies, sources))
        )


Shape = tuple[int, ...]
# Computes the one output of a formula by own loops; None if there are none.
Search = Callable[[Formula], Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Sorter:
    """Sorts the entries of one sum.

    Attributes:
        indexed: whose sum it is.
        segments: that it runs over.
        needed: the tensors that kernels read, with their dtypes.
        known: the orders of index tensors that are still there.
        searched: the row of each entry, where maxima decide it.
    """

    indexed: Formula
    segments: Segments
    needed: Mapping[str, torch.dtype]
    known: Memo[tuple[object, ...], Remembered]
    searched: Formula | None

    @cached_property
    def ends(self) -> tuple[str, str]:
        """The names of where a row's segment begins, and where it ends."""
        return self.segments.end("begin").name, self.segments.end("end").name

    @cached_property
    def indices(self) -> tuple[tuple[str, int, torch.dtype], ...]:
        """The indices of entries that kernels read: their names, which ones, and as what."""
        nodes = [
            (node.name, k)
            for k, (bound, _) in enumerate(self.segments.bound)
            for node in (self.segments.index_of(bound, ""), self.segments.value_of(bound, ""))
        ]
        return tuple((name, k, self.needed[name]) for name, k in nodes if name in self.needed)

    def tensors(
        self, arguments: Mapping[str, object], sizes: Mapping[str, int], search: Search
    ) -> dict[str, Tensor]:
        """Return the tensors that say what the order is."""
        if self.searched:
            # What is searched for among real numbers is new in each step of a training.
            return self.make(arguments, sizes, search(self.searched))
        nodes = self.segments.place.nodes
        given = [arguments[name] for name in names_read(nodes)]
        sources = [value for value in given if isinstance(value, Tensor)]
        # A scalar may be a part of the place. On a GPU, changes in inference mode are unseen.
        if len(sources) < len(given) or is_captured(sources) or any(map(is_unseen, sources)):
            return self.make(arguments, sizes)
        if all(source.is_cpu and source.numel() <= FEW for source in sources):
            return self.make(arguments, sizes)
        key = (*map(key_of, sources), *sizes.items())
        found = self.known.get(key)
        if found is None or not found.holds(sources):
            known = self.known

            def forget(_: object) -> None:
                known.pop(key, None)

            found = known[key] = Remembered(
                memory=tuple(weakref.ref(s.untyped_storage(), forget) for s in sources),
                versions=versions_of(sources),
                copies=tuple(source.clone() for source in sources if source.is_cpu),
                tensors=self.make(arguments, sizes),
            )
        return found.tensors

    def make(
        self,
        arguments: Mapping[str, object],
        sizes: Mapping[str, int],
        places: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Sort the entries by their rows, which are computed if they are not given."""
        segments, ranges = self.segments, Ranges(self.indexed.ranges.sizes)
        ranges.sizes |= dict(segments.bound)
        if places is None:
            env = {index: ranges.size(index) for index in (*segments.batch, *dict(segments.bound))}
            places = evaluate.compute_places(self.indexed, arguments, sizes, segments.place, env)
        shape = tuple(int(evaluate_size(extent, sizes) or 0) for extent in segments.shape(ranges))
        batch, inner = shape[: len(segments.batch)], shape[len(segments.batch) :]
        rows = int(evaluate_size(ranges.size(segments.row), sizes) or 0)
        order, (begin, end) = sort(places, batch, inner, rows), self.ends
        found = {begin: order.begin, end: order.end}
        return found | {name: order.indices[k].to(dtype) for name, k, dtype in self.indices}


def sort(places: Tensor, batch: Shape, inner: Shape, rows: int) -> Order:
    """Return the order of some entries.

    Args:
        places: the row of each; one that is outside is left out.
        batch: how far its indices run; each of its values has rows of its own.
        inner: how far those of the entries run.
        rows: how many there are.
    """
    return (sort_on_cpu if places.is_cpu else sort_by_pytorch)(places, batch, inner, rows)


def sort_by_pytorch(places: Tensor, batch: Shape, inner: Shape, rows: int) -> Order:
    """Return the order of some entries, on any device."""
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
    entries = entries % per if many > 1 else entries
    lengths = [math.prod(inner[k + 1 :]) for k in range(len(inner))]
    outer = [entries if length == 1 else entries // length for length in lengths]
    return Order(
        begin=starts[:-1].reshape(*batch, rows),
        end=starts[1:].reshape(*batch, rows),
        indices=[outer[0], *(each % size for each, size in zip(outer[1:], inner[1:], strict=True))],
    )


def sort_on_cpu(places: Tensor, batch: Shape, inner: Shape, rows: int) -> Order:
    """Return the order of some entries by the runtime, which may make calls like this one."""
    many = math.prod(batch)
    found = runtime.load().order_entries(places, many, inner, rows)
    if noting := launches.current():
        noting.sort(places, (many, *inner, rows), found)
    ends, entries = many * rows, many * math.prod(inner)
    return Order(
        begin=found.narrow(0, 0, ends).view(*batch, rows),
        end=found.narrow(0, ends, ends).view(*batch, rows),
        indices=[found.narrow(0, 2 * ends + k * entries, entries) for k in range(len(inner))],
    )


def key_of(tensor: Tensor) -> tuple[object, ...]:
    """Return what a tensor is known by while its memory is there, on one stream of a GPU."""
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None
    return (tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), stream)


def versions_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return how often tensors have been changed; in inference mode nobody counts."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in tensors)


def is_captured(tensors: Sequence[Tensor]) -> bool:
    """Return whether a graph is captured: replayed, it sorts what is in the tensors then."""
    on_gpu = any(tensor.is_cuda for tensor in tensors)
    return on_gpu and torch.cuda.is_current_stream_capturing()


def is_unseen(tensor: Tensor) -> bool:
    """Return whether a tensor may change without a trace."""
    return tensor.is_inference() and not tensor.is_cpu


def make_sorters(indexed: Formula, schedules: Sequence[Schedule]) -> tuple[Sorter, ...]:
    """Return what sorts the entries of the sums of some schedules."""
    steps = [step for schedule in schedules for step in schedule.steps]
    operands = [operand for step in steps for operand in step.kernel.operands]
    needed = {each.name: getattr(torch, each.dtype) for each in operands}
    return tuple(
        Sorter(
            indexed=indexed,
            segments=each,
            needed=needed,
            known=Memo(MOST_KNOWN),
            searched=find_search(indexed, each),
        )
        for schedule in schedules
        for each in schedule.segments
    )


def find_search(indexed: Formula, segments: Segments) -> Formula | None:
    """Return the row of each entry as a formula; None if no maximum decides it."""
    row = index(segments.place)
    if all(node.op != ARGMAX for node in in_order([row])):
        return None
    names = {old: f"entry{k}_" for k, (old, _) in enumerate(segments.bound)}
    for old, new in names.items():
        row = rename_index(row, old, new)
    place = replace(tensor_of("row", (*segments.batch, *names.values())), dtype="int64")
    line = replace(indexed.line, name=f"{indexed.line.name}_row", outputs=(place,))
    sizes = {names[old]: extent for old, extent in segments.bound}
    return Formula(line=line, elements=(row,), sizes={**indexed.sizes, **sizes})


# Index tensors whose order is remembered, for each sum. So few numbers are sorted again in the time
# that it takes to see that they are the same.
MOST_KNOWN = 8
FEW = 2**13
