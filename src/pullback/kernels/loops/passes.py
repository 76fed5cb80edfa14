"""The loop of the lanes: blocks of whole vectors, and single vectors at the edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, MAX, Node
from pullback.kernels.loops.accumulate import (
    Accumulator,
    accumulate,
    make_accumulators,
    open_index,
    write_blocks,
    write_range,
)
from pullback.kernels.loops.scope import Scope
from pullback.kernels.loops.segments import is_segment

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter


# On a CPU a row of so many of the widest vectors has no blocks of several: with AVX2, whose vectors
# are half as wide, it takes up to 1.6 times as long with them, and a row of twice as many less.
SHORT = 4


class LanePass:
    """One run of the lanes over an index.

    Attributes:
        emitter: what writes it.
        index: what the lanes stand for.
        vectors: how many make a block.
        falls: whether smaller and smaller blocks follow, down to a vector, the last of which ends
            with the range.
        once: whether a block is all that there is.
        block: how many elements of a sum are added up at a time.
    """

    def __init__(
        self,
        emitter: Emitter,
        index: str,
        vectors: int,
        *,
        falls: bool = False,
        once: bool = False,
    ) -> None:
        self.emitter, self.index, self.vectors = emitter, index, vectors
        self.falls, self.once = falls, once
        self.block = f"block_of_sum * {vectors} * lanes"

    def written(self, main: Callable[[], None], edge: Callable[[], None]) -> str:
        """Return the loop, with `@begin` and `@end` for where it runs."""
        emitter = self.emitter
        emitter.started += 1
        run = emitter.started
        outside = emitter.variables.get(self.index)
        variable = emitter.variables[self.index] = emitter.name("l")
        if self.falls:
            text = self.falling(variable, main, edge, run)
        else:
            inner = self.scoped(main, self.vectors, run, edge=False)
            text = self.loop(variable, inner, self.scoped(edge, 1, run, edge=True))
        emitter.runs.append((len(emitter.scopes), run))
        if outside is not None:
            emitter.variables[self.index] = outside
        return text

    def falling(
        self, variable: str, main: Callable[[], None], edge: Callable[[], None], run: int
    ) -> str:
        """Return a loop of whole blocks, and what is left as the smallest block that is enough.

        Some of its vectors begin where the last one of the range does, and are computed more than
        once: another block would look up all rows again.
        """
        emitter, vectors = self.emitter, self.vectors
        step, whole = f"{vectors} * lanes", self.scoped(main, vectors, run, edge=False)
        fits = " && ".join([f"{variable} + {step} <= @end", *(f"({t})" for t in whole.tests)])
        lines = [
            f"int64_t {variable} = @begin;",
            f"for (; {fits}; {variable} += {step}) {{",
            *whole.code,
            "}",
        ]
        costs = len(emitter.costs)
        while vectors:
            block = self.scoped(main, vectors, run, edge=False, backed=self.index).code
            del emitter.costs[costs:]  # there is one of these in a row
            enough = f"{variable} + {vectors // 2} * lanes"
            lines += [f"for (; {enough} < @end; {variable} += {vectors} * lanes) {{"]
            if vectors == 1:
                lines += ["if (@end >= lanes) {"]
            for k in range(vectors // 2, vectors):
                place = f"least({variable} + {k} * lanes, @end - lanes)"
                lines += [f"[[maybe_unused]] const int64_t {variable}_{k} = {place};"]
            lines += [*block, "}" if vectors > 1 else "} else {"]
            vectors //= 2
        lines += [*self.scoped(edge, 1, run, edge=True).code, "}", "}"]
        return "\n".join(lines).replace("@last", "@end")

    def loop(self, variable: str, inner: Scope, outer: Scope) -> str:
        """Return the loop of two versions of its body."""
        step = f"{self.vectors} * lanes"
        fits = f"{variable} + {step} <= @end"
        whole = "\n".join(inner.code)
        part = "\n".join(outer.code).replace("@last", "@end")
        if self.once:
            tests = " && ".join([fits, *(f"({test})" for test in inner.tests)])
            begin = f"const int64_t {variable} = @begin;"
            return f"{begin}\nif ({tests}) {{\n{whole}\n}} else {{\n{part}\n}}"
        if not inner.tests:
            return (
                f"int64_t {variable} = @begin;\n"
                f"for (; {fits}; {variable} += {step}) {{\n{whole}\n}}\n"
                f"for (; {variable} < @end; {variable} += lanes) {{\n{part}\n}}"
            )
        tests = " && ".join([fits, *(f"({test})" for test in inner.tests)])
        return (
            f"for (int64_t {variable} = @begin; {variable} < @end;) {{\n"
            f"if ({tests}) {{\n{whole}\n{variable} += {step};\n}} else {{\n{part}\n"
            f"{variable} += lanes;\n}}\n}}"
        )

    def scoped(
        self,
        write: Callable[[], None],
        vectors: int,
        run: int,
        *,
        edge: bool,
        backed: str | None = None,
    ) -> Scope:
        """Write one version of the loop's body."""
        emitter = self.emitter
        outer = emitter.here
        trips = emitter.trips_over(emitter.ranges.size(self.index), vectors * emitter.target.lanes)
        scope = Scope(
            indices=frozenset({self.index}),
            lane=self.index,
            lane_scope=True,
            edge=edge,
            run=run,
            # An edge is there about once a row.
            trips=outer.trips if edge else trips,
        )
        before = emitter.counts.get(self.index)
        emitter.counts[self.index] = vectors
        emitter.scopes = [*emitter.scopes, scope]
        # A pass that comes to stand before this one may be over the same index.
        around, emitter.backed = emitter.backed, backed
        write()
        emitter.backed = around
        emitter.scopes = emitter.scopes[:-1]
        if before is None:
            del emitter.counts[self.index]
        else:
            emitter.counts[self.index] = before
        return scope


