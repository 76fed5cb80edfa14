"""Linear recurrences in chunks of steps, all of which are computed at once.

Where a step is linear in the states before, the last states of a chunk are a sum: what they are if
nothing comes in, and a multiple of each state that comes in, which is what that one alone makes of
itself. Neither needs another chunk. So what comes into each chunk is a recurrence over the chunks,
and with it all chunks are computed as they are written. Source: P. M. Kogge and H. S. Stone, "A
parallel algorithm for the efficient solution of a general class of recurrence equations" (1973).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.define.line import Tensor
from pullback.define.math import build, reduce, steps
from pullback.define.math.draft import FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine, at, size
from pullback.define.math.node import READ, Node, equal, is_number, number, read
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State, reads_of

# How many steps a chunk has, and how many states may come into one.
STEPS, MOST = 32, 4

# A state, and how many steps before a chunk.
Entry = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A group of states in a formula of its own.

    Attributes:
        formula: its last group.
        index: the sequential one.
    """

    formula: Formula
    index: str

    @property
    def group(self) -> Group:
        """Its states."""
        return self.formula.groups[-1]


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """A group in chunks.

    Attributes:
        index: of the chunks.
        alone: what the states are if nothing comes in, and what each that comes in makes of itself.
        ends: the parameters of `carried`: each is a state of `alone` at one step.
        carried: what there is at the end of each chunk, from these.
        whole: the group's states, of which those at the ends of chunks are parameters.
        extent: how many steps there are.
    """

    index: str
    alone: Part
    ends: Mapping[str, tuple[str, int]]
    carried: Part
    whole: Part
    extent: Affine


def cut(formula: Formula, group: Group) -> Chunks | None:
    """Return a group in chunks; None if it is not linear, or its steps are not those of an index.

    Args:
        formula: whose states the group is of.
        group: of states that are real numbers, and have the same indices.
    """
    alike = len({frozenset(state.indices) for state in group.states}) == 1
    if len(group.weights) != 1 or not alike or any(s.node.type != "real" for s in group.states):
        return None
    try:
        return _Cut(formula, group).chunks()
    except _Unlike:
        return None


class _Unlike(Exception):  # noqa: N818  (such a step is not linear)
    """Another step."""


