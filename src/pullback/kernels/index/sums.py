"""Reductions: written out, as a loop inside of the lane's, or as a pass of the lanes over a row.

Those of one range that can be computed together share one loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pullback.define.formula import node as graph
from pullback.define.formula.index import Affine
from pullback.define.formula.node import ARGMAX, MAX, REDUCTIONS, SUM, Node
from pullback.kernels.codegen import VALUES
from pullback.kernels.index.emit import Emitter
from pullback.kernels.index.scope import Scope

# A known size up to this is written out.
MOST_WRITTEN = 16
IDENTITY = {"real": "splat(-__builtin_inf())", "int": "splat(least_whole)"}


@dataclass
class Accumulator:
    """One copy of one reduction in a loop.

    Attributes:
        node: the reduction.
        body: what is reduced, with an index that is free.
        copy: which of its copies.
        name: its variable; `part` is that of the block of a long sum.
    """

    node: Node
    body: Node
    copy: Mapping[str, int]
    name: str
    part: str

    @property
    def type(self) -> str:
        """Its type in C++."""
        body = VALUES[self.body.type]
        return f"Greatest<{body}>" if self.node.op == ARGMAX else body

    @property
    def is_blocked(self) -> bool:
        """Whether it is a sum that rounds."""
        return self.node.op == SUM and self.node.type == "real"

    def start(self, name: str) -> str:
        """Return the statement that it begins with."""
        if self.node.op == SUM:
            return f"{self.type} {name}{{}};"
        least = IDENTITY[self.body.type]
        if self.node.op == MAX:
            return f"{self.type} {name} = {least};"
        return f"{self.type} {name}{{{least}, Whole{{}} - 1}};"


def reduced(emitter: Emitter, node: Node, copy: Mapping[str, int]) -> str:
    """Return a reduction's value; the emitter is where it has to be computed."""
    if is_written(emitter, node):
        return written(emitter, node, copy)
    together(emitter, [node])
    found = emitter.found(node, copy)
    assert found is not None
    return found


def is_written(emitter: Emitter, node: Node) -> bool:
    """Return whether a reduction is written out and has no loop."""
    extent = emitter.extents.number(node.size)
    return extent is not None and extent <= MOST_WRITTEN and node.op != ARGMAX


def written(emitter: Emitter, node: Node, copy: Mapping[str, int]) -> str:
    """Write a reduction over a few known places."""
    extent = emitter.extents.number(node.size)
    assert extent is not None
    index = opened(emitter, node.size, f"w{node.height}")
    body = graph.renamed(node.args[0], node.bound, index)
    emitter.divisors.see([body], exact=node.op != SUM)
    emitter.written.add(index)
    emitter.counts[index] = extent
    total = "Real{}" if node.type == "real" else "Whole{}"
    if node.op == MAX:
        total = IDENTITY[node.type]
    for k in range(extent):
        total = joined(emitter, node, body, {**copy, index: k}, total, first=k == 0)
    return total


def joined(  # noqa: PLR0913  (one more value of a total)
    emitter: Emitter, node: Node, body: Node, copy: Mapping[str, int], total: str, *, first: bool
) -> str:
    """Return a total with one more value."""
    if node.op == MAX:
        value = emitter.value(body, copy)
        return emitter.kept(f"maximum({total}, {value})", node, 3)
    if first:
        return emitter.value(body, copy)
    return emitter.kept(added(emitter, body, copy, total), node, 1)


def added(emitter: Emitter, body: Node, copy: Mapping[str, int], total: str) -> str:
    """Return a total plus a value; where that is a product, rounded once."""
    factors = product(body)
    if factors and emitter.found(body, copy) is None:
        x, y = (emitter.value(factor, copy) for factor in factors)
        return f"multiply_add({x}, {y}, {total})"
    return f"{total} + {emitter.value(body, copy)}"


def product(node: Node) -> tuple[Node, Node] | None:
    """Return the factors of a product of real numbers."""
    if node.type != "real":
        return None
    if node.op == "powi" and node.data == 2:
        return node.args[0], node.args[0]
    return (node.args[0], node.args[1]) if node.op == "mul" else None


def prepare(emitter: Emitter, roots: Iterable[Node]) -> None:
    """Write the reductions that some values need, those that fit together in one loop."""
    groups: dict[tuple[int, int, Affine], list[Node]] = {}
    for node in needed(emitter, roots):
        if emitter.is_bound(node) and not (is_written(emitter, node) or is_there(emitter, node)):
            groups.setdefault((node.height, emitter.depth(node), node.size), []).append(node)
    for height, depth, size in sorted(groups, key=lambda key: key[:2]):
        with emitter.at_depth(depth):
            left = [n for n in groups[height, depth, size] if not is_there(emitter, n)]
            if left:
                together(emitter, left)


def is_there(emitter: Emitter, node: Node) -> bool:
    """Return whether a reduction has been computed."""
    return all(emitter.found(node, copy) is not None for copy in emitter.copies(node.free))


