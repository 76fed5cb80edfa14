"""Nodes -> statements: each is written once, in the outermost loop that has all of its indices.

All values are vectors. A value that does not depend on the lane is the same in every lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from pullback.define.math import derived
from pullback.define.math.fronts import Fronts
from pullback.define.math.index import Affine, at
from pullback.define.math.node import (
    EQUAL,
    INDEX,
    INSIDE,
    NUMBER,
    READ,
    REDUCTIONS,
    SCALAR,
    Node,
    in_order,
)
from pullback.define.math.ranges import Ranges
from pullback.kernels.loops import sums
from pullback.kernels.loops.divisors import WORK, Divisors
from pullback.kernels.loops.extents import Extents
from pullback.kernels.loops.fetched import FetchedReads
from pullback.kernels.loops.held import HeldSums
from pullback.kernels.loops.memory import KernelReads
from pullback.kernels.loops.nest import KernelSetting, RowRead
from pullback.kernels.loops.operands import Operands
from pullback.kernels.loops.places import Places
from pullback.kernels.loops.pointwise import FIELDS, SCALARS, VALUES, write_call, write_literal
from pullback.kernels.loops.scope import Copy, RefusedLoops, Scope, Trip


class Emitter:
    """Writes the statements of one kernel.

    Attributes:
        scopes: the loops that are open, outermost first.
        counts: how many copies there are of what depends on an index: of one that is written out,
            its values; of the lane's, the vectors of a block; of the tile's, its rows.
        written: the indices that are written out, so that they have no loop.
        variables: what an index is called in C++.
        costs: what each statement costs, and how often it is run.
        outer: the indices of the loops around all runs of the lanes.
        row_lanes: the indices that the lanes run over outside of the inner loops.
        runs: the runs of the lanes as they come in the kernel: how deep each is, and its number.
        last_run: the number of the one that writes what a row has.
        uses: the values that may be kept for all lanes of a row, and the runs that they are in.
        buffered: those that are kept: the buffer, and which run fills it.
        reads: of the rows of a task, and the loops that read them from memory.
        row_reads: these reads, one by one.
        split: the sums of which a chunk has a part.
        backed: the lanes' index, if the second half of a block's vectors are moved back to where
            the range ends: they may have computed some elements before.
        rings: the dimension of a tensor of which only some are kept, a power of two, and one less
            than this, in C++, by its name.
        steps: of a scan the dimension of each tensor that it writes whose places are its steps.
        sequential: the index of these, and its direction.
        carried: the tensors of which a lane has its own last steps in variables: what these are
            called, and how many steps back they go.
        work: what some reductions cost if they are written out.
        shortest_row: from so many elements on, the lanes go along a row; in a kernel that has them
            elsewhere, along no row that could be written out.
        scratch: the tensors of which a lane has its own steps in an array: what that is called,
            and one less than how many steps it has, a power of two.
        fronts: of a scan whose steps are fronts.
        turns: how many values of a sum's index a turn of its loop takes, if there are sums in it.
        around: the index of the loop around all lanes if a turn fetches what a later one reads,
            and how many turns later that is.
        is_tiled: whether rows share what they read, so that it is in a cache nearby.
        abreast: the indices of loops that take several values in a turn.
        held: the sums that are held in memory.
        in_lanes: the sums of which each lane keeps its part until a loop around them has run, and
            multiples of these.
        stack: the run of the lanes in which the tile's rows are one below the other; 0 if none.
    """

    def __init__(self, setting: KernelSetting) -> None:
        self.target = setting.target
        self.extents, self.ranges = Extents(setting.known), Ranges(setting.ranges)
        self.dims, self.scalars = setting.dims, setting.scalars
        self.typical = setting.typical
        self.segments = setting.segments
        self.operands = Operands()
        self.memory = KernelReads(self, setting)
        self.places = Places(self)
        self.divisors = Divisors(self)
        self.scopes: list[Scope] = [Scope()]
        self.counts: dict[str, int] = {}
        self.written: set[str] = set()
        self.variables: dict[str, str] = {}
        self.tile: str | None = None
        self.around: tuple[str, int] | None = None
        self.costs: list[tuple[float, tuple[Trip, ...]]] = []
        self.once: dict[Node, str] = {}
        self.work: dict[Node, int] = {}
        self.uses: dict[Node, set[int]] = {}
        self.buffered: dict[Node, tuple[str, int]] = {}
        self.reads: dict[Node, list[Scope]] = {}
        self.row_reads: list[RowRead] = []
        self.runs: list[tuple[int, int]] = []
        self.started = self.last_run = 0
        self.outer: frozenset[str] = frozenset()
        self.row_lanes: set[str] = set()
        self.shortest_row = sums.MOST_WRITTEN + 1
        self.split: frozenset[Node] = frozenset()
        self.backed: str | None = None
        self.stack = 0
        self.turns = 1
        self.is_tiled = False
        self.abreast: set[str] = set()
        self.in_lanes: set[Node] = set()
        self.held = HeldSums(self)
        self.rings: dict[str, tuple[int, str]] = {}
        self.steps: dict[str, int] = {}
        self.sequential: tuple[str, int] | None = None
        self.carried: dict[str, tuple[str, int]] = {}
        self.scratch: dict[str, tuple[str, int]] = {}
        self.fronts: Fronts | None = None
        self.fetched: FetchedReads | None = None
        self._names = itertools.count()

    @property
    def here(self) -> Scope:
        """The innermost loop that is open."""
        return self.scopes[-1]

    def name(self, prefix: str = "t") -> str:
        """Return a fresh name."""
        return f"{prefix}{next(self._names)}"

    def line(self, text: str, work: float = 0) -> None:
        """Add a statement to the innermost loop, and what it costs."""
        self.here.code.append(text)
        if work:
            self.costs.append((work, self.here.trips))
        if len(self.costs) > MOST_STATEMENTS:
            raise RefusedLoops("more statements than can be compiled in a reasonable time")

    @property
    def is_stacked(self) -> bool:
        """Whether the rows of the tile are one below the other here, wherever that leads."""
        return bool(self.stack) and self.here.run == self.stack

    def depth(self, node: Node) -> int:
        """Return the outermost loop in which a node has a value."""
        left = node.free - self.written - self.held.waiting
        # What holds for all rows of a block is tested for the block.
        is_tested = self.is_stacked and self.tile in node.free and is_condition(node)
        for place, scope in enumerate(self.scopes):
            left -= scope.indices
            # A chunk's part of a sum belongs to a task, although no index says so.
            is_early = (not place and node in self.split) or (is_tested and not scope.run)
            if not left and not is_early:
                return place
        if not left:
            raise RefusedLoops("a chunk's part of a sum would be needed outside of the chunks")
        raise RefusedLoops(f"the index '{min(left)}' has no loop")

    def trips_over(self, size: Affine, step: int = 1) -> tuple[Trip, ...]:
        """Return how often a loop is run that stands here, and does `step` values in a turn.

        All segments together have each entry once.
        """
        around = list(self.here.trips)
        found = next((each for each in self.segments if each.size == size), None)
        if found is None:
            return (*around, (size, step))
        if (row := (self.ranges.size(found.row), 1)) in around:
            around.remove(row)
        *outer, last = (extent for _, extent in found.bound)
        return (*around, *((extent, 1) for extent in outer), (last, step))

    def measure(self, size: Affine) -> int | None:
        """Return a size in a call of typical sizes, where it is known."""
        return Extents({**self.typical, **self.extents.known}).number(size)

    @property
    def bound_indices(self) -> frozenset[str]:
        """The indices of the loops that are open."""
        return frozenset[str]().union(*(scope.indices for scope in self.scopes))

    def is_bound(self, node: Node) -> bool:
        """Return whether a node has a value in the loops that are open."""
        return node.free - self.written - self.held.waiting <= self.bound_indices

    @contextmanager
    def at_depth(self, depth: int) -> Generator[None]:
        """Write statements further out."""
        saved = self.scopes
        self.scopes = saved[: depth + 1]
        yield
        self.scopes = saved

    def copies(self, free: frozenset[str]) -> list[dict[str, int]]:
        """Return every copy of a value that depends on some indices."""
        own = sorted(free & self.counts.keys())
        ranges = (range(self.counts[index]) for index in own)
        return [dict(zip(own, values, strict=True)) for values in itertools.product(*ranges)]

    def key(self, node: Node, copy: Mapping[str, int]) -> tuple[Node, Copy]:
        """Return the key of one copy of a node."""
        return node, tuple((i, copy[i]) for i in sorted(node.free) if i in copy)

    def found(self, node: Node, copy: Mapping[str, int]) -> str | None:
        """Return a value that was computed before, in a loop that is still open."""
        key = self.key(node, copy)
        for scope in self.scopes[: self.depth(node) + 1]:
            if key in scope.known:
                return scope.known[key]
        return None

    def value(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return a copy of a node's value as a vector, computed here or further out."""
        known = self.found(node, copy)
        if known is not None:
            return known
        depth = self.depth(node)
        with self.at_depth(depth):
            own = {index: copy[index] for index in node.free if index in copy}
            value = self.computed(node, own)
            self.here.known.setdefault(self.key(node, own), value)
        return value

    def prepare(self, roots: Iterable[Node]) -> None:
        """Write the reductions that some values need, before the values."""
        sums.prepare(self, roots)

    def computed(self, node: Node, copy: Mapping[str, int]) -> str:
        """Write what computes a node."""
        if node.op in REDUCTIONS:
            return sums.write_reduction(self, node, copy)
        if self.is_constant(node):
            return self.kept(f"splat({self.constant(node)})", node)
        if node.op == "where" and (holds := self.places.holds(node)) is not None:
            return self.value(node.args[1 if holds else 2], copy)
        if node.op == "where" and (text := self.memory.chosen(node, copy)) is not None:
            return self.kept(text, node, 1)
        if self.kept_in_row(node):
            return self.from_row(node, copy)
        return self.plain(node, copy)

    def plain(self, node: Node, copy: Mapping[str, int]) -> str:
        """Write what computes a node that is no reduction."""
        match node.op:
            case "read":
                self.see_read(node)
                return self.kept(self.memory.read(node, copy), node, 1)
            case "index":
                return self.kept(self.places.whole(node.places[0], copy), node, 2)
            case "inside":
                return self.kept(self.places.inside(node, copy), node, 1)
            case "equal":
                return self.kept(self.places.equal(node.places[0], copy), node, 1)
            case "polygamma":
                raise RefusedLoops("polygamma")
            case "div" | "floor_divide" if text := self.divided(node, copy):
                return self.kept(text, node, WORK)
            case _:
                operands = [self.value(arg, copy) for arg in node.args]
                text = write_call(node, operands)
                if node.op in ALIKE and self.here.lane is None and node not in self.in_lanes:
                    text = f"{node.op}_alike({', '.join(operands)})"
                return self.kept(text, node, derived.estimate_work(node))

    def divided(self, node: Node, copy: Mapping[str, int]) -> str | None:
        """Return a quotient by what is known for all elements; None if it is none."""
        if node.op == "floor_divide":
            return self.places.quotient(node, copy)
        return self.divisors.quotient(node, copy) if self.divisors.takes(node) else None

    def count_back(self, node: Node) -> int | None:
        """Return how many steps back a read of a state is; None if that is no number."""
        assert self.sequential
        index, direction = self.sequential
        shift = node.places[self.steps[node.name]] - at(index)
        return None if shift.terms else -shift.constant * direction

    def in_ring(self, name: str, d: int, place: str) -> str:
        """Return where a place of a tensor lies, of which perhaps only the last steps are kept."""
        ring = self.rings.get(name)
        return f"(({place}) & {ring[1]})" if ring and ring[0] == d else place

    def kept(self, text: str, node: Node, work: float = 0) -> str:
        """Write a value into a variable, or find it there; return its name."""
        if self.is_stacked and text in self.here.written:
            return self.here.written[text]
        name = self.here.written[text] = self.name()
        self.line(f"[[maybe_unused]] const {VALUES[node.type]} {name} = {text};", work)
        return name

    def kept_in_row(self, node: Node) -> bool:
        """Return whether a value is worth keeping for the other passes over its row."""
        lane = self.here.lane
        if lane not in self.row_lanes or lane not in node.free or node.type != "real":
            return False
        if node.op == READ:
            is_worth_it = self.target.keeps_reads and self.is_of_row(node)
        else:
            is_worth_it = node.op != NUMBER and derived.estimate_work(node) >= HEAVY
        if not is_worth_it or not self.here.lane_scope:
            return False
        # Rows side by side have buffers of their own, where memory is not scarce.
        beside = {lane} if self.target.keeps_reads else {lane, self.tile}
        if any(self.counts.get(index, 1) > 1 for index in node.free - beside):
            return False
        self.uses.setdefault(node, set()).add(self.here.run)
        return node in self.buffered

    def is_of_row(self, node: Node) -> bool:
        """Return whether a read is of a row of the task's own, and not of one that all read."""
        lane = self.here.lane
        if lane not in self.row_lanes or lane not in node.free:
            return False
        return not self.outer or not self.outer.isdisjoint(node.free)

    def see_read(self, node: Node) -> None:
        """Record that a loop reads a part of a row from memory."""
        if not self.is_of_row(node) or self.here.edge:
            return
        loops = self.reads.setdefault(node, [])
        if all(loop is not self.here for loop in loops):
            loops.append(self.here)
        self.row_reads.append(RowRead(node.name, self.here.trips, is_again=len(loops) > 1))

    def from_row(self, node: Node, copy: Mapping[str, int]) -> str:
        """Load a value from its buffer, or compute and store it."""
        buffer, filler = self.buffered[node]
        lane = self.here.lane
        assert lane
        place = f"{buffer} + ({self.places.index(lane, copy)})"
        if self.tile in node.free and copy.get(self.tile or ""):
            place += f" + {copy[self.tile or '']} * {self.length_of_row(self.ranges.size(lane))}"
        if filler != self.here.run:
            return self.kept(f"load<Compute>(reinterpret_cast<const char*>({place}))", node, 1)
        name = self.plain(node, copy)
        self.line(f"store<Compute>(reinterpret_cast<char*>({place}), {name});", 1)
        return name

    def length_of_row(self, size: Affine) -> str:
        """Return how many elements the buffer of a row has, in C++."""
        return f"({self.extents.text(size)} + {self.target.spare} * lanes)"

    # What is the same for the whole call.

    def is_constant(self, node: Node) -> bool:
        """Return whether a value is made of scalars and sizes alone."""
        if node.free:
            return False
        return not any(part.op in (READ, *REDUCTIONS) for part in in_order([node]))

    def constant(self, node: Node) -> str:
        """Return such a value as a plain number, in double."""
        if node.op == NUMBER:
            return write_literal(node)
        if node not in self.once:
            with self.at_depth(0):
                self.once[node] = name = self.name("s")
                text = self.constant_text(node, {})
                self.line(f"[[maybe_unused]] const {SCALARS[node.type]} {name} = {text};")
        return self.once[node]

    def constant_text(self, node: Node, copy: Mapping[str, int]) -> str:
        """Return what computes such a value, or a condition on where a copy is."""
        if node.op == SCALAR:
            return f"call->scalars[{self.scalars[node.name]}].{FIELDS[node.type]}"
        if node.op == INDEX:
            return f"int64_t({self.places.place(node.places[0], copy)})"
        if node.op == INSIDE:
            size = self.extents.text(node.size)
            return f"pullback::index::inside({self.places.place(node.places[0], copy)}, {size})"
        if node.op == EQUAL:
            return f"({self.places.place(node.places[0], copy)}) == 0"
        return write_call(node, [self.constant(arg) for arg in node.args])


def is_condition(node: Node) -> bool:
    """Return whether a node says where something is, and no data does."""
    return node.type == "bool" and not any(part.op == READ for part in in_order([node]))


# What takes a vector several times as long as a number that is the same in all lanes.
ALIKE = ("div", "sqrt")
# From this many multiplications on, a value is kept for the other passes over its row.
HEAVY = 10
# A kernel has no more statements: small sums within sums, all written out, would have millions.
MOST_STATEMENTS = 2**13
