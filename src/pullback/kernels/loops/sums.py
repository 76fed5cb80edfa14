"""Reductions: unrolled, as a loop inside of the lane's, or as a pass of the lanes over a row.

Reductions over one range that can be computed together share a loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pullback.define.math import derived
from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, MAX, PLACED, READ, REDUCTIONS, SUM, Node
from pullback.kernels.loops import passes
from pullback.kernels.loops.accumulate import (
    IDENTITY,
    Accumulator,
    accumulate,
    make_accumulators,
    open_index,
    write_addition,
    write_blocks,
    write_range,
)
from pullback.kernels.loops.bounded import find_part
from pullback.kernels.loops.scope import Scope, Trip
from pullback.kernels.loops.segments import is_segment, split_segment

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

# A known size up to this is written out.
MOST_WRITTEN = 16
# And no more work, as many multiplications: a compiler takes seconds for a hundred exponentials.
MOST_WORK = 1024
# What lies apart is put into lanes one by one: hundreds of such vectors took minutes to compile.
APART = 16
# In a tile, where each value is read for all rows and vectors: there are no registers for more.
MOST_IN_TILE = 4


def write_reduction(emitter: Emitter, node: Node, copy: Mapping[str, int]) -> str:
    """Return a reduction's value; the emitter is where it has to be computed."""
    if is_written(emitter, node):
        return write_unrolled(emitter, node, copy)
    if emitter.held.has(node, copy):
        return emitter.held.load(node, copy)
    write_together(emitter, [node])
    found = emitter.found(node, copy)
    assert found is not None
    return found


def is_written(emitter: Emitter, node: Node) -> bool:
    """Return whether a reduction is unrolled and has no loop."""
    extent = emitter.extents.number(node.size)
    most = MOST_IN_TILE if emitter.is_tiled else MOST_WRITTEN
    if extent is None or extent > most or node.op == ARGMAX:
        return False
    if count_work(emitter, node) > MOST_WORK:
        return False
    if extent >= emitter.shortest_row and is_along(node):
        return False  # written out, each element would fill a vector
    if extent > MOST_IN_TILE and find_loops(emitter, node):
        return False  # written out, all would go through one loop: there are no registers for that
    return not (emitter.target.ahead and picks_rows(node))


def is_along(node: Node) -> bool:
    """Return whether a reduction without others in it runs along rows as they lie in memory."""
    reads = [part for part in graph.in_order(node.args) if part.op == READ]
    own = [read for read in reads if node.bound in read.free]
    return node.height == 1 and bool(own) and all(r.places[-1].index == node.bound for r in own)


def count_work(emitter: Emitter, node: Node) -> int:
    """Return the work of a reduction if it and those in it are unrolled."""
    if node not in emitter.work:
        extent, parts = emitter.extents.number(node.size) or 0, graph.in_order(node.args)
        emitter.work[node] = extent * (1 + sum(count_work_of(emitter, part) for part in parts))
    return emitter.work[node]


def count_work_of(emitter: Emitter, part: Node) -> int:
    """Return the work of a part of a reduction's value; none of one that has a loop."""
    if part.op in PLACED:
        return APART if part.op == READ and emitter.memory.is_apart(part) else 1
    if part.op not in REDUCTIONS:
        return derived.estimate_work(part)
    is_short = (emitter.extents.number(part.size) or MOST_WRITTEN + 1) <= MOST_WRITTEN
    work = count_work(emitter, part)
    return work if is_short and work <= MOST_WORK else 0


def count_written(emitter: Emitter, nodes: Iterable[Node]) -> int:
    """Return the work of the reductions of some nodes that are unrolled."""
    parts = (part for part in graph.in_order(nodes) if part.op in REDUCTIONS)
    return sum(count_work(emitter, part) for part in parts if is_written(emitter, part))


def picks_rows(node: Node) -> bool:
    """Return whether data says what is read for each value of a reduction's index.

    Only in a loop it is fetched ahead.
    """
    reads = (part for part in graph.in_order(node.args) if part.op == READ)
    return any(node.bound in part.free for read in reads for part in read.args)


def write_unrolled(emitter: Emitter, node: Node, copy: Mapping[str, int]) -> str:
    """Write a reduction over a few known places."""
    extent = emitter.extents.number(node.size)
    assert extent is not None
    index = open_index(emitter, node.size, f"w{node.height}")
    body = graph.rename_index(node.args[0], node.bound, index)
    emitter.divisors.see([body], exact=node.op != SUM)
    emitter.written.add(index)
    emitter.counts[index] = extent
    total = "Real{}" if node.type == "real" else "Whole{}"
    if node.op == MAX:
        total = IDENTITY[node.type]
    for k in range(extent):
        total = write_joined(emitter, node, body, {**copy, index: k}, total, first=k == 0)
    return total