def needed(emitter: Emitter, roots: Iterable[Node]) -> list[Node]:
    """Return the outermost reductions in some expressions that have a loop."""

    def inner(node: Node) -> tuple[Node, ...]:
        return () if node.op in REDUCTIONS else node.args

    return [node for node in graph.in_order(roots, inner) if node.op in REDUCTIONS]


def together(emitter: Emitter, group: Sequence[Node]) -> None:
    """Write reductions of one range as one loop, at the place where the emitter is."""
    # What they need from further out comes before their loop.
    prepare(emitter, [arg for node in group for arg in outside(emitter, node)])
    if emitter.here.lane is None:
        from pullback.kernels.index import passes  # noqa: PLC0415  (it writes by this module)

        passes.in_lanes(emitter, group)
    else:
        in_loop(emitter, group)


def outside(emitter: Emitter, node: Node) -> list[Node]:
    """Return the reductions in a reduction's body that do not depend on its index."""
    inside = needed(emitter, node.args)
    return [part for part in inside if node.bound not in part.free]


def opened(emitter: Emitter, size: Affine, kind: str) -> str:
    """Return the index of all reductions of one range and kind."""
    name = f"~{kind}:{emitter.extents.text(size)}"
    emitter.ranges.sizes[name] = size
    return name


def in_loop(emitter: Emitter, group: Sequence[Node]) -> None:
    """Write a loop inside of the lane's."""
    size = group[0].size
    index = opened(emitter, size, f"loop{len(emitter.scopes)}")
    all_of = accumulators(emitter, group, index, with_index=False)
    outer = emitter.here
    scope = Scope(
        indices=frozenset({index}),
        lane=outer.lane,
        edge=outer.edge,
        run=outer.run,
        trips=(*outer.trips, (size, 1)),
    )
    # One further in, that this one is to stand before, may have an index of the same name.
    outside = emitter.variables.get(index)
    variable = emitter.variables[index] = emitter.name("i")
    emitter.scopes = [*emitter.scopes, scope]
    prepare(emitter, list(dict.fromkeys(a.body for a in all_of)))
    for a in all_of:
        accumulate(emitter, a, f"splat({variable})", "splat(true)")
    emitter.scopes = emitter.scopes[:-1]
    if outside is not None:
        emitter.variables[index] = outside
    extent = emitter.extents.text(size)
    body = "\n".join(scope.code)
    loop = f"for (int64_t {variable} = @begin; {variable} < @end; ++{variable}) {{\n{body}\n}}"
    blocked(emitter, all_of, loop, extent, "block_of_sum")
    for a in all_of:
        value = f"{a.name}.place" if a.node.op == ARGMAX else a.name
        emitter.here.known[emitter.key(a.node, a.copy)] = value


def blocked(
    emitter: Emitter, all_of: Sequence[Accumulator], loop: str, extent: str, block: str
) -> None:
    """Write a loop, by blocks where there are sums."""
    for a in all_of:
        emitter.line(a.start(a.name))
    sums = [a for a in all_of if a.is_blocked]
    if not sums:
        emitter.line(loop.replace("@begin", "0").replace("@end", extent))
        return
    begin, end = emitter.name("begin"), emitter.name("end")
    emitter.line(f"for (int64_t {begin} = 0; {begin} < {extent}; {begin} += {block}) {{")
    emitter.line(f"const int64_t {end} = least({begin} + {block}, {extent});")
    for a in sums:
        emitter.line(a.start(a.part))
    emitter.line(loop.replace("@begin", begin).replace("@end", end))
    for a in sums:
        emitter.line(f"{a.name} += {a.part};")
    emitter.line("}")


def accumulators(
    emitter: Emitter, group: Sequence[Node], index: str, *, with_index: bool
) -> list[Accumulator]:
    """Return the accumulators of a loop: of all copies of its reductions."""
    found: list[Accumulator] = []
    for node in group:
        body = graph.renamed(node.args[0], node.bound, index)
        emitter.divisors.see([body], exact=node.op != SUM)
        free = node.free | {index} if with_index else node.free
        for copy in emitter.copies(free):
            name, part = emitter.name("a"), emitter.name("a")
            found.append(Accumulator(node, body, copy, name, part))
    return found


def accumulate(emitter: Emitter, a: Accumulator, place: str, counts: str) -> None:
    """Write what one turn of a loop adds to an accumulator."""
    certain = counts == "splat(true)"
    if a.node.op == SUM:
        target = a.part if a.is_blocked else a.name
        if certain:
            emitter.line(f"{target} = {added(emitter, a.body, a.copy, target)};", 1)
        else:
            value = emitter.value(a.body, a.copy)
            none = "Real{}" if a.is_blocked else "Whole{}"
            emitter.line(f"{target} += where({counts}, {value}, {none});", 2)
        return
    value = emitter.value(a.body, a.copy)
    if a.node.op == MAX:
        if not certain:
            value = f"where({counts}, {value}, {IDENTITY[a.body.type]})"
        emitter.line(f"{a.name} = maximum({a.name}, {value});", 3)
    else:
        emitter.line(f"{a.name}.see({value}, {place}, {counts});", 6)
