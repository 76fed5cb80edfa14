"""The indices of a formula as it is read: what a name between brackets is, and how far it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pullback.define.math import node, reduce
from pullback.define.math.facts import Fact
from pullback.define.math.index import BATCH, Affine, at, is_fixed, is_quotient, is_size
from pullback.define.math.node import INDEX, READ, REDUCTIONS, Node, Type
from pullback.define.math.ranges import Ranges
from pullback.diagnostic import PullbackError, Rule

if TYPE_CHECKING:
    from pullback.define.math.boundaries import ReadState

WrongSubscripts = Rule("PB143", "wrong-subscripts")
NotAffine = Rule("PB144", "not-affine")
UnknownIndex = Rule("PB145", "unknown-index")
TakenIndex = Rule("PB146", "taken-index")
UnreadIndex = Rule("PB150", "unread-index")


@dataclass(eq=False)
class Index:
    """An index of an output or a reduction, or the parameter of a name.

    Attributes:
        name: as it is written.
        key: as nodes have it; of an output's, its label.
        extent: how far it runs; None until that is inferred.
        at: what binds it, `sum[i, j](...)` or `y[i] = ...`, for messages.
        limit: where its limit is written: the statement and the columns of `k < 5`.
    """

    name: str
    key: str
    extent: Affine | None
    at: str
    limit: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Access:
    """One index of a read: `place` has to be in `[0, extent)`.

    Attributes:
        shown: the read as it is written.
        name: of the tensor.
        place: where it reads; `extent`: how far it may.
        weak: whether it is under `where` or `pad`, so that it need not bound its indices.
    """

    shown: str
    name: str
    place: Affine
    extent: Affine
    weak: bool


# Reads by their place, its extent, and the sums of indices that are not negative where they are.
Open = dict[tuple[Affine, Affine, tuple[Fact, ...]], Access]


@dataclass(eq=False)
class NamedValue:
    """A name with a value: an output or a part of the formula.

    Attributes:
        name: the name.
        parameters: the indices that its value depends on.
        node: its value at them.
        open: its reads that have to be checked where it is used.
        moved: its value at other indices.
    """

    name: str
    parameters: list[Index]
    node: Node
    open: Open = field(default_factory=Open)
    moved: dict[tuple[Affine, ...], Node] = field(default_factory=dict[tuple[Affine, ...], Node])

    def at(self, places: tuple[Affine, ...], ranges: Ranges) -> Node:
        """Return the value at other indices."""
        if places not in self.moved:
            keys = (parameter.key for parameter in self.parameters)
            self.moved[places] = move_indices(
                self.node, dict(zip(keys, places, strict=True)), ranges
            )
        return self.moved[places]


@dataclass(frozen=True, eq=False)
class Statement:
    """`name[i, j] = value`, or values of all outputs.

    Attributes:
        text: as it is written.
        tree: of Python's grammar.
        name: what gets the value; None if that is not said.
        subscripts: between brackets; None if there are none.
        values: what is after the `=`.
        taken: names that are no index: of scalars.
    """

    text: str
    tree: ast.stmt
    name: str | None
    subscripts: list[ast.expr] | None
    values: list[ast.expr]
    taken: frozenset[str] = frozenset()

    @property
    def is_boundary(self) -> bool:
        """Whether it says what a state is outside of its own places: `h[-1, d] = h0[d]`."""
        return any(_is_outside(tree, self.taken) for tree in self.subscripts or ())

    def walk(self) -> Iterator[ast.AST]:
        """Yield every part of what is after the `=`."""
        return (part for value in self.values for part in ast.walk(value))

    def reads_elsewhere(self) -> Iterator[str]:
        """Yield the names that it reads at more than indices alone: `h[t - 1]`."""
        for part in self.walk():
            match part:
                case ast.Subscript(value=ast.Name(id=name), slice=inside):
                    if not all(
                        isinstance(each, ast.Name) or is_batch(each) for each in elements(inside)
                    ):
                        yield name
                case _:
                    pass

    def defines(self, outputs: Iterable[str]) -> list[str]:
        """Return the names that get a value."""
        return list(outputs) if self.name is None else [self.name]


def _is_outside(tree: ast.expr, taken: frozenset[str]) -> bool:
    """Return whether a subscript before the `=` binds no index: -1, size(t), steps, `t < 0`."""
    match tree:
        case ast.Compare(ops=[ast.Lt()], comparators=[ast.Constant(value=0)]):
            return True
        case ast.Compare(ops=[ast.GtE()]) | ast.UnaryOp() | ast.BinOp():
            return True
        case ast.Call(func=ast.Name(id="size")):
            return True
        case ast.Name(id=name):
            return name in taken
        case _:
            return isinstance(tree, ast.Constant) and type(tree.value) is int


Scope = Mapping[str, Index]


@dataclass
class FormulaProgram:
    """What all statements of one formula share.

    The statements are read twice: first with unknown ranges, to see what is read where, then with
    the ranges that follow from it.

    Attributes:
        of: whose formula it is, for messages.
        text: the formula.
        outputs: what it has to define, each with its indices.
        names: its tensors, read at their own indices, and its scalars.
        labels: the indices of each tensor.
        declared: how far the dimensions of inputs run.
        results: the indices of the outputs, by label.
        trusted: whether reads under `where` are not checked to stay inside.
        ranges: of all indices, as far as they are known.
        types: of the outputs' elements.
        definitions: what has a value so far.
        states: what is read before it has a value.
        accesses: what has been read so far.
        bound: the indices that something binds, by the tree that does.
        known: whether the ranges are known: in the second reading.
        pointwise: whether no index has been read so far: names stand for elements.
        meant: the errors if one is read: names that are indices and something else too.
    """

    of: str
    text: str
    outputs: dict[str, tuple[str, ...]]
    names: dict[str, Node]
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    declared: dict[str, Affine] = field(default_factory=dict[str, Affine])
    results: dict[str, Index] = field(default_factory=dict[str, Index])
    trusted: bool = False
    ranges: Ranges = field(default_factory=Ranges)
    types: dict[str, Type] = field(default_factory=dict[str, Type])
    definitions: dict[str, NamedValue] = field(default_factory=dict[str, NamedValue])
    states: dict[str, ReadState] = field(default_factory=dict[str, "ReadState"])
    accesses: list[Access] = field(default_factory=list[Access])
    bound: dict[tuple[int, str], Index] = field(default_factory=dict[tuple[int, str], Index])
    known: bool = False
    pointwise: bool = True
    meant: list[PullbackError] = field(default_factory=list[PullbackError])

    @property
    def indices(self) -> list[Index]:
        """Every index: the outputs' first."""
        return [*self.results.values(), *self.bound.values()]

    def index(self, tree: ast.AST, name: str, shown: str, extent: Affine | None) -> Index:
        """Return the index that a tree binds; the second reading finds the one of the first."""
        key = (id(tree), name)
        if key not in self.bound:
            known = extent or self.declared.get(name)
            self.bound[key] = Index(name, f"@{len(self.bound)}", known, shown)
        return self.bound[key]

    def parameter(self, tree: ast.AST, name: str, shown: str) -> Index:
        """Return the index that a part turns out to depend on; a dimension keeps its own name."""
        if name not in self.declared:
            return self.index(tree, name, shown, None)
        return self.bound.setdefault(
            (id(tree), name), Index(name, name, self.declared[name], shown)
        )

    def with_batch(self, indices: list[Index], shown: str) -> list[Index]:
        """Return a part's indices, with the batch dimensions that may be left out before them."""
        if BATCH not in self.declared or any(index.name == BATCH for index in indices):
            return indices
        return [Index(BATCH, BATCH, self.declared[BATCH], shown), *indices]

    def start(self) -> None:
        """Begin a reading, with the ranges that are known by now."""
        extents = {index.key: index.extent for index in self.indices}
        sizes = {key: extent for key, extent in extents.items() if extent is not None}
        self.ranges = Ranges({**self.declared, **sizes})
        for state in self.states.values():
            state.node, state.ready = None, False
        self.definitions = {
            name: NamedValue(name, state.indices, state.element)
            for name, state in self.states.items()
        }
        self.accesses.clear()

    def labels_of(self, name: str) -> tuple[str, ...]:
        """Return the indices of a tensor or of a name with a value."""
        if name in self.definitions:
            return tuple(parameter.name for parameter in self.definitions[name].parameters)
        return self.labels[name]

    def is_taken(self, name: str) -> str | None:
        """Return what a name stands for if it cannot be an index; else None."""
        if name in self.labels:
            return "a tensor"
        if name in self.names:
            return "a scalar"
        return "a name with a value" if name in self.definitions else None


