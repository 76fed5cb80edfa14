"""The accumulators of a loop: their initial values, and what one iteration adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pullback.define.math import node as graph
from pullback.define.math.index import Affine
from pullback.define.math.node import ARGMAX, MAX, SUM, Node, is_number
from pullback.kernels.loops.pointwise import VALUES
from pullback.kernels.loops.segments import is_segment, split_segment

if TYPE_CHECKING:
    from pullback.kernels.loops.emit import Emitter

# Where a chunk's part of a sum begins and ends.
BEGIN, END = "begin_of_chunk", "end_of_chunk"
# How far the rows of a chunk are apart that are side by side.
APART = "rows_apart"
IDENTITY = {"real": "splat(-__builtin_inf())", "int": "splat(least_whole)"}


@dataclass
class Accumulator:
    """One copy of one reduction in a loop.

    Attributes:
        node: the reduction.
        body: what is reduced, with an index that is free.
        copy: which of its copies.
        name: its variable; `part` is that of the block of a long sum.
        is_held: whether these are the addresses of rows in memory, one for each value of an index.
    """

    node: Node
    body: Node
    copy: Mapping[str, int]
    name: str
    part: str
    is_held: bool = False

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
        """Return the statement that initialises it."""
        if self.node.op == SUM:
            return f"{self.type} {name}{{}};"
        least = IDENTITY[self.body.type]
        if self.node.op == MAX:
            return f"{self.type} {name} = {least};"
        return f"{self.type} {name}{{{least}}};"


def open_index(emitter: Emitter, size: Affine, kind: str) -> str:
    """Return the index of all reductions of one range and kind."""
    name = f"~{kind}:{emitter.extents.text(size)}"
    emitter.ranges.sizes[name] = size
    return name


def write_range(emitter: Emitter, node: Node) -> tuple[str, str]:
    """Return where a reduction begins and ends: a chunk has a part of some sums, a row its own."""
    if node in emitter.split:
        return BEGIN, END
    if not is_segment(node):
        return "0", emitter.extents.text(node.size)
    found: list[str] = []
    for end in split_segment(node)[:2]:
        found.append(emitter.name("e"))
        emitter.line(f"const int64_t {found[-1]} = one({emitter.value(end, {})});")
    return found[0], found[1]


def write_blocks(
    emitter: Emitter,
    all_of: Sequence[Accumulator],
    loop: str,
    ends: tuple[str, str],
    block: str,
) -> None:
    """Write a loop; if it has sums, in blocks."""
    first, last = ends
    held = [a for a in all_of if a.is_held]
    in_registers = [a for a in all_of if not a.is_held]
    for a in in_registers:
        emitter.line(a.start(a.name))
    emitter.held.clear([a.name for a in held])
    sums = [a for a in in_registers if a.is_blocked]
    if not sums and not held:
        emitter.line(loop.replace("@begin", first).replace("@end", last))
        return
    begin, end = emitter.name("begin"), emitter.name("end")
    emitter.line(f"for (int64_t {begin} = {first}; {begin} < {last}; {begin} += {block}) {{")
    emitter.line(f"const int64_t {end} = least({begin} + {block}, {last});")
    for a in sums:
        emitter.line(a.start(a.part))
    emitter.held.clear([a.part for a in held])
    emitter.line(loop.replace("@begin", begin).replace("@end", end))
    for a in sums:
        emitter.line(f"{a.name} += {a.part};")
    emitter.held.add({a.name: a.part for a in held})
    emitter.line("}")


def make_accumulators(
    emitter: Emitter, group: Sequence[Node], index: str, *, with_index: bool
) -> list[Accumulator]:
    """Return the accumulators of a loop: of all copies of its reductions."""
    found: list[Accumulator] = []
    for node in group:
        whole = split_segment(node)[2] if is_segment(node) else node.args[0]
        body = graph.rename_index(whole, node.bound, index)
        emitter.divisors.see([body], exact=node.op != SUM)
        free = node.free | {index} if with_index else node.free
        is_held = emitter.held.takes(node)
        for copy in emitter.copies(free):
            name, part = emitter.name("a"), emitter.name("a")
            if is_held:
                name, part = emitter.held.open(), emitter.held.open()
            found.append(Accumulator(node, body, copy, name, part, is_held))
    return found


def accumulate(emitter: Emitter, a: Accumulator, place: str, counts: str, see: str = "see") -> None:
    """Write what one turn of a loop adds to an accumulator.

    Args:
        emitter: what writes it.
        a: the accumulator.
        place: where the turn is; of several lanes, where the first one is.
        counts: the lanes that count.
        see: what an accumulator of a place calls: "see_from" where each lane has its own.
    """
    certain = counts == "splat(true)"
    if a.node.op == SUM:
        target = a.part if a.is_blocked else a.name
        if certain:
            emitter.line(f"{target} = {write_addition(emitter, a.body, a.copy, target)};", 1)
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
        emitter.line(f"{a.name}.{see}({value}, {place}, {counts});", 6)


def write_addition(emitter: Emitter, body: Node, copy: Mapping[str, int], total: str) -> str:
    """Return a total plus a value; a product is added with one rounding."""
    guarded = split_guarded(body) if emitter.target.adds_guarded else None
    if guarded and emitter.found(body, copy) is None:
        condition, value = guarded
        counts = emitter.value(condition, copy)
        return f"where({counts}, {write_addition(emitter, value, copy, total)}, {total})"
    factors = split_product(body)
    if factors and emitter.found(body, copy) is None:
        x, y = (emitter.value(factor, copy) for factor in factors)
        return f"multiply_add({x}, {y}, {total})"
    return f"{total} + {emitter.value(body, copy)}"


def split_guarded(node: Node) -> tuple[Node, Node] | None:
    """Return the condition and the value of a real number that is 0 without the condition."""
    if node.op != "where" or node.type != "real" or not is_number(node.args[2], 0):
        return None
    return node.args[0], node.args[1]


def split_product(node: Node) -> tuple[Node, Node] | None:
    """Return the factors of a product of real numbers."""
    if node.type != "real":
        return None
    if node.op == "powi" and node.data == 2:
        return node.args[0], node.args[0]
    return (node.args[0], node.args[1]) if node.op == "mul" else None
