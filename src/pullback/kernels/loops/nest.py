"""The nest of loops of a kernel, and what it shares with other kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pullback.define.math.fronts import Fronts
from pullback.define.math.index import Affine, at
from pullback.define.math.node import REDUCTIONS, Node, in_order
from pullback.define.math.node import index as index_node
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import reads_of
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.scope import Trip
from pullback.kernels.loops.segments import Segments
from pullback.kernels.loops.target import Target


@dataclass(frozen=True, kw_only=True)
class Output:
    """One tensor that a kernel writes.

    Attributes:
        name: its own.
        indices: its dimensions.
        node: its element.
        dtype: in memory.
    """

    name: str
    indices: tuple[str, ...]
    node: Node
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Which steps are kept of states that a scan computes twice: first, and before each block.

    Attributes:
        first: how many of the outputs, from the first on, these are.
        before: how many steps before a block are kept.
        kept: of each of these outputs, the name of the one that keeps them: these are the last.
        scratch: how many steps of each of these a lane has for itself, a power of two; 0 if they
            are in memory.
        ends: of which of these the state at the last step is read afterwards.
        parts: the outputs that are sums over the lanes' index, of which each task has a part: the
            indices of tasks that they are summed over, and that of the lanes.
    """

    first: int
    before: int
    kept: Mapping[str, str]
    scratch: int = 0
    ends: frozenset[str] = frozenset()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, kw_only=True)
class Nest:
    """The loops of a kernel.

    Attributes:
        outputs: what it computes, all with the same indices but for the small ones.
        lane: the index that the lanes of a vector stand for; None if that is only in the sums.
        outer: the other indices, outermost first.
        small: indices that are written out.
        over: an outer index: each chunk of it adds up totals of its own, which are the outputs that
            lack it. They come first; others are written.
        over_size: how far that runs.
        is_split: whether `over` is the range of sums inside of the loops, of which each chunk has a
            part; else it is a loop around them.
        vectors: how many vectors of the lane are a block.
        rows: how many values of the last outer index are computed side by side; of a scan in sums
            alone.
        together: of a scan how many tasks take each step together, where a thread has as many.
        picks: whether data says which rows are read.
        is_stacked: whether these are always as many, one below the other, and share what they read.
        sequential: of a scan the index that runs in order inside of each task, and its direction.
        inner: the indices that run inside of the lanes' loop: all others of a scan; else one whose
            sums are held in memory, all through one loop.
        turns: how many values of a sum's index a turn of its loop takes, if there are sums in it.
        block: how many values of the lanes' index a task has; 0 if that follows from the others.
        rings: of a scan the outputs of which only so many steps are kept, a power of two.
        meets: of a scan whether lanes read what others have written.
        carries: of a scan whether the last states of each vector are variables.
        fronts: of a scan whose steps are fronts: which part of an index each has.
        checkpoints: of a scan that computes some states twice; its `sequential` is then that of
            the others, which run back.
        in_place: whether outputs may be what is read, so that all values of a row, and of a vector,
            are computed before any is written.
        pushes: of a task that adds each value where data says, in a part of the output that is its
            own: for the indices that have no loop, where that is.
        guards: places that have to be inside of such a size for a value to be added.
        entries: the indices that such a task goes through, but for the lanes'.
    """

    outputs: tuple[Output, ...]
    lane: str | None
    outer: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    over: str | None = None
    over_size: Affine | None = None
    is_split: bool = False
    vectors: int = 4
    rows: int = 1
    together: int = 1
    picks: bool = False
    is_stacked: bool = False
    sequential: tuple[str, int] | None = None
    inner: tuple[str, ...] = ()
    turns: int = 1
    block: int = 0
    rings: Mapping[str, int] = field(default_factory=dict[str, int])
    meets: bool = False
    carries: bool = False
    fronts: Fronts | None = None
    checkpoints: Checkpoints | None = None
    in_place: bool = False
    pushes: Mapping[str, Affine] = field(default_factory=dict[str, Affine])
    guards: tuple[tuple[Affine, Affine], ...] = ()
    entries: tuple[str, ...] = ()

    def stages(self, outputs: Iterable[Output]) -> Iterator[tuple[Output, ...]]:
        """Yield the outputs of a step that are computed together, in an order that has all there.

        Two are not if one reads, of the other's state of the same step, elements of other lanes, or
        if one is a sum of which several rows are computed side by side.
        """

        def loops_of(output: Output) -> tuple[frozenset[str], bool]:
            return frozenset(self.run_over(output)), self.has_tiles([output])

        for _, group in groupby(outputs, key=loops_of):
            stage: list[Output] = []
            for output in group:
                if self._reads_beside(output, stage):
                    yield tuple(stage)
                    stage = []
                stage.append(output)
            yield tuple(stage)

    def has_tiles(self, outputs: Iterable[Output]) -> bool:
        """Return whether several rows of some outputs of a scan are computed side by side."""
        nodes = in_order(output.node for output in outputs)
        return self.rows > 1 and any(node.op in REDUCTIONS for node in nodes)

    def _reads_beside(self, output: Output, earlier: Sequence[Output]) -> bool:
        assert self.sequential
        time, own = self.sequential[0], {other.name: other.indices for other in earlier}
        for read in reads_of([output.node], own):
            shifts = {i: p - at(i) for i, p in zip(own[read.name], read.places, strict=True)}
            step = shifts.pop(time, Affine(0))
            is_before = not step.terms and step.constant != 0
            if not is_before and any(shift != Affine(0) for shift in shifts.values()):
                return True
        return False

    def run_over(self, output: Output) -> tuple[str, ...]:
        """Return the indices whose loops an output is computed in."""
        return self.fronts.replace_in(output.indices) if self.fronts else output.indices

    def trips(self, outer: Iterable[str], ranges: Ranges) -> tuple[Trip, ...]:
        """Return how often the loops of some outer indices run."""
        rows = {self.tile: self.rows}
        return tuple((ranges.size(index), rows.get(index, 1)) for index in outer)

    @property
    def decided(self) -> list[Node]:
        """Where data says that a value is added, and what has to be inside for that."""
        places = *self.pushes.values(), *(place for place, _ in self.guards)
        return [index_node(place) for place in places]

    @property
    def shares_lanes(self) -> bool:
        """Whether a task runs over a part of the lanes' index and not over all of it."""
        if self.sequential or self.block or self.pushes:
            return self.block > 0
        return self.lane is not None and not self.outer and (self.over is None or self.is_split)

    def is_total(self, output: Output) -> bool:
        """Return whether chunks add up an output: else it is written, for each value of `over`."""
        return self.over is not None and self.over not in output.indices

    def is_of_row(self, output: Output) -> bool:
        """Return whether an output lacks the lane that others have: it is written once a row."""
        is_row = not self.sequential and self.over is None and self.lane is not None
        return is_row and not self.pushes and self.lane not in output.indices

    @property
    def falls(self) -> bool:
        """Whether what is left of a row is computed in smaller and smaller blocks.

        Each block of columns reads all its rows from where data says.
        """
        return self.picks and self.over is None and not self.shares_lanes

    @property
    def held(self) -> str | None:
        """The index whose sums are held in memory, all of them through one loop."""
        return self.inner[0] if self.inner and not self.sequential else None

    @property
    def tile(self) -> str | None:
        """The outer index, or that of chunks, of which several values are computed side by side."""
        if self.rows == 1:
            return None
        return self.over or self.outer[-1]


