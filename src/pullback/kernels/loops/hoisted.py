"""Loop-invariant code motion between kernels: what many rows share has a kernel of its own.

`y[b, c, s] = x - u[b]` with `u[b] = mean[p, q](x[b, p, q])` has one u for all c and s. A loop has
at hand what the elements of one row share; this, it would compute anew for each row. So a kernel
that comes before writes it, and those after it read it as a tensor. So they do with what outputs of
different indices have in common, as the gradients of a normalization.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pullback.define.math import node as graph
from pullback.define.math.index import Affine, at, divided, is_quotient
from pullback.define.math.node import (
    ARGMAX,
    EQUAL,
    READ,
    REDUCTIONS,
    Node,
    in_order,
    is_number,
    place_of,
    read,
    rename_index,
)
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.required import find_unguarded
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.nest import KernelSetting, Output

# What the names of the tensors begin with that hold what is shared.
SHARED = "~shared:"
# So many elements at least have in common what is worth a kernel.
LEAST = 4
# What a part computes, whatever its indices are called.
Key = tuple[object, ...]


def is_target(node: Node, output: Output) -> bool:
    """Return whether a condition says to which row a sum adds: its entries are sorted before."""
    return node.op == EQUAL and not node.free <= {*output.indices}


def repeat_whole(sums_of: Iterable[Node]) -> bool:
    """Return whether each chunk of some sums would compute another one as long, which it reads.

    In a variance that is the mean: a kernel that comes before computes it once.
    """
    return any(
        part.op in REDUCTIONS and part.size == each.size and each.bound not in part.free
        for each in sums_of
        for part in in_order(each.args)
    )


def find_quotients(node: Node, indices: Sequence[str]) -> Iterator[tuple[Node, str]]:
    """Yield the quotients of one index in a part, and that index."""
    for part in in_order([node]):
        if is_quotient(part) and len(part.free) == 1 and part.free <= {*indices}:
            yield part, next(iter(part.free))


class Hoisted:
    """Outputs, and what is computed before them.

    Attributes:
        made: what is computed before, by what it computes.
    """

    def __init__(
        self, outputs: Sequence[Output], setting: KernelSetting, *, has_rows: bool
    ) -> None:
        """Find it.

        Args:
            outputs: what is to be computed.
            setting: of their kernels.
            has_rows: whether what all elements of one row share is computed before them, too.
        """
        self.outputs, self.known, self.has_rows = outputs, setting, has_rows
        self.ranges = Ranges(setting.ranges)
        self.facts = FormulaFacts({}, ())
        self.made: dict[Key, Output] = {}
        self.keys: dict[Node, Key | None] = {}
        self.places: dict[Node, tuple[Affine, ...]] = {}  # of what blocks share
        self.levels: dict[Key, int] = {}
        self.fitting: dict[Node, bool] = {}
        self.known_parts: dict[Key, set[Key]] = {}
        for output in outputs:
            self.find_shared(output)
        while self.find_common():
            pass

    @property
    def setting(self) -> KernelSetting:
        """That of all kernels, which know of the tensors."""
        known, made = self.known, self.made.values()
        return replace(
            known,
            ranges=self.ranges.sizes,
            dtypes={**known.dtypes, **{each.name: each.dtype for each in made}},
            dims={**known.dims, **{each.name: self.dims(each.indices) for each in made}},
        )

    def groups(self) -> list[list[Output]]:
        """Return what is computed by one kernel after the other, the outputs last."""
        last = groupby(self.outputs, key=lambda output: output.indices)
        before = [self.rewrite([self.made[key] for key in own], own) for own in self.order()]
        return [*before, *(self.rewrite([*own], ()) for _, own in last)]

    def order(self) -> list[list[Key]]:
        """Return what one kernel after the other computes before the outputs."""
        found = defaultdict[tuple[int, tuple[str, ...]], list[Key]](list)
        for key, each in self.made.items():
            found[self.level(key), each.indices].append(key)
        groups = [found[each] for each in sorted(found)]
        for place in reversed(range(len(groups))):
            self.put_off(groups, place)
        return [group for group in groups if group]

    def put_off(self, groups: Sequence[list[Key]], place: int) -> None:
        """Let a kernel's parts be computed with later ones of the same indices, if that may be."""
        own = groups[place]
        for later in groups[place + 1 :]:
            if later and self.made[later[0]].indices == self.made[own[0]].indices:
                later.extend(own)
                own.clear()
                return
            if any(self.parts(key) & {*own} for key in later):
                return

    def rewrite(self, outputs: Sequence[Output], own: Sequence[Key]) -> list[Output]:
        """Return what a kernel computes, which reads what those before it have computed.

        Args:
            outputs: what it computes.
            own: which of the parts that are computed before these are.
        """

        def replaced(node: Node) -> Node | None:
            if is_target(node, outputs[0]):
                return node
            key = self.key(node)
            if key in own or key not in self.made:
                return None
            places = self.places.get(node) or map(at, self.arrange(node) or ())
            return read(self.made[key].name, places, node.type)

        nodes = [output.node for output in outputs]
        nodes = rewrite_nodes(nodes, lambda part: part, self.ranges, replaced)
        return [replace(o, node=node) for o, node in zip(outputs, nodes, strict=True)]

    def level(self, key: Key) -> int:
        """Return after how many other kernels that of a part comes, each of which it reads."""
        if key not in self.levels:
            own = self.made[key].indices
            levels = (self.level(p) + (self.made[p].indices != own) for p in self.parts(key))
            self.levels[key] = max(levels, default=0)
        return self.levels[key]

    def parts(self, key: Key) -> set[Key]:
        """Return what is computed before and a part of which it is."""
        if key not in self.known_parts:
            parts = {part for _, part in self.iter_parts(self.made[key]) if part in self.made}
            self.known_parts[key] = parts - {key}
        return self.known_parts[key]

    def find_shared(self, output: Output) -> None:
        """Find what elements of an output share, the largest such parts."""
        seen = set[tuple[Node, frozenset[str]]]()
        left = [(output.node, frozenset(output.indices))]
        while left:
            node, around = left.pop()
            if (node, around) in seen or not node.height or is_target(node, output):
                continue
            seen.add((node, around))
            if self.is_shared(node, around, output) and (key := self.key(node)):
                self.make(node, key)
                continue
            if self.lift(node, output):
                continue
            left += self.open(node, around)

    def find_common(self) -> bool:
        """Find sums that kernels have in common, the largest such; return whether there are any."""
        users = defaultdict[Key, set[tuple[str, ...]]](set)
        roots = [*self.made.values(), *self.outputs]
        for root in roots:
            for node, key in self.iter_parts(root):
                if node.op in REDUCTIONS:
                    users[key].add(root.indices)
        common = {key for key, own in users.items() if len(own) > 1} - self.made.keys()
        for root in roots if common else ():
            for node, key in self.iter_parts(root, common):
                if key in common:
                    self.make(node, key)
        return bool(common)

    def iter_parts(self, output: Output, ends: Iterable[Key] = ()) -> Iterator[tuple[Node, Key]]:
        """Yield the parts of an output that may be tensors, the larger ones first.

        Args:
            output: of which; it is no part of itself.
            ends: what is not looked into, besides what is computed before.
        """
        seen, left = set[Node](), [output.node]
        while left:
            node = left.pop()
            if node in seen or not node.height or is_target(node, output):
                continue
            seen.add(node)
            key = self.key(node)
            if key is not None and self.made.get(key) is not output:
                yield node, key
                if key in self.made or key in ends:
                    continue
            left += [part for part, _ in self.open(node, frozenset())]

    def open(self, node: Node, around: frozenset[str]) -> list[tuple[Node, frozenset[str]]]:
        """Return the operands of a node, with the indices that are around each."""
        if node.op not in REDUCTIONS:
            return [(arg, around) for arg in node.args]
        index, body = self.ranges.opened(node, alone=False)
        return [(body, around | {index})]

    def is_shared(self, node: Node, around: frozenset[str], output: Output) -> bool:
        """Return whether so many elements share a part that it is computed before them.

        Args:
            node: the part.
            around: the indices of the elements: of the output, and of the reductions that it is in.
            output: that it is a part of.
        """
        others = around - node.free
        if not self.has_rows and not others - {*output.indices[-1:]}:
            return False
        extents = Extents(self.known.typical)
        return math.prod(extents.number(self.ranges.size(i)) or 0 for i in others) >= LEAST

    def lift(self, node: Node, output: Output) -> bool:
        """Have a part computed once for each block of indices of which only the block is in it.

        `max[p < 64](x[b, 64*(n//64) + p])` is the same for 64 values of n.
        """
        names = [name for name in output.indices if name in node.free]
        if (node.type != "real" and node.op != ARGMAX) or len(names) < len(node.free):
            return False
        inner, blocks = node, dict[str, tuple[str, Node]]()
        for quotient, index in find_quotients(node, names):
            ends = self.ranges.bounds(place_of(quotient))
            if ends is not None and ends[0] == Affine(0):
                block = self.ranges.fresh(ends[1] + 1)
                other = graph.replace_term(inner, quotient, at(block), index)
                if index not in other.free:
                    inner, blocks[index] = other, (block, quotient)
        many = math.prod(divided(quotient)[1] for _, quotient in blocks.values())
        if not blocks or many < LEAST or not self.is_inside(inner):
            return False
        own = [blocks[name][0] if name in blocks else name for name in names]
        number, order = self.facts.identity(inner)
        key = number, *map(order.index, own), *self.dims(own)
        self.keys[node] = key
        self.places[node] = tuple(
            place_of(blocks[name][1]) if name in blocks else at(name) for name in names
        )
        self.make_of(inner, key, own)
        return True

    def key(self, node: Node) -> Key | None:
        """Return what a part computes; None if it cannot be a tensor."""
        if node not in self.keys:
            self.keys[node] = self.find_key(node)
        return self.keys[node]

    def find_key(self, node: Node) -> Key | None:
        """Return the same, worked out."""
        is_place = node.op == ARGMAX
        if not node.height or not (is_place or (node.type == "real" and self.is_of_tensors(node))):
            return None
        names = self.arrange(node)
        if names is None or not self.is_inside(node):
            return None
        number, order = self.facts.identity(node)
        return number, *map(order.index, names), *self.dims(names)

    def arrange(self, node: Node) -> tuple[str, ...] | None:
        """Return a part's indices as a tensor of the operator has them; None if none has them.

        Matrices that nobody gave or asked for are not put into memory.
        """
        for dims in self.known.dims.values():
            left, order = list[Affine | None](dims), list[tuple[int, str]]()
            for name in self.facts.identity(node)[1]:
                if (size := self.ranges.size(name)) in left:
                    order.append((left.index(size), name))
                    left[left.index(size)] = None
            if len(order) == len(node.free):
                return tuple(name for _, name in sorted(order))
        return None

    def is_of_tensors(self, node: Node) -> bool:
        """Return whether all that a part is made of has the indices of some tensor.

        What is between all pairs of points is computed by blocks where it can be, for all that
        needs it; but where it is greatest is one whole number a row.
        """

        def inner(part: Node) -> tuple[Node, ...]:
            return tuple(each for each, _ in self.open(part, frozenset()))

        left = in_order([node], lambda part: () if part in self.fitting else inner(part))
        for part in (each for each in left if each not in self.fitting):
            fits = self.arrange(part) is not None
            self.fitting[part] = fits and all(self.fitting[each] for each in inner(part))
        return self.fitting[node]

    def dims(self, indices: Iterable[str]) -> tuple[Affine, ...]:
        """Return how far some indices run."""
        return tuple(map(self.ranges.size, indices))

    def is_inside(self, node: Node) -> bool:
        """Return whether all that a part reads is there, whatever the conditions around it."""
        for check in find_unguarded(node):
            if check.node.op != READ:
                continue
            ranges = Ranges({**self.ranges.sizes, **dict(check.around)})
            pairs = zip(check.node.places, self.known.dims[check.node.name], strict=True)
            inside = (ranges.inside(place, size, is_loop=True) for place, size in pairs)
            if not all(is_number(guard, 1) for guard in inside):
                return False
        return True

    def make(self, node: Node, key: Key) -> None:
        """Have a part computed before; what differs in the names of its indices is one."""
        self.make_of(node, key, self.arrange(node) or ())

    def make_of(self, node: Node, key: Key, names: Sequence[str]) -> None:
        """Have it computed as a tensor of some indices."""
        if key in self.made:
            return
        indices = tuple(f"~{place}:{size}" for place, size in enumerate(self.dims(names)))
        for name, index in zip(names, indices, strict=True):
            self.ranges.sizes[index] = self.ranges.size(name)
            node = rename_index(node, name, index)
        self.made[key] = Output(
            name=f"{SHARED}{len(self.known.dims) + len(self.made)}",
            indices=indices,
            node=node,
            dtype=self.known.target.real if node.type == "real" else "int64",
        )