def is_data(place: Affine) -> bool:
    """Return whether the data decides an index: an int tensor or an int scalar is in it."""
    return any(
        not is_fixed(part) and not is_quotient(part) and part.op != node.ARGMAX
        for part in place.nodes
    )


def is_limit(place: Affine, declared: Mapping[str, Affine]) -> bool:
    """Return whether an index may run up to this: a number, or sizes of the inputs' dimensions."""
    return all(
        is_size(term) and term.strip("|") in declared if isinstance(term, str) else is_fixed(term)
        for term, _ in place.terms
    )


def has_index(value: Node) -> bool:
    """Return whether a whole number depends on an index other than through a read."""

    def outside(part: Node) -> tuple[Node, ...]:
        return () if part.op in (READ, *REDUCTIONS) else part.args

    return any(part.op == INDEX and part.free for part in node.in_order([value], outside))


def is_batch(tree: ast.expr) -> bool:
    """Return whether a subscript is `...`."""
    return isinstance(tree, ast.Constant) and tree.value is ...


def include_batch(subscripts: Sequence[ast.expr], own: Sequence[str]) -> list[ast.expr]:
    """Return what an output's statement has between brackets, with `...` if that was left out."""
    found = list(subscripts)
    if BATCH in own and not any(map(is_batch, found)):
        found.insert(own.index(BATCH), ast.Constant(...))
    return found


def elements(tree: ast.expr) -> list[ast.expr]:
    """Return what stands between brackets."""
    return list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]


def plain_indices(indices: list[Affine]) -> list[str] | None:
    """Return the names of indices that are each alone and all different; None otherwise."""
    names = [index.index for index in indices]
    found = [name for name in names if name is not None]
    return found if len(set(found)) == len(indices) else None


def move_indices(value: Node, places: Mapping[str, Affine], ranges: Ranges) -> Node:
    """Return a value at other indices; if they are only renamed, nothing is simplified again."""
    changed = {key: place for key, place in places.items() if place != at(key)}
    if plain_indices(list(places.values())) is None:
        return reduce.substitute(value, changed, ranges)
    rebuilt: dict[Node, Node] = {}
    others: dict[str | Node, Affine] = {**changed}
    depends = frozenset(changed)
    for part in node.in_order(
        [value], lambda part: tuple(a for a in part.args if a.free & depends)
    ):
        if part.free & depends:
            args = tuple(rebuilt.get(arg, arg) for arg in part.args)
            rebuilt[part] = node.remake(part, args, lambda place: place.replaced(others))
            if part.type == "int":
                others[part] = node.place_of(rebuilt[part])
    return rebuilt.get(value, value)
