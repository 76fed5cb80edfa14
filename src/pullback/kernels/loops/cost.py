"""What loops cost: in vector operations, on a machine that is fully used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pullback.define.math.ranges import Ranges
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import CHUNKS, KernelText
from pullback.kernels.loops.scope import Trip
from pullback.kernels.loops.segments import Segments
from pullback.kernels.loops.target import Target

if TYPE_CHECKING:
    from pullback.kernels.loops.schedule import Schedule, ScheduleStep

# What adding to a total costs, and what reading and summing the totals does.
OVERHEAD = 2000.0
# What it costs to move 4 bytes of a tensor that is laid out anew, or an element of fewer.
MOVED = 4.0
# Totals of a kernel that a cache nearby holds.
NEAR = 2**17
# What it costs to ask for the order of some entries, and to sort one: most indices are new.
ASKED, SORTED = 20_000.0, 100.0


def estimate_cost(schedule: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Return the cost of a schedule, in vector operations of a fully used machine."""
    first, *others = schedule.steps
    moved = sum(cost_of_moving(step.kernel, sizes) for step in schedule.steps)
    moved += target.again * count_reads_again(schedule, sizes)
    moved += sum(cost_of_totals(step, sizes) for step in schedule.steps)
    moved += target.entered * sum(
        count_loops(step.kernel, sizes, target) for step in schedule.steps
    )
    nest = first.kernel.nest
    slow = target.slow_down(
        count_tasks(first.kernel, sizes, target),
        nest.vectors * (nest.rows if nest.is_stacked else 1),
        [Extents(sizes).number(row) or 0 for row in first.kernel.rows],
    )
    moved += sum(cost_of_order(each, first.kernel, sizes) for each in schedule.segments)
    return schedule.work(sizes) * slow + moved + OVERHEAD * len(others)


def cost_of_order(segments: Segments, kernel: KernelText, sizes: Mapping[str, int]) -> float:
    """Return the cost of the order of the entries of a sum."""
    extents = Extents(sizes)
    shape = segments.shape(Ranges(kernel.ranges))
    return ASKED + SORTED * math.prod(extents.number(size) or 0 for size in shape)


def count_reads_again(schedule: Schedule, sizes: Mapping[str, int]) -> float:
    """Return how often vectors of rows are read that were read before, by whichever kernel."""
    total, seen = 0.0, set[str]()
    for step in schedule.steps:
        reads = step.kernel.row_reads
        again = (read.trips for read in reads if read.is_again or read.name in seen)
        total += sum(count_turns(trips, sizes) for trips in again)
        seen |= {read.name for read in reads}
    return total


def count_tasks(kernel: KernelText, sizes: Mapping[str, int], target: Target) -> int:
    """Return how many tasks a kernel has."""
    nest, extents, ranges = kernel.nest, Extents(sizes), Ranges(kernel.ranges)

    def length(index: str, step: int = 1) -> int:
        return -(-(extents.number(ranges.size(index)) or 1) // step)

    outer = math.prod(length(i, nest.rows if i == nest.tile else 1) for i in nest.outer)
    if nest.block:
        outer *= length(str(nest.lane), nest.block)
    elif nest.shares_lanes:
        outer = length(str(nest.lane), nest.vectors * target.lanes)
    if nest.over:
        operations = count_operations(kernel, sizes)
        outer *= target.count_chunks(operations, outer, length(nest.over))
    return outer


def count_loops(kernel: KernelText, sizes: Mapping[str, int], target: Target) -> int:
    """Return how many loops of the lanes, each of which leaves a sum, a kernel has."""
    return 0 if kernel.nest.lane else count_tasks(kernel, sizes, target)


def cost_of_moving(kernel: KernelText, sizes: Mapping[str, int]) -> float:
    """Return the cost of laying tensors out as a kernel reads them."""
    extents = Extents(sizes)
    total = 0.0
    for operand in kernel.operands:
        if operand.unit is None or operand.name.startswith("~"):
            continue
        numbers = [extents.number(size) or 0 for size in kernel.dims[operand.name]]
        # A dimension of one element is in nothing's way.
        if any(number != 1 for number in numbers[operand.unit + 1 :]):
            words = 2 if operand.stored in {"double", "int64_t"} else 1
            total += MOVED * words * math.prod(numbers)
    return total


def cost_of_totals(step: ScheduleStep, sizes: Mapping[str, int]) -> float:
    """Return the cost of moving the totals of a kernel's chunks, as far as no cache holds them."""
    extents, ranges = Extents(sizes), Ranges(step.kernel.ranges)
    each = (math.prod(extents.number(ranges.size(i)) or 1 for i in t.indices) for t in step.totals)
    return MOVED * max(0, sum(each) - NEAR)


def count_operations(kernel: KernelText, sizes: Mapping[str, int]) -> float:
    """Return the vector operations of a kernel."""
    turns = {trips: count_turns(trips, sizes) for trips in {trips for _, trips in kernel.costs}}
    return sum(cost * turns[trips] for cost, trips in kernel.costs)


def count_turns(trips: Iterable[Trip], sizes: Mapping[str, int]) -> float:
    """Return how often a statement is run."""
    extents, times = Extents({**sizes, CHUNKS: 1}), 1.0
    for size, divisor in trips:
        number = extents.number(size)
        assert number is not None, size
        times *= number / divisor
    return times