def lane_of(emitter: Emitter, group: Sequence[Node]) -> str:
    """Return the index of a pass over a row: that of the outputs, if it has the same range.

    One within a loop has an index of its own: nothing is kept of it, since its row is another in
    each turn.
    """
    size = group[0].size
    if emitter.bound_indices - emitter.outer:
        return open_index(emitter, size, "inner")
    for index in sorted(emitter.row_lanes):
        if emitter.ranges.size(index) == size and not any(index in n.free for n in group):
            return index
    index = open_index(emitter, size, "lane")
    if not is_segment(group[0]):
        emitter.row_lanes.add(index)
    return index


def choose_vectors(emitter: Emitter, size: Affine, most: int) -> int:
    """Return how many vectors of a row make a block: of a short row one, else most would be left.

    Args:
        emitter: what writes it.
        size: how far the row goes.
        most: vectors that there are registers for.
    """
    length, target = emitter.measure(size), emitter.target
    if length is None:
        return max(1, min(4, most))
    is_short = target.needs_neighbours and length <= SHORT * target.lanes
    return 1 if is_short else max(1, min(4, most, length // target.lanes))


def write_lanes(emitter: Emitter, group: Sequence[Node]) -> None:
    """Write a pass of the lanes over a row."""
    index = lane_of(emitter, group)
    copies = sum(len(emitter.copies(node.free)) for node in group)
    vectors = choose_vectors(emitter, group[0].size, emitter.target.chains // copies)
    if emitter.sequential and group[0] in emitter.split:
        # The part of a block of lanes has no more of them.
        vectors = 1
    run = LanePass(emitter, index, vectors)
    # A pass that comes to stand before another one of the same index.
    before = emitter.counts.get(index)
    emitter.counts[index] = vectors
    all_of = make_accumulators(emitter, group, index, with_index=True)
    ends = write_range(emitter, group[0])
    bodies = list(dict.fromkeys(a.body for a in all_of))

    def main() -> None:
        emitter.prepare(bodies)
        for a in all_of:
            place = emitter.places.index(index, a.copy)
            accumulate(emitter, a, place, "splat(true)", "see_from")

    def edge() -> None:
        emitter.prepare(bodies)
        lane = emitter.places.index(index, {})
        for a in all_of:
            if not a.copy.get(index, 0):
                counts = f"inside_lanes(0, {ends[1]} - ({lane}))"
                accumulate(emitter, a, lane, counts, "see_from")

    text = run.written(main, edge)
    write_blocks(emitter, all_of, text, ends, run.block)
    del emitter.counts[index]
    for node in group:
        for copy in emitter.copies(node.free):
            own = [
                a for a in all_of if a.node is node and {**a.copy, index: 0} == {**copy, index: 0}
            ]
            finish(emitter, node, copy, own)
    if before is not None:
        emitter.counts[index] = before


def finish(
    emitter: Emitter, node: Node, copy: Mapping[str, int], own: Sequence[Accumulator]
) -> None:
    """Write what makes one value of the lanes of some accumulators."""
    first, *others = own
    if node.op == ARGMAX:
        for other in others:
            emitter.line(f"{first.name}.join({other.name});")
        text = f"{first.name}.all()"
    elif node.op == MAX:
        text = first.name
        for other in others:
            text = f"maximum({text}, {other.name})"
        text = join_lanes(emitter, node, text)
    else:
        names = [a.name for a in own]
        while len(names) > 1:
            pairs = zip(names[::2], [*names[1::2], None], strict=False)
            names = [f"({a} + {b})" if b else a for a, b in pairs]
        text = join_lanes(emitter, node, names[0])
    cost = len(others) if node in emitter.in_lanes else 12
    emitter.here.known[emitter.key(node, copy)] = emitter.kept(text, node, cost)


def join_lanes(emitter: Emitter, node: Node, text: str) -> str:
    """Return the sum or maximum of all lanes, if these are not joined after a loop around."""
    if node in emitter.in_lanes:
        return text
    return f"{'most' if node.op == MAX else 'sum'}_of_lanes({text})"
