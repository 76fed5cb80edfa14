"""Long reductions over a dimension that is split over processes: each has its part's statistics.

To the passes of `passes.py` what a process has is one more block. Its maxima and sums are merged
with those of the others by the same factors by which blocks exchange them: first the maxima, then
the sums, each multiplied by what it would have with the merged maxima in it. What is left is a
formula of complete statistics, which each process computes for its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pullback.define.dimension import Batch, Name
from pullback.define.line import Line, Scalar, Tensor
from pullback.define.math import build
from pullback.define.math.absent import drop_absent
from pullback.define.math.block import LARGEST, UNWRITTEN, regular
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH
from pullback.define.math.index import size as extent_of
from pullback.define.math.node import (
    ARGMAX,
    MAX,
    READ,
    SUM,
    Node,
    close,
    in_order,
    names_read,
    number,
    place_of,
    read,
    rename_indices,
    scalar,
)
from pullback.define.math.node import index as index_of
from pullback.define.math.passes import Statistic, Unfit
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.share import Parts, Split
from pullback.define.math.tiles import open_outputs
from pullback.define.sharding import (
    Over,
    Partial,
    Placement,
    Placements,
    RefusedSplit,
    Replicate,
    part,
)


@dataclass(frozen=True, kw_only=True)
class Wave:
    """Statistics that are merged together.

    Attributes:
        statistics: their names, each with how processes merge it.
        places: of those that are places, each with the maximum that has it: the first place of a
            process that has the greatest.
        direct: they, from complete ones.
        rescaled: those sums that depend on others of their pass, as they would be with the merged
            ones; None if there are none.
    """

    statistics: Mapping[str, Over]
    places: Mapping[str, str]
    direct: Formula
    rescaled: Formula | None

    def word(self, name: str) -> str:
        """Return what a statistic is."""
        return ARGMAX if name in self.places else self.statistics[name]


@dataclass(frozen=True, kw_only=True)
class Level:
    """One pass of each process over its part.

    Attributes:
        waves: its statistics, in the order in which they are merged.
        own: all of them, of one process's part alone; None where none depends on another.
    """

    waves: tuple[Wave, ...]
    own: Formula | None


@dataclass(frozen=True, kw_only=True)
class Merging:
    """An operator whose processes merge statistics.

    Attributes:
        levels: one after another.
        rest: the wanted outputs, from complete statistics.
        first: the scalar that is the number of a process's first element.
        every: the scalar that is how many there are in all.
        picks: whether data says which elements are read.
        inputs: what each process is given, by the name of the tensor.
    """

    levels: tuple[Level, ...]
    rest: Formula
    first: str
    every: str
    picks: bool
    inputs: Mapping[str, Placement]

    @property
    def waves(self) -> list[Wave]:
        """What is merged together, one after another."""
        return [wave for level in self.levels for wave in level.waves]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the tensors that hold statistics, of all processes and of each."""
        every = [name for wave in self.waves for name in wave.statistics]
        return frozenset((*every, *map(of_part, every)))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """What is merged, in words."""
        return tuple(
            f"{wave.word(output.name)}[{', '.join(output.labels)}]"
            for wave in self.waves
            for output in wave.direct.line.outputs
        )


@dataclass(frozen=True, kw_only=True)
class MergedPlacements(Placements):
    """A way to split an operator whose processes merge statistics on the way."""

    merging: Merging

    @property
    def note(self) -> str:
        """What is merged."""
        return ", ".join(self.merging.shown)


# How processes merge what is no sum: of places the first one is that of all.
MERGED: Mapping[str, Over] = {MAX: "max", ARGMAX: "min"}
# What takes the read of a statistic, and returns what stands for it.
Change = Callable[[Node], Node]


def of_part(name: str) -> str:
    """Return the name of a statistic of one process's part."""
    return f"part_{name}"


def merge(
    indexed: Formula, dims: Sequence[str], wanted: Sequence[bool], absent: frozenset[str]
) -> MergedPlacements:
    """Return the way to split a dimension along which processes merge statistics.

    Args:
        indexed: the operator.
        dims: the dimension, and the indices that always have its size.
        wanted: which outputs.
        absent: the tensors that are None.

    Raises:
        RefusedSplit: they could not.
        Unfit: they could not, since whole numbers are reduced.
    """
    free = FreeNames(indexed.line)
    first, every = (scalar(free.fresh(f"{word}_{dims[0]}"), "int") for word in ("first", "all"))
    split = Split(indexed=indexed, dims=tuple(dims), absent=absent, first=first, every=every)
    try:
        return _Writer(split, wanted, completes=False).placements()
    except RefusedSplit:
        return _Writer(split, wanted, completes=True).placements()


