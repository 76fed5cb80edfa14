"""A formula in passes over blocks: the statistics of each, and the outputs from all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.define.line import Line
from pullback.define.math.block import UNWRITTEN, tensor_of
from pullback.define.math.blocks import Sweep
from pullback.define.math.formula import Formula
from pullback.define.math.node import Node
from pullback.define.math.passes import Passes, Statistic, make_passes
from pullback.define.math.tiles import Pair


@dataclass(frozen=True, kw_only=True, eq=False)
class Passing:
    """A formula in passes, with what is worked out once for all calls.

    Attributes:
        indexed: the formula.
        passes: over blocks.
        sweeps: of each pass, one for every pair of indices.
    """

    indexed: Formula
    passes: Passes
    sweeps: tuple[tuple[Sweep, ...], ...]

    @property
    def statistics(self) -> list[Statistic]:
        """The statistics that are computed."""
        return [own for sweeps in self.sweeps for sweep in sweeps for own in sweep.statistics]

    @cached_property
    def rest(self) -> Formula:
        """The outputs, from statistics."""
        line = self.indexed.line
        outputs = zip(line.outputs, self.passes.labels, strict=True)
        line = Line(
            namespace="pullback",
            name="rest",
            parameters=(
                *line.tensors,
                *(tensor_of(own.name, own.labels) for own in self.passes.statistics),
            ),
            outputs=tuple(tensor_of(output.name, labels) for output, labels in outputs),
            formula=UNWRITTEN,
        )
        return Formula(line=line, elements=self.passes.elements, sizes=self.passes.ranges)


def make_passing(
    indexed: Formula, nodes: Sequence[Node], pairs: Iterable[Pair], wanted: Sequence[bool]
) -> Passing:
    """Return a formula in passes.

    Args:
        indexed: the formula.
        nodes: its elements, without tensors that are None.
        pairs: the indices that blocks are taken of, named as by `find_tiles`.
        wanted: which outputs are computed.

    Raises:
        Unfit: as for `make_passes`.
    """
    labels = [output.labels for output in indexed.line.outputs]
    whole = make_passes(nodes, labels, indexed.sizes, pairs)
    tensors = {spec.name: spec.labels for spec in indexed.line.tensors}
    needed = whole.needed(wanted)
    levels: list[tuple[Sweep, ...]] = []
    for level in sorted({own.level for own in needed}):
        own = [each for each in needed if each.level == level]
        levels.append(
            tuple(
                Sweep(whole, [each for each in own if each.pair == pair], tensors, settled=False)
                for pair in dict.fromkeys(each.pair for each in own)
            )
        )
    return Passing(indexed=indexed, passes=whole, sweeps=tuple(levels))