class _Cut:
    """What the parts share.

    Attributes:
        nodes: the step of each state, which reads only states of earlier steps.
        factors: of these, for each state.
        entries: all that comes into a chunk.
    """

    def __init__(self, formula: Formula, group: Group) -> None:
        self.formula, self.group = formula, group
        ((self.time, weight),) = group.weights
        self.direction = 1 if weight > 0 else -1
        self.states = {state.name: state for state in group.states}
        written = steps.with_others(formula, group)
        self.nodes = dict(zip(self.states, written, strict=True))
        self.names = FreeNames(formula.line)
        self.names.taken.update(formula.states)
        self.chunk = self.names.fresh(f"chunk_{self.time}")
        self.step = self.names.fresh(f"step_{self.time}")
        self.sizes = {**formula.sizes, self.step: Affine(STEPS)}
        self.ranges = Ranges(self.sizes)
        self.known: dict[Node, dict[Entry, Node]] = {}
        self.factors = {name: self.split(node) for name, node in self.nodes.items()}
        depths = {
            name: max((k for own in self.factors.values() for n, k in own if n == name), default=0)
            for name in self.states
        }
        self.entries = [(n, back) for n, most in depths.items() for back in range(1, most + 1)]
        if not 0 < len(self.entries) <= MOST:
            raise _Unlike

    def chunks(self) -> Chunks:
        """Return the parts."""
        alone, ends = list[State](), dict[str, tuple[str, int]]()
        parts: dict[Entry, list[str]] = {entry: [] for entry in self.entries}
        last = STEPS - 1 if self.direction > 0 else 0
        for start in (None, *self.entries):
            made = self.alone(start)
            alone += made.values()
            for name, back in self.entries:
                part = self.names.fresh(f"{made[name].name}_{back}")
                ends[part] = made[name].name, last - (back - 1) * self.direction
                parts[name, back].append(part)
        kept = {(name, back): self.names.fresh(f"{name}_{back}") for name, back in self.entries}
        carried = [self.carried(entry, parts[entry], kept) for entry in self.entries]
        whole = [self.whole(name, kept) for name in self.states]
        given = [self.end_of(part, entry[0]) for entry in self.entries for part in parts[entry]]
        first = self.states[self.entries[0][0]]
        return Chunks(
            index=self.chunk,
            alone=self.part(alone, (), self.step),
            ends=ends,
            carried=self.part(carried, given, self.chunk),
            whole=self.part(whole, [self.end_of(kept[e], e[0]) for e in self.entries], self.step),
            extent=first.extents[first.indices.index(self.time)],
        )

    def split(self, node: Node) -> dict[Entry, Node]:
        """Return by what a sum multiplies each earlier state."""
        if node not in self.known:
            self.known[node] = self.split_anew(node)
        return self.known[node]

    def split_anew(self, node: Node) -> dict[Entry, Node]:
        """Return the same of an expression that is new."""
        if not any(True for _ in reads_of([node], self.states)):
            return {}
        if node.op == READ and node.name in self.states:
            return {self.entry_of(node): number(1.0)}
        if node.op == "where" and _is_of_nothing(*node.args):
            return self.split(node.args[2])
        return _combine(node, [self.split(each) for each in node.args])

    def entry_of(self, node: Node) -> Entry:
        """Return which state a read is of, and how many steps before."""
        shift = 0
        for index, place in zip(self.states[node.name].indices, node.places, strict=True):
            own = place - at(index)
            if own.terms or (own.constant and index != self.time):
                raise _Unlike
            shift += own.constant
        if shift * self.direction >= 0:
            raise _Unlike
        return node.name, abs(shift)

    def alone(self, start: Entry | None) -> dict[str, State]:
        """Return what states are if one comes in that is 1, and nothing else; all else if None."""
        called = {name: self.names.fresh(f"{name}_alone") for name in self.states}

        def before(name: str, back: int) -> Node:
            return self.before(
                name, called[name], back, lambda m: number(float((name, m) == start))
            )

        def value(name: str) -> Node:
            if start is None:
                return self.replaced(self.nodes[name], before)
            found = number(0.0)
            for (of, back), factor in self.factors[name].items():
                found = build.apply("add", found, build.apply("mul", factor, before(of, back)))
            return found

        return {name: self.state(name, called[name], value(name)) for name in self.states}

    def carried(self, entry: Entry, parts: Sequence[str], kept: Mapping[Entry, str]) -> State:
        """Return what there is at the end of each chunk."""
        name = entry[0]
        own = [*self.others(name), at(self.chunk)]
        back = [*self.others(name), at(self.chunk) - self.direction]
        first = at(self.chunk) if self.direction > 0 else at(self.chunk) - size(self.chunk) + 1
        found = read(parts[0], own)
        for part, each in zip(parts[1:], self.entries, strict=True):
            came = read(kept[each], back)
            # However much a chunk would make of it, nothing comes of nothing.
            is_none = build.apply("eq", came, number(0.0))
            product = build.apply("mul", read(part, own), came)
            product = build.apply("where", is_none, number(0.0), product)
            found = build.apply("add", found, product)
        node = build.apply("where", equal(first), read(parts[0], own), found)
        indices = [place.index for place in own]
        extents = [*self.extents(name), size(self.chunk)]
        return State(kept[entry], tuple(map(str, indices)), tuple(extents), node)

    def whole(self, name: str, kept: Mapping[Entry, str]) -> State:
        """Return a state of the group, chunk by chunk."""

        def came(of: str, back: int) -> Node:
            places = [*self.others(of), at(self.chunk) - self.direction]
            extents = [*self.extents(of), size(self.chunk)]
            return reduce.pad(kept[of, back], places, extents, self.ranges)

        def before(of: str, back: int) -> Node:
            return self.before(of, of, back, lambda m: came(of, m))

        return self.state(name, name, self.replaced(self.nodes[name], before))

    def before(self, of: str, called: str, back: int, outside: Callable[[int], Node]) -> Node:
        """Return a state some steps before; `outside`: what it is so many steps before a chunk."""
        place = at(self.step) - back * self.direction
        found = outside(back)
        for m in range(1, back):
            edge = place + m if self.direction > 0 else place - (STEPS - 1 + m)
            found = build.apply("where", equal(edge), outside(m), found)
        places = [*self.places(of, place), at(self.chunk)]
        inside = self.ranges.inside(place, Affine(STEPS))
        return build.apply("where", inside, read(called, places), found)

    def replaced(self, node: Node, before: Callable[[str, int], Node]) -> Node:
        """Return a step with something in place of each read of a state."""

        def known(each: Node) -> Node | None:
            if each.op != READ or each.name not in self.states:
                return None
            return before(*self.entry_of(each))

        return reduce.rewrite_nodes([node], steps.simplified, self.ranges, known)[0]

    def state(self, of: str, called: str, node: Node) -> State:
        """Return a state in chunks; beyond the last step it is 0."""
        state = self.states[of]
        place = at(self.chunk) * STEPS + at(self.step)
        extent = state.extents[state.indices.index(self.time)]
        [node] = reduce.rewrite_nodes([node], steps.simplified, self.ranges)
        node = reduce.substitute(node, {self.time: place}, self.ranges)
        # The last chunk may have fewer steps.
        is_there = self.ranges.inside(place, extent)
        node = build.apply("where", is_there, node, number(0.0))
        indices = (self.step if i == self.time else i for i in state.indices)
        own = [
            Affine(STEPS) if i == self.time else extent
            for i, extent in zip(state.indices, state.extents, strict=True)
        ]
        return State(called, (*indices, self.chunk), (*own, size(self.chunk)), node)

    def places(self, of: str, place: Affine) -> list[Affine]:
        """Return the places of a state's own indices, at a step."""
        return [place if index == self.time else at(index) for index in self.states[of].indices]

    def others(self, of: str) -> list[Affine]:
        """Return the places of its indices but that of the steps."""
        return [at(index) for index in self.states[of].indices if index != self.time]

    def extents(self, of: str) -> list[Affine]:
        """Return how far these run."""
        pairs = zip(self.states[of].indices, self.states[of].extents, strict=True)
        return [extent for index, extent in pairs if index != self.time]

    def end_of(self, name: str, of: str) -> Tensor:
        """Return the parameter that has one step of a state for each chunk."""
        indices = tuple(i for i in self.states[of].indices if i != self.time)
        extents = (*self.extents(of), size(self.chunk))
        return steps.tensor_of(State(name, (*indices, self.chunk), extents, number(0.0)), name)

    def part(self, states: Sequence[State], given: Iterable[Tensor], index: str) -> Part:
        """Return states as the last group of a formula."""
        formula, group = self.formula, Group(tuple(states), ((index, self.direction),))
        line = replace(formula.line, parameters=(*formula.line.parameters, *given))
        before = formula.groups[: formula.groups.index(self.group)]
        made = replace(formula, line=line, sizes=self.sizes, groups=(*before, group))
        return Part(formula=made, index=index)