class _Writer:
    """Writes the formulas of one way to split a dimension.

    Attributes:
        statistics: all, by their names in the passes.
        tensors: what holds them.
        late: those that the last formula computes, of which processes need not have the whole.
    """

    def __init__(self, split: Split, wanted: Sequence[bool], *, completes: bool) -> None:
        self.split = split
        self.wanted = wanted
        indexed = split.indexed
        nodes = drop_absent(indexed.nodes, {*split.absent})
        self.outputs = [o for o, asked in zip(indexed.line.outputs, wanted, strict=True) if asked]
        asked = [n for n, asked in zip(nodes, wanted, strict=True) if asked]
        labels = [output.labels for output in self.outputs]
        indices, opened, self.labels = open_outputs(asked, labels, indexed.sizes)
        maker = Parts(indices, split, completes=completes)
        pairs = zip(opened, self.labels, strict=True)
        self.elements = [maker.output(node, own) for node, own in pairs]
        self.statistics = maker.statistics
        self.ranges = indices.ranges
        self.picks = maker.has_picks
        names = FreeNames(indexed.line)
        self.tensors = {own.name: self.tensor(own, names) for own in self.statistics.values()}
        every = self.statistics.values()
        inside = {name for own in every for name in names_read([own.body])}
        reads = [each for each in in_order(self.elements) if each.op == READ]
        inside |= {r.name for r in reads if all(r is not own.node for own in every)}
        self.late = {
            own.name
            for own in every
            if not completes and own.op == SUM and own.name not in inside and not own.running
        }

    def tensor(self, own: Statistic, names: FreeNames) -> Tensor:
        """Return what holds a statistic."""
        line, sizes = self.split.indexed.line, self.split.indexed.sizes
        used = {label for output in line.outputs for label in output.labels}
        known = {size: index for index, size in sizes.items() if index in used}
        known |= {extent_of(name): name for name in line.dimensions}
        indices = [index for index in own.labels if index != BATCH]
        dims = [known[size] for i in indices if (size := self.ranges.get(i)) in known]
        if own.body.type != "real" or len(set(dims)) < len(indices):
            raise Unfit
        # More would be moved than all have: a matrix of rows and columns.
        if not any({*dims} <= {*tensor.labels} for tensor in (*line.tensors, *line.outputs)):
            raise Unfit
        batch = [Batch()] if BATCH in own.labels else []
        name = names.fresh("_".join(["merged", own.op, *dims]))
        dtype = "int64" if own.op == ARGMAX else None
        return Tensor(name=name, dims=(*batch, *(Name(name=dim) for dim in dims)), dtype=dtype)

    def placements(self) -> MergedPlacements:
        """Return the way to split."""
        split, line = self.split, self.split.indexed.line
        merging = Merging(
            levels=tuple(self.levels()),
            rest=self.rest(),
            first=split.first.name,
            every=split.every.name,
            picks=self.picks,
            inputs={
                t.name: part(t, split.dims) for t in line.tensors if t.name not in split.absent
            },
        )
        placed = iter(split.follower(merging.rest).place_outputs())
        return MergedPlacements(
            split=split.dims[0],
            inputs=merging.inputs,
            outputs=tuple(next(placed) if asked else Replicate() for asked in self.wanted),
            merging=merging,
        )

    def levels(self) -> Iterator[Level]:
        """Yield the passes of each process."""
        kept = [own for own in self.statistics.values() if own.name not in self.late]
        for number_ in sorted({own.level for own in kept}):
            level = [own for own in kept if own.level == number_]
            depths: dict[str, int] = {}
            for own in level:
                depths[own.name] = max((1 + depths[name] for name in own.running), default=0)
            waves = [
                self.wave([own for own in level if depths[own.name] == depth])
                for depth in range(max(depths.values()) + 1)
            ]
            yield Level(waves=tuple(waves), own=self.of_parts(level) if len(waves) > 1 else None)

    def wave(self, statistics: Sequence[Statistic]) -> Wave:
        """Return statistics that are merged together."""
        direct = self.formula("part", [self.output(o, self.value(o, {})) for o in statistics])
        # A place is in the process that has the maximum, of the same body.
        valued = [own for own in statistics if own.op != ARGMAX]
        values = [self.output(own, self.value(own, {})) for own in valued]
        placed = self.split.follower(self.formula("part", values)).place_outputs()
        for own, placement in zip(valued, placed, strict=True):
            if placement != Partial(MERGED.get(own.op, "sum")):
                raise Unfit
        changed = [own for own in statistics if own.rates]
        names = {name: tensor.name for name, tensor in self.tensors.items()}
        return Wave(
            statistics={names[own.name]: MERGED.get(own.op, "sum") for own in statistics},
            places={names[o.name]: names[o.greatest] for o in statistics if o.greatest},
            direct=direct,
            rescaled=self.rescaled(changed) if changed else None,
        )

    def of_parts(self, statistics: Sequence[Statistic]) -> Formula:
        """Return the statistics of one process's part."""
        found: dict[str, Change] = {}
        outputs: list[tuple[Tensor, Node]] = []
        for own in statistics:
            value = self.value(own, found)
            found[own.name] = self.written(own, regular(own, value))
            outputs.append(self.output(own, value))
        return self.formula("part", outputs)

    def rescaled(self, statistics: Sequence[Statistic]) -> Formula:
        """Return sums of one process's part, as they would be with merged ones in them."""
        every = self.statistics.values()
        new = {own.name: self.regular_read(own, str) for own in every}
        old = {own.name: self.regular_read(own, of_part) for own in every}
        outputs: list[tuple[Tensor, Node]] = []
        for own in statistics:
            rate: Node | None = None
            for each in own.rates:
                change = build.apply("sub", self.replaced(each, new), self.replaced(each, old))
                rate = change if rate is None else build.apply("add", rate, change)
            assert rate is not None
            factor = build.apply("minimum", build.apply("exp", rate), number(LARGEST))
            value = build.apply("mul", self.read(own, of_part)(own.node), factor)
            outputs.append(self.output(own, value))
        return self.formula("rescaled", outputs)

    def rest(self) -> Formula:
        """Return the outputs, from complete statistics."""
        every = self.statistics
        late = {n: self.written(every[n], self.value(every[n], {})) for n in self.late}
        elements = [
            rename_indices(self.replaced(element, late), labels, output.labels)
            for element, labels, output in zip(
                self.elements, self.labels, self.outputs, strict=True
            )
        ]
        return self.formula("rest", list(zip(self.outputs, elements, strict=True)))

    # --- expressions

    def value(self, own: Statistic, inside: Mapping[str, Change]) -> Node:
        """Return a statistic of a part, with others in place of some in it."""
        value = self.replaced(own.body, inside)
        value = close(own.op, own.index, self.ranges[own.index], value) if own.index else value
        if own.op == ARGMAX:
            value = index_of(place_of(value) + place_of(self.split.first))
        return value

    def read(self, own: Statistic, named: Callable[[str], str] = str) -> Change:
        """Return what reads a statistic from its tensor."""
        name = named(self.tensors[own.name].name)
        return lambda part: read(name, part.places, part.type)

    def regular_read(self, own: Statistic, named: Callable[[str], str]) -> Change:
        """Return what reads a statistic that is not one of nothing."""
        return lambda part: regular(own, self.read(own, named)(part))

    def written(self, own: Statistic, value: Node) -> Change:
        """Return what writes a statistic out."""

        def change(part: Node) -> Node:
            if part is not own.node:
                raise Unfit
            return value

        return change

    def output(self, own: Statistic, value: Node) -> tuple[Tensor, Node]:
        """Return what holds a statistic, with its value at the indices of that."""
        tensor = self.tensors[own.name]
        return tensor, rename_indices(value, own.labels, tensor.labels)

    def replaced(self, root: Node, others: Mapping[str, Change]) -> Node:
        """Return an expression in which statistics are read from their tensors, but for some."""
        changes = {name: self.read(own) for name, own in self.statistics.items()} | dict(others)

        def known(part: Node) -> Node | None:
            is_statistic = part.op == READ and part.name in changes
            return changes[part.name](part) if is_statistic else None

        return rewrite_nodes([root], lambda part: part, Ranges(self.ranges), known)[0]

    def formula(self, word: str, outputs: Sequence[tuple[Tensor, Node]]) -> Formula:
        """Return a formula of the operator's tensors, and of the statistics in it."""
        indexed, split = self.split.indexed, self.split
        elements = [element for _, element in outputs]
        names = names_read(elements)
        known = {
            name: replace(tensor, name=name)
            for tensor in self.tensors.values()
            for name in (tensor.name, of_part(tensor.name))
        }
        numbers = [s.name for s in (split.first, split.every) if s.name in names]
        line = Line(
            namespace=indexed.line.namespace,
            name=f"_{indexed.line.name.removeprefix('_')}_{word}",
            parameters=(
                *(_required(p) for p in indexed.line.parameters if p.name not in split.absent),
                *(known[name] for name in names if name in known),
                *(Scalar(name=name, type="int") for name in numbers),
            ),
            outputs=tuple(output for output, _ in outputs),
            formula=UNWRITTEN,
            stands_for=indexed.line.called,
        )
        return replace(indexed, line=line, elements=tuple(elements), full=frozenset())


def _required(parameter: Tensor | Scalar) -> Tensor | Scalar:
    if isinstance(parameter, Tensor):
        return replace(parameter, optional=False)
    return replace(parameter, default=None)