def write_joined(  # noqa: PLR0913  (one more value of a total)
    emitter: Emitter, node: Node, body: Node, copy: Mapping[str, int], total: str, *, first: bool
) -> str:
    """Return a total with one more value."""
    if node.op == MAX:
        value = emitter.value(body, copy)
        return emitter.kept(f"maximum({total}, {value})", node, 3)
    if first:
        return emitter.value(body, copy)
    return emitter.kept(write_addition(emitter, body, copy, total), node, 1)


def prepare(emitter: Emitter, roots: Iterable[Node]) -> None:
    """Write the reductions that some values need; those that fit together share a loop."""
    groups: dict[tuple[int, int, Affine, bool], list[Node]] = {}
    for node in find_needed(emitter, roots):
        if emitter.is_bound(node) and not (is_written(emitter, node) or is_there(emitter, node)):
            key = (node.height, emitter.depth(node), node.size, node in emitter.split)
            groups.setdefault(key, []).append(node)
    for key in sorted(groups, key=lambda key: key[:2]):
        with emitter.at_depth(key[1]):
            left = [n for n in groups[key] if not is_there(emitter, n)]
            if emitter.sequential and emitter.tile:
                # Rows and vectors of one sum are as many as there are registers for.
                for node in left:
                    write_together(emitter, [node])
            elif left:
                write_together(emitter, left)


def is_there(emitter: Emitter, node: Node) -> bool:
    """Return whether a reduction has been computed."""
    return all(
        emitter.found(node, copy) is not None or emitter.held.has(node, copy)
        for copy in emitter.copies(node.free)
    )


def find_needed(emitter: Emitter, roots: Iterable[Node]) -> list[Node]:
    """Return the outermost reductions in some expressions that have a loop."""

    def inner(node: Node) -> tuple[Node, ...]:
        return () if node.op in REDUCTIONS else node.args

    return [node for node in graph.in_order(roots, inner) if node.op in REDUCTIONS]


def write_together(emitter: Emitter, group: Sequence[Node]) -> None:
    """Write reductions of one range as one loop, at the place where the emitter is."""
    # What they need from further out comes before their loop.
    prepare(emitter, [arg for node in group for arg in find_outside(emitter, node)])
    if emitter.here.lane is None and not all(
        is_apart(emitter, node) or has_rows(emitter, node) for node in group
    ):
        passes.write_lanes(emitter, group)
    else:
        write_loop(emitter, group)


def has_rows(emitter: Emitter, node: Node) -> bool:
    """Return whether what lies side by side in memory is reduced within a reduction.

    `sum[c, s](x[b, c, s])` has the lanes along s, and goes from c to c.
    """
    bounds = {part.bound for part in find_loops(emitter, node)}
    reads = [part for part in graph.in_order(node.args) if part.op == READ]
    ends = [r.places[-1].free for r in reads if node.bound in r.free and bounds & r.free]
    return bool(ends) and all(node.bound not in end and end & bounds for end in ends)


def find_loops(emitter: Emitter, node: Node) -> list[Node]:
    """Return the reductions that have a loop in each turn of another one."""
    parts = graph.in_order(node.args)
    inner = [p for p in parts if p.op in REDUCTIONS and node.bound in p.free and p.type == "real"]
    return [part for part in inner if not is_written(emitter, part)]


def is_apart(emitter: Emitter, node: Node) -> bool:
    """Return whether a sum takes one value after the other, and has nothing in its lanes.

    The entries of a segment lie apart: to put them into lanes takes longer than to compute little.
    """
    if not (is_segment(node) and emitter.target.needs_neighbours):
        return False
    parts = graph.in_order([split_segment(node)[2]])
    return sum(count_work_of(emitter, part) for part in parts) <= emitter.target.gathered


def find_outside(emitter: Emitter, node: Node) -> list[Node]:
    """Return the reductions in a reduction's body that do not depend on its index."""
    inside = find_needed(emitter, node.args)
    return [part for part in inside if node.bound not in part.free]


def write_loop(emitter: Emitter, group: Sequence[Node]) -> None:
    """Write a loop inside of the lane's."""
    size = group[0].size
    index = open_index(emitter, size, f"loop{len(emitter.scopes)}")
    all_of = make_accumulators(emitter, group, index, with_index=False)
    part = find_part(emitter, group[0]) if len(group) == 1 else None
    around, in_lanes = emitter.in_lanes, find_in_lanes(emitter, all_of)
    emitter.in_lanes = around | in_lanes
    with set_aside(emitter, index):
        loop = write_turns(emitter, all_of, index, part.trip if part else (size, 1))
    emitter.in_lanes = around
    ends = (part.begin, part.end) if part else write_range(emitter, group[0])
    write_blocks(emitter, all_of, loop, ends, "block_of_sum")
    for a in all_of:
        if a.is_held:
            emitter.held.keep(a)
            continue
        value = f"{a.name}.each()" if a.node.op == ARGMAX else a.name
        if in_lanes:
            value = emitter.kept(passes.join_lanes(emitter, a.node, value), a.node, 12)
        emitter.here.known[emitter.key(a.node, a.copy)] = value


