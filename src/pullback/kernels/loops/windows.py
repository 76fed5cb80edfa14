"""Gradients of windows, of which data says where each has its own: the window adds it there.

`sum[i](where(t == 2*i + k[i] and 0 <= t - 2*i < 3, g[i], 0))` would ask, for each t, all windows
that it is in. A loop over i has one place for each; of neighbours few have the same one, so that
they are added as they come. What other indices the output has are a task's own: so is that part of
the output, and the bits are the same for any number of threads. With such indices windows are not
needed: in the gradient of `x[n, to[n, k]]` a task adds what goes to its row, and nothing is sorted;
nor in that of `x[n, to[n, k], d]`, where a vector of the lanes of d goes to one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pullback.define.math import node as graph
from pullback.define.math import reduce
from pullback.define.math.index import Affine, at
from pullback.define.math.lower import product_of, scatter_of
from pullback.define.math.node import EQUAL, INSIDE, SUM, Node, in_order, is_number, place_of
from pullback.define.math.ranges import Ranges
from pullback.define.math.solve import solve
from pullback.define.math.term import scale, select, split_guard, term_of
from pullback.kernels.loops.hoisted import SHARED
from pullback.kernels.loops.nest import KernelSetting, Nest, Output
from pullback.kernels.loops.scatters import outside_reductions, replace_nodes


@dataclass
class Windows:
    """Outputs in which the sums over windows are tensors that are computed before them.

    Attributes:
        outputs: what is left to compute.
        setting: of all kernels.
        nests: those of the sums; of an output that is nothing but one, its own.
    """

    outputs: Sequence[Output]
    setting: KernelSetting
    nests: list[Nest] = field(default_factory=list[Nest])

    def push(self) -> None:
        """Find the sums."""
        known: dict[tuple[Node, tuple[str, ...]], Node] = {}
        left: list[Output] = []
        for output in self.outputs:
            # Kernels write outputs in their order: what comes after others is not written first.
            is_first = not left and output.dtype == self.setting.target.real
            if is_first and self.has_pushed(output):
                continue
            others: dict[Node, Node] = {}
            for node in in_order([output.node], outside_reductions):
                if node.op != SUM:
                    continue
                key = node, output.indices
                part = replace(
                    output,
                    name=f"{SHARED}{output.name}:{len(known)}",
                    node=node,
                    dtype=self.setting.target.real,
                )
                if key not in known and self.has_pushed(part):
                    known[key] = graph.read(part.name, map(at, part.indices))
                    self.see(part)
                if key in known:
                    others[node] = known[key]
            left.append(replace(output, node=replace_nodes(output.node, others)))
        self.outputs = left

    def see(self, part: Output) -> None:
        """Make what is computed before a tensor for the others."""
        dims = tuple(map(Ranges(self.setting.ranges).size, part.indices))
        self.setting = replace(
            self.setting,
            dtypes={**self.setting.dtypes, part.name: part.dtype},
            dims={**self.setting.dims, part.name: dims},
        )

    def has_pushed(self, output: Output) -> bool:
        """Return whether an output is a multiple of a sum over windows, and add its nest."""
        ranges, term = Ranges(self.setting.ranges), term_of(output.node)
        if term.conditions or term.under or [part.op for part in term.over] != [SUM]:
            return False
        found = push(output, term.over[0], term.factor, ranges)
        if found is None:
            return False
        self.nests.append(found)
        self.setting = replace(self.setting, ranges=ranges.sizes)
        return True


def push(output: Output, node: Node, factor: float, ranges: Ranges) -> Nest | None:
    """Return the loops over what a sum adds to an output; None if that is no task's own."""
    if not any(c.op in (EQUAL, INSIDE) and c.places[0].nodes for c in in_order([node])):
        return None  # as of most sums: nothing is opened for them
    product = product_of(read_in_order(node, output.indices, ranges))
    scatter = scatter_of(product, {index: ranges.size(index) for index in output.indices})
    if scatter is None or not all(place.nodes for _, place in scatter.places):
        return None
    decided = dict(scatter.places)
    own = tuple(index for index in output.indices if index in decided)
    count = output.indices.index(own[0])
    outer, inner = output.indices[:count], output.indices[count + len(own) :]
    has_windows = all(_has_window(i, product.conditions) for i in own)
    if (*outer, *own, *inner) != output.indices or not (outer or has_windows):
        return None
    bound = {old: ranges.fresh(extent) for old, extent in scatter.bound}
    others = {old: at(new) for old, new in bound.items()}
    places = {
        index: place_of(reduce.substitute(graph.index(place), others, ranges))
        for index, place in scatter.places
    }
    others |= places
    conditions, value = split_guard(scatter.at_row)
    guards = [c for c in conditions if c.op == INSIDE and not c.places[0].nodes]
    rest = [c for c in conditions if c not in guards]
    value, *rest = (reduce.substitute(each, others, ranges) for each in (value, *rest))
    moved: dict[str | Node, Affine] = {**others}
    inside = [(c.places[0].replaced(moved), c.size) for c in guards]
    inside += [(places[index], ranges.size(index)) for index in own]
    if any({*inner} & place.free for place, _ in inside):
        return None  # each lane would have a place of its own in a row that is another's too
    *entries, lane = *bound.values(), *inner
    return Nest(
        outputs=(replace(output, node=scale(factor * product.factor, select(rest, value))),),
        lane=lane,
        outer=outer,
        vectors=1,
        pushes={index: places[index] for index in own},
        guards=tuple(_require_inside(inside, ranges)),
        entries=tuple(entries),
    )