def _is_of_nothing(condition: Node, zero: Node, product: Node) -> bool:
    """Return whether a choice is `where(x == 0, 0, f*x)`, as it is of what comes into a chunk."""
    is_zero = condition.op == "eq" and is_number(condition.args[1], 0.0) and is_number(zero, 0.0)
    return is_zero and product.op == "mul" and product.args[1] is condition.args[0]


def _combine(node: Node, parts: Sequence[dict[Entry, Node]]) -> dict[Entry, Node]:
    """Return by what a node multiplies each state, from that of its operands."""
    zero, apply = number(0.0), build.apply
    match node.op, [bool(part) for part in parts]:
        case "neg", _:
            return {e: apply("neg", f) for e, f in parts[0].items()}
        case (("add" | "sub"), _):
            first, second = parts
        case (("mul" | "div"), [True, False]):
            return {e: apply(node.op, f, node.args[1]) for e, f in parts[0].items()}
        case "mul", [False, True]:
            return {e: apply("mul", f, node.args[0]) for e, f in parts[1].items()}
        case "where", [False, *_]:
            _, first, second = parts
        case _:
            raise _Unlike
    pairs = {e: (first.get(e, zero), second.get(e, zero)) for e in first | second}
    chosen = node.args[:1] if node.op == "where" else ()
    return {e: apply(node.op, *chosen, *pair) for e, pair in pairs.items()}