@dataclass(frozen=True, kw_only=True)
class KernelSetting:
    """What the kernels of one operator share.

    Attributes:
        known: sizes that they are made for.
        typical: of a call.
        ranges: of the indices.
        dtypes: of the tensors in memory.
        dims: of the tensors.
        scalars: the place of each.
        target: what runs them.
        segments: that sums run over.
        picked: the dimensions of tensors, by name and number, in which data may give a place that
            is outside.
    """

    known: Mapping[str, int]
    typical: Mapping[str, int]
    ranges: Mapping[str, Affine]
    dtypes: Mapping[str, str]
    dims: Mapping[str, tuple[Affine, ...]]
    scalars: Mapping[str, int]
    target: Target
    segments: tuple[Segments, ...] = ()
    picked: frozenset[tuple[str, int]] = frozenset()

    def measure(self, index: str) -> int:
        """Return how far an index runs in a call."""
        return Extents(self.typical).number(Ranges(self.ranges).size(index)) or 1

    @property
    def rows(self) -> frozenset[str]:
        """The indices that segments belong to: each value of theirs has a loop of its own."""
        return frozenset[str]().union(*(each.own for each in self.segments))


@dataclass(frozen=True)
class RowRead:
    """A read of a row that is a task's own.

    Attributes:
        name: of the tensor.
        trips: how often it is run.
        is_again: whether an earlier loop has read the same elements.
    """

    name: str
    trips: tuple[Trip, ...]
    is_again: bool


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """The text of one kernel, and how it is called.

    Attributes:
        nest: its loops.
        text: a function in C++; `@name` is for its name.
        operands: the tensors, in order.
        sizes: the names of the sizes that it takes, in order.
        rows: how far the lanes run of each buffer for what is kept of a row.
        passes: how many loops read the same part of a row from memory, at most.
        row_reads: each read of a row.
        costs: vector operations, and how often each is run.
        dims: how far the dimensions of the tensors run.
        ranges: how far the indices run that are no dimensions.
        notes_outside: whether it says where a place that data gives is outside.
    """

    nest: Nest
    text: str
    operands: tuple[Operand, ...]
    sizes: tuple[str, ...]
    rows: tuple[Affine, ...]
    passes: int
    row_reads: tuple[RowRead, ...]
    costs: tuple[tuple[float, tuple[Trip, ...]], ...]
    dims: Mapping[str, tuple[Affine, ...]]
    ranges: Mapping[str, Affine]
    notes_outside: bool


# The size that says how many chunks there are.
CHUNKS = "~chunks"
# The index of the steps that checkpoints keep; the sizes that say how many steps a block has, and
# how many of the last ones are in memory, a power of two.
KEPT, STEPS, RING = "~kept", "~steps", "~ring"
# The index of the blocks that the lanes' index is cut into, where each has a part of a sum.
PART = "~part"
