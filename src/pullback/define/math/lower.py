"""Recognises the parts of a formula in index notation that PyTorch has an operation for.

These are pure functions of nodes. They find chains of sums over a product (a contraction, or a
convolution where a factor is read at `i + p`), and sums over a delta whose place is data (a
scatter). No rewriting loses accuracy: a product is taken as it is written and never distributed, so
a squared distance stays one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pullback.define.math import node as graph
from pullback.define.math import reduce, softmax
from pullback.define.math.index import Affine, at, is_size
from pullback.define.math.node import (
    EQUAL,
    INSIDE,
    READ,
    SUM,
    Node,
    place_of,
)
from pullback.define.math.ranges import Ranges
from pullback.define.math.solve import solve
from pullback.define.math.term import Term, group_factors, select, term_of

# A guard 0 <= v - idx[n] + c < size becomes this many deltas at most.
MOST_DELTAS = 64

# PyTorch convolves over this many dimensions.
MOST_WINDOWS = 3

Sizes = Mapping[str, Affine]


@dataclass(frozen=True, kw_only=True)
class Product:
    """`factor * sum[bound](where(conditions, over / under, 0))`.

    Attributes:
        bound: the indices that are summed over, with their sizes, the outermost first.
    """

    bound: tuple[tuple[str, Affine], ...]
    conditions: tuple[Node, ...] = ()
    factor: float = 1.0
    over: tuple[Node, ...] = ()
    under: tuple[Node, ...] = ()

    @property
    def free(self) -> frozenset[str]:
        """All indices in it, the bound ones among them."""
        parts = (*self.conditions, *self.over, *self.under)
        return frozenset[str]().union(*(part.free for part in parts))


def product_of(node: Node) -> Product:
    """Return a chain of sums as one sum over a product."""
    bound: list[tuple[str, Affine]] = []
    conditions: list[Node] = []
    factor = 1.0
    while True:
        bound.append((node.bound, node.size))
        term = term_of(node.args[0])
        conditions += term.conditions
        factor *= term.factor
        if term.under or [part.op for part in term.over] != [SUM]:
            break
        node = term.over[0]
    over, under = softmax.group_weights(term.over, term.under)
    return Product(
        bound=tuple(bound),
        conditions=tuple(dict.fromkeys(conditions)),
        factor=factor,
        over=group_factors(over),
        under=under,
    )


def is_contraction(product: Product) -> bool:
    """Return whether the sum may be taken factor by factor, by products of matrices.

    Not for whole numbers, for which PyTorch has no fast product. Conditions are put on one factor;
    if that has all indices, nothing is gained.
    """
    if len(product.over) < 2 or any(part.type != "real" for part in product.over):
        return False
    return not (product.conditions and any(part.free >= product.free for part in product.over))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """`y[v, ..] = sum[bound](where(v == place, value, 0))`: values are added where data says.

    Attributes:
        places: for each of the output's indices that the data decides, where values go.
        bound: what is summed over.
        value: what is added; it has none of those indices.
        at_row: the same with those indices in it, for one who knows them: nothing that decides
            where a value goes is in it again.
    """

    places: tuple[tuple[str, Affine], ...]
    bound: tuple[tuple[str, Affine], ...]
    value: Node
    at_row: Node

    @property
    def rows(self) -> frozenset[str]:
        """The indices of the output that data decides."""
        return frozenset(index for index, place in self.places if place.nodes)


def scatter_of(product: Product, sizes: Sizes) -> Scatter | None:
    """Return a product as a scatter; None if no condition makes it one.

    Args:
        product: a sum.
        sizes: how far its free indices run.
    """
    if not any(c.op in (EQUAL, INSIDE) for c in product.conditions):
        return None
    own = dict(product.bound)
    hidden = [name for name in sorted(product.free) if name[0] == "#" and name not in own]
    if hidden:
        return _scatter_within(product, sizes, hidden)
    product = _open(product, sizes)
    bound = dict(product.bound)
    ranges = Ranges({**sizes, **bound})
    places: dict[str, Affine] = {}
    left, kept = list(product.conditions), list(product.conditions)
    body = whole = Term(over=product.over, under=product.under).value
    for condition in product.conditions:
        candidates = [v for v in sizes if v not in places]
        names = {*sizes, *bound, *product.free}
        found = _decide_place(condition, candidates, bound, body.free, names)
        if found is None:
            continue
        index, place, step = found
        if step is not None:
            bound[step[0]] = ranges.sizes[step[0]] = step[1]
        others = {index: place}
        kept.remove(condition)
        left = [reduce.substitute(c, others, ranges) for c in left if c is not condition]
        body = reduce.substitute(body, others, ranges)
        places = {
            v: place_of(reduce.substitute(graph.index(p), others, ranges))
            for v, p in places.items()
        }
        places[index] = place
    if not places:
        return None

    def is_elsewhere(condition: Node) -> bool:
        """Return whether it leaves out what no row of the output has, either."""
        return condition.op == INSIDE and any(
            condition.places[0] == place and condition.size == sizes[index]
            for index, place in places.items()
        )

    left, kept = ([c for c in own if not is_elsewhere(c)] for own in (left, kept))
    value = select(left, body)
    if value.free & places.keys() or any(p.free & places.keys() for p in places.values()):
        return None
    return Scatter(
        places=tuple(places.items()),
        bound=tuple(bound.items()),
        value=value,
        at_row=select(kept, whole),
    )


def _scatter_within(product: Product, sizes: Sizes, hidden: Sequence[str]) -> Scatter | None:
    """Return a scatter in the body of other reductions, whose indices are open meanwhile."""
    names: dict[str, str] = {}
    for old in hidden:
        names[old] = _fresh({*product.free, *sizes, *names.values()})
    found = scatter_of(
        _rename(product, names), {names.get(name, name): size for name, size in sizes.items()}
    )
    if found is None or max(found.value.height, found.at_row.height) >= min(
        int(name[1:]) for name in hidden
    ):
        return None  # a reduction in it would have the name of one that it is in
    old_of = {new: old for old, new in names.items()}
    return Scatter(
        places=tuple(
            # Where something is greatest may be a place, too: it has indices within it.
            (old_of.get(v, v), place_of(_rename_all([graph.index(place)], old_of)[0]))
            for v, place in found.places
        ),
        bound=found.bound,
        value=_rename_all([found.value], old_of)[0],
        at_row=_rename_all([found.at_row], old_of)[0],
    )


def _fresh(taken: AbstractSet[str]) -> str:
    return next(name for k in itertools.count() if (name := f"+{k}") not in taken)


def _open(product: Product, sizes: Sizes) -> Product:
    """Return a product whose bound indices have names that substitution may meet."""
    names: dict[str, str] = {}
    for old, _ in product.bound:
        names[old] = _fresh({*product.free, *sizes, *names.values()})
    return _rename(product, names)


def _rename(product: Product, names: Mapping[str, str]) -> Product:
    """Return a product in which some indices have other names."""
    return replace(
        product,
        bound=tuple((names.get(old, old), extent) for old, extent in product.bound),
        conditions=_rename_all(product.conditions, names),
        over=_rename_all(product.over, names),
        under=_rename_all(product.under, names),
    )


def _rename_all(nodes: Iterable[Node], names: Mapping[str, str]) -> tuple[Node, ...]:
    for old, new in names.items():
        nodes = tuple(graph.rename_index(each, old, new) for each in nodes)
    return tuple(nodes)


def _decide_place(
    condition: Node,
    candidates: list[str],
    bound: Mapping[str, Affine],
    taken: frozenset[str],
    names: AbstractSet[str],
) -> tuple[str, Affine, tuple[str, Affine] | None] | None:
    """Return an output's index, the place that data gives it, and a new index in that place.

    A place may also be given by several indices, `c == n - m`: for an index that no value has, so
    none of those taken.
    """
    if condition.op not in (EQUAL, INSIDE):
        return None
    place = condition.places[0]
    if not place.nodes:
        candidates = [c for c in candidates if c not in taken and len(place.free - {c}) > 1]
        if condition.op != EQUAL or not place.free & bound.keys():
            return None
    step: tuple[str, Affine] | None = None
    if condition.op == INSIDE:
        if condition.size.terms or condition.size.constant > MOST_DELTAS:
            return None
        step = (_fresh(names), condition.size)
        place = place - at(step[0])
    for index in candidates:
        solution = solve(graph.equal(place), index)
        if solution is not None:
            return index, solution, step
    return None


@dataclass(frozen=True, kw_only=True)
class Bag:
    """`sum(weight * x[place, ..])` with a place that is data: rows that data picks are added up.

    Attributes:
        read: of the rows.
        place: which rows; it has all indices that are summed over, and the read's other places
            have none of its indices.
        weight: what they are multiplied by; it has only indices of the place.
    """

    read: Node
    place: Affine
    weight: Node | None


def bag_of(product: Product) -> Bag | None:
    """Return a sum over a product as one over rows; None if it is not one."""
    if product.conditions or product.under or not 1 <= len(product.over) <= 2:
        return None
    bound = {name for name, _ in product.bound}
    for read, weight in (
        (product.over[0], product.over[1:]),
        (product.over[-1], product.over[:-1]),
    ):
        if read.op != READ or read.type != "real":
            continue
        by_data = [place for place in read.places if place.nodes]
        rest = frozenset[str]().union(*(p.free for p in read.places if not p.nodes))
        if len(by_data) == 1 and bound <= by_data[0].free and not rest & by_data[0].free:
            place = by_data[0]
            if all(part.type == "real" and part.free <= place.free for part in weight):
                return Bag(read=read, place=place, weight=weight[0] if weight else None)
    return None


@dataclass(frozen=True, kw_only=True)
class Window:
    """One place `stride*free + step*bound + constant` of the factor that is read.

    Attributes:
        dimension: which of the read's indices it is.
        free: the index that the sum still has, and what it is multiplied by: above 0.
        bound: the index that is summed over, and what it is multiplied by.
        guarded: whether a place outside of the tensor counts as 0.
    """

    dimension: int
    free: str
    stride: int
    bound: str
    step: int
    guarded: bool


@dataclass(frozen=True, kw_only=True)
class Stencil:
    """`sum(x[.., i + p, ..] * other[.., p])`.

    Attributes:
        read: the factor with the windows.
        other: the other factor; it has the windows' bound indices and not their free ones.
    """

    read: Node
    other: Node
    windows: tuple[Window, ...]


def stencil_of(product: Product) -> Stencil | None:
    """Return a sum over a product as a convolution; None if it is not one."""
    if len(product.over) != 2 or product.under:
        return None
    first, second = product.over
    for read, other in ((first, second), (second, first)):
        found = _stencil_with(read, other, product)
        if found is not None:
            return found
    return None


def _stencil_with(read: Node, other: Node, product: Product) -> Stencil | None:
    """Return a convolution in which a given factor has the windows; None if it is not one."""
    if read.op != READ or read.type != "real" or other.type != "real":
        return None
    windows: list[Window] = []
    plain: set[str] = set()
    bound = {name for name, _ in product.bound}
    for dimension, place in enumerate(read.places):
        guards = [c for c in product.conditions if c.op == INSIDE and c.places[0] == place]
        if place.index is not None and not guards and place.index not in plain:
            plain.add(place.index)
            continue
        window = _window(dimension, place, bound, guarded=bool(guards))
        if window is None:
            return None
        windows.append(window)
    of_windows = [index for w in windows for index in (w.free, w.bound)]
    places = {read.places[w.dimension] for w in windows}
    guards = [c for c in product.conditions if c.op == INSIDE and c.places[0] in places]
    if (
        not 0 < len(windows) <= MOST_WINDOWS
        or len(guards) < len(product.conditions)
        or len({*of_windows, *plain}) < len(of_windows) + len(plain)
        or not {w.bound for w in windows} <= other.free
        or {w.free for w in windows} & other.free
    ):
        return None
    return Stencil(read=read, other=other, windows=tuple(windows))


def _window(dimension: int, place: Affine, bound: set[str], *, guarded: bool) -> Window | None:
    """Return a place as a window: one index that stays and one that is summed over."""
    terms = [(t, f) for t, f in place.terms if not isinstance(t, str) or not is_size(t)]
    summed = [(t, f) for t, f in terms if isinstance(t, str) and t in bound]
    free = [(t, f) for t, f in terms if isinstance(t, str) and t not in bound]
    if len(terms) != 2 or len(summed) != 1 or len(free) != 1 or free[0][1] < 0:
        return None
    return Window(
        dimension=dimension,
        free=free[0][0],
        stride=free[0][1],
        bound=summed[0][0],
        step=summed[0][1],
        guarded=guarded,
    )
