"""What a call of own loops consists of, whatever its sizes: they are in it by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops.nest import CHUNKS, RING, Output
from pullback.kernels.loops.operands import Operand
from pullback.kernels.loops.schedule import ScheduleStep

if TYPE_CHECKING:
    from pullback.bind.loops.nests import Own

Extents = tuple[Affine, ...]


@dataclass(frozen=True, kw_only=True)
class TotalPlan:
    """How a kernel's totals are finished: chunks are summed, and dimensions permuted.

    Attributes:
        place: of the totals, among the tensors of the call.
        shape: of the totals, chunk by chunk.
        summed: the dimension of the chunks.
        order: the dimensions that are left, in the order of their indices.
    """

    place: int
    shape: Extents
    summed: int
    order: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class KernelPlan:
    """One kernel of a call.

    Attributes:
        step: whose call it is.
        tensors: their places in the list of a call's tensors.
        totals_read: which arguments are totals, and how they have to lie.
        written: the shapes and dtypes of what it writes; totals, which come first, are flat.
        sizes: that it takes.
        tasks: whose product is how many tasks there are for each chunk: a size, and how much of it
            a task has. If the lanes are shared that is so many vectors.
        over: how far the index runs that is cut into chunks.
        totals: what becomes of the first that it writes, if it adds up chunks.
    """

    step: ScheduleStep
    tensors: tuple[int, ...]
    totals_read: tuple[tuple[int, Operand], ...]
    written: tuple[tuple[Extents, str], ...]
    sizes: Extents
    tasks: tuple[tuple[Affine, int], ...]
    over: Affine | None
    totals: tuple[TotalPlan, ...]


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """All kernels that compute some outputs.

    The list of a call's tensors begins with its inputs; then come, kernel by kernel, what it writes
    and its totals.

    Attributes:
        inputs: the tensors that are read, as they have to lie.
        kernels: in order.
        entries: the names of sizes, and what they are the product of: how many entries the sums
            over segments have.
    """

    inputs: tuple[Operand, ...]
    kernels: tuple[KernelPlan, ...]
    entries: tuple[tuple[str, Extents], ...]


def plan_call(own: Own) -> LoopPlan:
    """Return what a call of some loops consists of."""
    made = {output.name for step in own.steps for output in step.kernel.nest.outputs}
    operands = (operand for step in own.steps for operand in step.kernel.operands)
    inputs = tuple(dict.fromkeys(each for each in operands if each.name not in made))
    places: dict[Operand | str, int] = {operand: place for place, operand in enumerate(inputs)}
    first = len(inputs)
    kernels: list[KernelPlan] = []
    for step in own.steps:
        names = [output.name for output in step.kernel.nest.outputs]
        places |= {name: first + k for k, name in enumerate(names)}
        kernels.append(_Planner(step).plan(places, first))
        first += len(names)
        # A total has the name of what it is the sum of.
        places |= {total.name: first + k for k, total in enumerate(step.totals)}
        first += len(step.totals)
    segments = [each for schedule in own.schedules for each in schedule.segments]
    return LoopPlan(
        inputs=inputs,
        kernels=tuple(kernels),
        entries=tuple(
            (str(term).strip("|"), each.shape(own.indexed.ranges))
            for each in segments
            for term, _ in each.size.terms
        ),
    )


class _Planner:
    """What a call of one kernel consists of."""

    def __init__(self, step: ScheduleStep) -> None:
        self.step, self.nest = step, step.kernel.nest
        self.ranges = Ranges(step.kernel.ranges)

    def plan(self, places: dict[Operand | str, int], first: int) -> KernelPlan:
        """Return it.

        Args:
            places: of the inputs, and of what is written and added up so far, by its name.
            first: the place of what it writes.
        """
        nest, kernel = self.nest, self.step.kernel
        own = {output.name for output in nest.outputs}
        totals = self.totals(first) if nest.over else ()
        return KernelPlan(
            step=self.step,
            tensors=tuple(places.get(o, places.get(o.name, -1)) for o in kernel.operands),
            totals_read=tuple(
                (k, each)
                for k, each in enumerate(kernel.operands)
                if each not in places and each.name not in own
            ),
            written=(
                *((total.shape, "float64") for total in totals),
                *((self.shape(o), o.dtype) for o in nest.outputs[len(totals) :]),
            ),
            sizes=tuple(size_named(name) for name in kernel.sizes),
            tasks=self.tasks(),
            over=self.size(nest.over) if nest.over else None,
            totals=totals,
        )

    def size(self, index: str) -> Affine:
        """Return how far an index of the nest runs."""
        extent = self.nest.over_size if index == self.nest.over else self.ranges.size(index)
        assert extent is not None
        return extent

    def sizes(self, indices: Sequence[str]) -> Extents:
        """Return how far some indices run."""
        return tuple(map(self.size, indices))

    def shape(self, output: Output) -> Extents:
        """Return the dimensions of an output, of which a scan may keep the last steps alone."""
        nest, kept = self.nest, None
        if output.name in nest.rings:
            kept = Affine(nest.rings[output.name])
        elif nest.checkpoints and output.name in nest.checkpoints.kept:
            kept = size_named(RING)
        time = (nest.sequential or ("", 0))[0]
        return tuple(kept if kept and i == time else self.size(i) for i in output.indices)

    def tasks(self) -> tuple[tuple[Affine, int], ...]:
        """Return what the tasks of a chunk are counted by."""
        nest = self.nest
        lanes = ((self.size(str(nest.lane)), nest.block or nest.vectors),)
        if nest.shares_lanes and not nest.block:
            return lanes
        return (lanes if nest.block else ()) + tuple(
            (self.size(i), nest.rows if i == nest.tile else 1) for i in nest.outer
        )

    def totals(self, first: int) -> tuple[TotalPlan, ...]:
        """Return how the totals of chunks are finished."""
        nest, found = self.nest, list[TotalPlan]()
        for k, total in enumerate(self.step.totals):
            small = [index for index in total.indices if index in nest.small]
            inner = [index for index in (nest.held, nest.lane) if index]
            indices = [*nest.outer, *small, *inner]
            outer, rest = map(self.sizes, (nest.outer, indices[len(nest.outer) :]))
            found.append(
                TotalPlan(
                    place=first + k,
                    shape=(*outer, size_named(CHUNKS), *rest),
                    summed=len(nest.outer),
                    order=tuple(indices.index(index) for index in total.indices),
                )
            )
        return tuple(found)


def size_named(name: str) -> Affine:
    """Return a size that calls have by this very name."""
    return Affine(0, ((f"|{name}|", 1),))
