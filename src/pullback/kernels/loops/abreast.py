"""What is computed side by side beyond a few vectors, so that it shares what is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pullback.define.math.node import READ, REDUCTIONS, Node, in_order
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops.accumulate import APART, END
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.outputs import indices_of
from pullback.kernels.loops.sums import MOST_WRITTEN, count_written

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter
    from pullback.kernels.loops.scope import Scope

# Values that are written out side by side, at most.
MOST_COPIES = 16
# A machine may be so much emptier where each thread computes several rows.
EMPTIER = 2.0
# From so many rows on they go side by side: those beyond the last one are computed for nothing.
MANY = 512
# The same where they are added to totals alone, which are in memory.
FEWER = 64
# Tasks that are enough for several rows of a recurrence to be in each: threads beyond that have
# nothing to do, but four rows take half of the time of one after the other, and less.
ENOUGH = 4
# So many of them take a step together, if a thread has them: all of these read a part of a matrix
# from a cache nearby, where one alone would fetch it from one further away.
TOGETHER = 4
# So many rows and vectors at a time where rows are few: each matrix is read half as often.
OF_FEW = 2, 4
# Multiplications of sums that are written out, which keep a processor busy with one vector: more
# of them side by side only take long to compile.
BUSY = 64
# Vectors of a row that is written up to which they do: a longer one is work enough.
FEW = 16
# The same of rows of several tensors, and of those that no cache has, more elements than this: a
# processor foresees what is read one after the other, and of many places at once it does not. With
# totals they may be twice as long.
CACHED, FEW_FAR = 2**21, 4


def count_copies(outputs: Sequence[Output], small: Sequence[str], setting: KernelSetting) -> int:
    """Return how many values the outputs have at a place of the indices that have loops."""
    extents, ranges = Extents(setting.known), Ranges(setting.ranges)
    return sum(
        math.prod(extents.number(ranges.size(i)) or 1 for i in output.indices if i in small)
        for output in outputs
    )


def find_small(outputs: Sequence[Output], setting: KernelSetting) -> list[str]:
    """Return the indices that are written out: of so few values, and always as many."""
    extents, ranges = Extents(setting.known), Ranges(setting.ranges)
    small: list[str] = []
    for index in sorted(
        indices_of(outputs), key=lambda i: (extents.number(ranges.size(i)) or 0, i)
    ):
        number = extents.number(ranges.size(index))
        copies = math.prod(extents.number(ranges.size(i)) or 1 for i in small)
        if index in setting.rows:
            continue
        if number is not None and number <= MOST_WRITTEN and number * copies <= MOST_COPIES:
            small.append(index)
    if count_copies(outputs, small, setting) > MOST_COPIES:
        # There would be no registers for all of them, and for nothing where none shares a read.
        reads = [each for each in in_order([o.node for o in outputs]) if each.op == READ]
        small = [index for index in small if any(index not in read.free for read in reads)]
    return small


def widen(nest: Nest, setting: KernelSetting, sizes: Mapping[str, int]) -> Iterator[Nest]:
    """Yield a nest with more vectors, if it is one of sums inside of the lanes' loop.

    In each turn such a sum reads for all vectors what does not depend on the lane.
    """
    most = setting.target.abreast // count_copies(nest.outputs, nest.small, setting)
    vectors = min(4, most, count_lanes(nest, setting, sizes) // setting.target.lanes)
    nodes = list(in_order(output.node for output in nest.outputs))
    gathers = any(place.nodes for node in nodes if node.op == READ for place in node.places)
    sums = [node for node in nodes if node.op in REDUCTIONS]
    if vectors > nest.vectors and nest.rows == 1 and sums and not gathers and is_across(nest):
        yield replace(nest, vectors=vectors)


def stack(nest: Nest, setting: KernelSetting, sizes: Mapping[str, int]) -> Iterator[Nest]:
    """Yield a nest with several rows one below the other: those of a stencil overlap."""
    if not nest.outer or nest.over or nest.outer[-1] in setting.rows or not is_across(nest):
        return
    if any(output.indices[-1] != nest.lane for output in nest.outputs):
        return
    target, ranges = setting.target, Ranges(setting.ranges)
    lengths = [Extents(sizes).number(ranges.size(index)) or 1 for index in nest.outer]
    copies = count_copies(nest.outputs, nest.small, setting)
    for rows in target.stacks:
        tasks = math.prod(lengths[:-1]) * -(-lengths[-1] // rows)
        if rows * copies <= target.abreast and target.slow_down(tasks, rows, ()) <= EMPTIER:
            yield replace(nest, vectors=1, rows=rows, is_stacked=True)


def place_beside(nest: Nest, setting: KernelSetting, sizes: Mapping[str, int]) -> Nest:
    """Return a nest in which many short rows are reduced side by side.

    What goes across the lanes at the end of a row, and the logarithm or quotient after it, waits
    for the step before; meanwhile there are the other rows. Totals take the sum of all of them.
    """
    rows = setting.target.beside
    if rows == 1 or nest.rows > 1 or nest.small or nest.picks or not (nest.over or nest.outer):
        return nest
    nodes = [output.node for output in nest.outputs]
    reductions = [node for node in in_order(nodes) if node.op in REDUCTIONS]
    index, ranges = nest.over or nest.outer[-1], Ranges(setting.ranges)
    is_of_rows = bool(reductions) and not is_across(nest)
    if nest.over:
        # Each chunk has rows of its own, and no part of a sum. What is added to totals in memory is
        # the sum of all of them, whether there are reductions or not.
        is_of_rows = not reductions or is_of_rows
        is_of_rows = is_of_rows and all(nest.over in node.free for node in nodes)
    many = Extents(sizes).number(ranges.size(index)) or 1
    least = MANY if reductions else FEWER
    length = count_lanes(nest, setting, sizes)
    read = {part.name for part in in_order(nodes) if part.op == READ and index in part.free}
    if many * length > CACHED:
        is_short = length <= (2 if nest.over else 1) * FEW_FAR * setting.target.lanes
    else:
        few = FEW if len(read) <= 1 else FEW_FAR
        is_short = bool(nest.over) or length <= few * setting.target.lanes
    if not is_of_rows or index in setting.rows or many < least or not is_short:
        return nest
    return replace(nest, rows=rows, vectors=max(1, nest.vectors // rows))


def place_states(nest: Nest, sums: Sequence[Node], setting: KernelSetting) -> Nest:
    """Return the nest of a recurrence with several of its rows side by side.

    For sums over all of a state, as in the gates of a GRU, each step of each row reads whole
    matrices, which the rows of a batch share. There are as many as leave enough tasks.

    Args:
        nest: of the recurrence.
        sums: over states.
        setting: with the sizes of a call.
    """
    many = {index: setting.measure(index) for index in nest.outer}
    reads = [[part for part in in_order([each]) if part.op == READ] for each in sums]
    shared = [i for i in many if all(any(i not in r.free for r in own) for own in reads)]
    tiles = [*setting.target.tiles, OF_FEW] if setting.target.tiles else []
    for rows, vectors in tiles if sums and shared else ():
        index = max(shared, key=lambda i: many[i])
        if many[index] >= rows and math.prod(many.values()) >= rows * ENOUGH:
            outer = (*(i for i in nest.outer if i != index), index)
            together = TOGETHER if len(outer) == 1 else 1
            return replace(nest, outer=outer, rows=rows, vectors=vectors, together=together)
    return nest


def count_vectors(emitter: Emitter, nest: Nest, stage: Sequence[Output]) -> int:
    """Return how many vectors of some outputs a step computes at a time."""
    work = 0 if nest.carries else count_written(emitter, [output.node for output in stage])
    return max(1, min(nest.vectors, BUSY // max(1, work)))


def is_across(nest: Nest) -> bool:
    """Return whether no reduction is along the lanes: these would do one row after the other."""
    nodes = list(in_order(output.node for output in nest.outputs))
    return nest.lane is not None and all(
        nest.lane in node.free for node in nodes if node.op in REDUCTIONS
    )


def count_lanes(nest: Nest, setting: KernelSetting, sizes: Mapping[str, int]) -> int:
    """Return how far the lanes run in a call of some sizes."""
    if nest.lane is None:
        return 1
    return Extents(sizes).number(Ranges(setting.ranges).size(nest.lane)) or 1


def write_rows(first: str, rows: int, size: str) -> list[str]:
    """Return the statements that say which rows are computed side by side.

    The last ones are computed again where a tile is not full.
    """
    return [f"const int64_t {first}_{k} = least({first} + {k}, {size} - 1);" for k in range(rows)]


def write_versions(emitter: Emitter, nest: Nest, row: Scope, loop: str) -> str:
    """Return a loop that adds rows side by side to totals, and before it one for nearly all rows.

    For those all rows are of the chunk, and no divisor needs a power of two. No bit differs.

    Args:
        emitter: what wrote the loop.
        nest: of it.
        row: around it.
        loop: its text.
    """
    divisors, first = list(row.divisors.values()), emitter.variables[str(nest.tile)]
    tests = [
        f"{first} + {nest.rows - 1} * {APART} < {END}",
        *(f"{d}.is_in_range()" for d in divisors),
    ]
    named = ", ".join(["auto is_whole", *(f"const auto& {name}" for name in divisors)])
    fast = ", ".join(["Known<true>()", *(f"{name}.in_range()" for name in divisors)])
    every = ", ".join(["Known<false>()", *divisors])
    return (
        f"const auto run_lanes = [&]({named}) __attribute__((always_inline)) {{\n{loop}\n}};\n"
        f"if ({' && '.join(tests)}) run_lanes({fast}); else run_lanes({every});"
    )