def find_in_lanes(emitter: Emitter, all_of: Sequence[Accumulator]) -> set[Node]:
    """Return the sums of rows whose lanes are joined after a loop over the rows, if they can be.

    `sum[c](g[c]*sum[s](x[c, s]))` adds up in each lane what it has of all rows, and goes across the
    lanes once. With the sums comes what each is multiplied by.
    """
    if emitter.here.lane is not None or not all(has_rows(emitter, a.node) for a in all_of):
        return set()
    chains = [find_linear(emitter, a.node.op, a.body) for a in all_of]
    ends = {chain[-1] for chain in chains if chain}
    within = {part for node in ends for part in graph.in_order(node.args)}
    if not all(chains) or ends & within or any(a.is_held for a in all_of):
        return set()
    return {node for chain in chains for node in chain}


def find_linear(emitter: Emitter, op: str, body: Node) -> list[Node]:
    """Return what leads from a reduction's body to the sum in lanes that it is a multiple of.

    Nothing is returned where it is none, or its lanes hold the same: those of a sum of maxima do.
    """
    chain, others = [body], list[Node]()
    while chain[-1].op in ("neg", "mul", "div") and op == SUM:
        first, *rest = chain[-1].args
        if chain[-1].op == "mul" and not first.height:
            first, rest = rest[0], [first]
        chain, others = [*chain, first], [*others, *rest]
    end = chain[-1]
    if end.op != op or end.type != "real" or is_written(emitter, end) or is_apart(emitter, end):
        return []
    if any(each.height for each in others):
        return []
    is_in_lanes = not has_rows(emitter, end) or find_linear(emitter, op, end.args[0])
    return chain if is_in_lanes else []


@contextmanager
def set_aside(emitter: Emitter, index: str) -> Generator[None]:
    """Let a loop have an index whose name one further in has, too, that it is to stand before."""
    variable, turns = emitter.variables.get(index), emitter.counts.pop(index, None)
    emitter.abreast.discard(index)
    yield
    if variable is not None:
        emitter.variables[index] = variable
    if turns is not None:
        emitter.counts[index] = turns
        emitter.abreast.add(index)


def write_turns(emitter: Emitter, all_of: Sequence[Accumulator], index: str, trip: Trip) -> str:
    """Return a loop that takes several values of its index in a turn, or one.

    Args:
        emitter: where it is written.
        all_of: what it adds up.
        index: its own.
        trip: how often it runs.
    """
    variable = emitter.variables[index] = emitter.name("i")
    turns = emitter.turns if has_sums(emitter, all_of, index) else 1
    body = write_turn(emitter, all_of, index, turns, trip)
    if turns == 1:
        vectors = emitter.counts.get(str(emitter.here.lane), 1)
        head = f"for (int64_t {variable} = @begin; {variable} < @end; ++{variable})"
        return f"{emitter.target.write_unrolled(vectors, body)}{head} {{\n{body}\n}}"
    costs = len(emitter.costs)
    rest = write_turn(emitter, all_of, index, 1, trip)
    del emitter.costs[costs:]  # there are few of them
    fits = f"{variable} + {turns} <= @end; {variable} += {turns}"
    return (
        f"int64_t {variable} = @begin;\nfor (; {fits}) {{\n{body}\n}}\n"
        f"for (; {variable} < @end; ++{variable}) {{\n{rest}\n}}"
    )


def has_sums(emitter: Emitter, all_of: Sequence[Accumulator], index: str) -> bool:
    """Return whether there are sums in a loop, which share what they read if it takes turns."""
    return any(index in node.free for node in find_needed(emitter, [a.body for a in all_of]))


def write_turn(
    emitter: Emitter, all_of: Sequence[Accumulator], index: str, turns: int, trip: Trip
) -> str:
    """Write the body of a loop, which takes some values of its index one after the other."""
    outer = emitter.here
    scope = Scope(
        indices=frozenset({index}),
        lane=outer.lane,
        edge=outer.edge,
        run=outer.run,
        trips=emitter.trips_over(trip[0], trip[1] * turns),
    )
    emitter.scopes = [*emitter.scopes, scope]
    if turns > 1:
        emitter.counts[index] = turns
        emitter.abreast.add(index)
    copies = emitter.copies(frozenset({index}))
    in_registers = [a for a in all_of if not a.is_held]
    held = [a for a in all_of if a.is_held]
    needed = find_needed(emitter, [a.body for a in held])
    whole = [node for node in needed if not node.free & emitter.held.waiting]
    prepare(emitter, list(dict.fromkeys([*(a.body for a in in_registers), *whole])))
    variable = emitter.variables[index]
    for a in in_registers:
        for copy in copies:
            place = f"{variable} + {copy[index]}" if copy.get(index) else variable
            one = replace(a, copy={**a.copy, **copy})
            accumulate(emitter, one, place, "splat(true)")
    if held:
        emitter.held.accumulate(held, copies)
    if turns > 1:
        del emitter.counts[index]
        emitter.abreast.remove(index)
    emitter.scopes = emitter.scopes[:-1]
    return "\n".join(scope.code)