def _require_inside(
    every: Sequence[tuple[Affine, Affine]], ranges: Ranges
) -> Iterator[tuple[Affine, Affine]]:
    """Yield the places whose being inside does not follow from that of those before."""
    known: dict[str | Node, Affine] = {}
    for place, size in every:
        if is_number(ranges.inside(place.replaced(known), size, is_loop=True), 1):
            continue
        yield place, size
        if place.nodes and place == place_of(place.nodes[0]):
            known[place.nodes[0]] = at(ranges.fresh(size))


def read_in_order(node: Node, indices: Sequence[str], ranges: Ranges) -> Node:
    """Return a sum over windows as one over what has them, which is read as it lies.

    `sum[p < 3](where(0 <= h - p < m and p == k[h - p], g[h - p], 0))` says where values come from,
    and `sum[i < m](where(h - i == k[i] and 0 <= h - i < 3, g[i], 0))` where they go.
    """
    bound, conditions, value = list[tuple[str, Affine]](), list[Node](), node
    while value.op == SUM:
        index, body = ranges.opened(value)
        bound.append((index, value.size))
        own, value = split_guard(body)
        conditions += own
    for k, (index, size) in enumerate(bound):
        decides = any(c.op == EQUAL and index in c.free and c.places[0].nodes for c in conditions)
        window = next((c for c in conditions if _joins(c, index, indices)), None)
        if not decides or window is None or size.terms:
            continue
        new = ranges.fresh(window.size)
        place = solve(graph.equal(window.places[0] - at(new)), index)
        assert place
        *conditions, value = (
            reduce.substitute(each, {index: place}, ranges)
            for each in (*(c for c in conditions if c is not window), value)
        )
        conditions.append(graph.inside(place, size))
        bound[k] = new, window.size
    value = select(conditions, value)
    for index, size in reversed(bound):
        value = graph.close(SUM, index, size, value)
    return value


def _joins(condition: Node, index: str, indices: Sequence[str]) -> bool:
    """Return whether a condition says how far an index is from one of the output's."""
    if condition.op != INSIDE or condition.places[0].nodes:
        return False
    terms = condition.places[0].terms
    names = {term for term, factor in terms if abs(factor) == 1}
    return len(terms) == len(names) == 2 and index in names and bool(names & {*indices})


def _has_window(index: str, conditions: Sequence[Node]) -> bool:
    """Return whether a condition leaves an index so many values as a number says."""
    return any(
        each.op == INSIDE
        and not (each.size.terms or each.places[0].nodes)
        and abs(each.places[0].factor(index)) == 1
        for each in conditions
    )
