"""Statistics of rows that a forward keeps for its gradients: the maxima and sums of a softmax.

Of a maximum that has a gradient itself, the places are kept: it goes to these alone. A gradient
that lacks them computes them again, in a pass of its own.

Where they are statistics of products of matrices (`passes.py`), they are cut out before anything is
derived: the formula reads them, and the chain rule goes on through the reads. What is derived reads
them too, however its indices and conditions have changed on the way.

Those of the rows of a tensor, as mean and deviation of a layer norm, are outputs that the gradients
read back (`recall.py`): the values of a row alone that are made of all its elements. So are places
of other maxima (`maxima.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from pullback.define.dimension import Batch, Name
from pullback.define.line import Line, Tensor
from pullback.define.math import derived
from pullback.define.math.draft import Derived, FreeNames, is_real
from pullback.define.math.factor import factor_products
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, at
from pullback.define.math.index import size as size_of
from pullback.define.math.maxima import keep_places
from pullback.define.math.node import (
    ARGMAX,
    MAX,
    NUMBER,
    READ,
    REDUCTIONS,
    SUM,
    Node,
    in_order,
    read,
    rename_indices,
)
from pullback.define.math.passes import Passes, Unfit, make_passes
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import argmax_of, rewrite_nodes, substitute
from pullback.define.math.required import Check, find_unguarded, is_inside
from pullback.define.math.tiles import Pair, find_product_tiles


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """A formula that keeps statistics.

    Attributes:
        forward: the formula, whose last outputs are the statistics; these have no derivative.
        backward: the gradients of the other outputs, which read them.
    """

    forward: Formula
    backward: Derived


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The tensor whose rows the statistics are of.

    Attributes:
        tensor: its name.
        reduced: its dimensions that they lack; those behind `...` count from the end. There are
            none where only places of maxima are kept.
    """

    tensor: str
    reduced: tuple[int, ...]


def keep_statistics(formula: Formula, *, in_single: bool = False) -> Keeping | None:
    """Return a formula that keeps what its gradients read; None if there is nothing to keep.

    Args:
        formula: one with products of matrices.
        in_single: as for `keep_rows`.
    """
    cut = _cut(formula, "float32" if in_single else None)
    if cut is None:
        return None
    made = cut.gradients()
    read_by_it = {*made.saved} & {tensor.name for tensor in cut.tensors} if made else set[str]()
    return Keeping(forward=cut.forward(read_by_it), backward=made) if made and read_by_it else None


def keep_rows(formula: Formula, *, in_single: bool = False) -> Keeping | None:
    """Return a formula that keeps statistics of the rows of a tensor; None if it has none.

    Args:
        formula: one without products of matrices.
        in_single: whether they are kept in single precision, since the tensors are in half: what is
            kept has the digits that it is computed in.
    """
    facts = FormulaFacts({}, ())
    returned = {facts.identity(node)[0] for node in formula.nodes}
    names, kept = FreeNames(formula.line), list[tuple[Node, Tensor]]()
    for node, tensor, _ in _find_rows(formula):
        if in_single or facts.identity(node)[0] not in returned:
            dtype = "float32" if in_single else tensor.dtype
            kept.append((node, replace(tensor, name=names.fresh(tensor.name), dtype=dtype)))
    return _keep(formula, [*kept, *keep_places(formula, names)])


def keep_maxima(formula: Formula) -> Keeping | None:
    """Return a formula that keeps the places of its maxima; None if no gradient reads them."""
    return _keep(formula, [*keep_places(formula, FreeNames(formula.line))])


def _keep(formula: Formula, kept: list[tuple[Node, Tensor]]) -> Keeping | None:
    """Return a formula that keeps those of some values that its gradients read."""
    plain = derived.backward(formula)
    if not kept or plain is None:
        return None
    made = derived.backward_recalling(returning(formula, kept), plain.saved, dict(kept))
    read_by_it = {*made.saved} if made else set[str]()
    kept = [(node, tensor) for node, tensor in kept if tensor.name in read_by_it]
    return Keeping(forward=returning(formula, kept), backward=made) if made and kept else None


def find_rows(formula: Formula) -> Rows | None:
    """Return the tensor whose rows a formula has statistics of; None if there is none.

    Of a formula that keeps only places of maxima, it is the first tensor.
    """
    if formula.pointwise or formula.groups or formula.line.returns_gradients:
        return None
    every = [rows for _, _, rows in _find_rows(formula)]
    real = [own for own in formula.line.tensors if is_real(own) and not (own.many or own.optional)]
    if not every and real and any(True for _ in keep_places(formula, FreeNames(formula.line))):
        return Rows(tensor=real[0].name, reduced=())
    return max(every, key=lambda rows: len(rows.reduced), default=None)


def find_products(formula: Formula) -> dict[Pair, Node]:
    """Return products of matrices that are reduced, by the two indices of each."""
    return dict(_find_products(formula))


def has_products(formula: Formula) -> bool:
    """Return whether products of matrices are reduced: of two indices that no tensor has together.

    A sum over two indices of a tensor is none.
    """

    def is_of_rows(node: Node) -> bool:
        return any(part.op == READ and node.free < part.free for part in in_order([node]))

    return not all(is_of_rows(node) for _, node in _find_products(formula))


def _find_products(formula: Formula) -> Iterator[tuple[Pair, Node]]:
    if formula.pointwise or formula.groups or formula.line.returns_gradients:
        return
    labels = [output.labels for output in formula.line.outputs]
    yield from find_product_tiles(formula.nodes, labels, formula.sizes)


def _find_rows(formula: Formula) -> Iterator[tuple[Node, Tensor, Rows]]:
    """Yield the values of a row alone that are made of all its elements, each once.

    Each comes with the output that it may become, and whose row it is of.
    """
    facts, seen = FormulaFacts({}, ()), set[int]()
    nodes = list(in_order(formula.nodes))
    # Of a mean over several indices, the quotient by the size of one is none.
    parts = {node.args[0] for node in nodes if node.op == "div" and _is_of_call(node.args[1])}
    for node in nodes:
        if node.type != "real" or node.op in (READ, NUMBER) or node in parts:
            continue
        number = facts.identity(node)[0]
        rows = None if number in seen else _rows_of(node, formula.line)
        if rows is None or not all(node.free <= {*o.labels} for o in formula.line.outputs):
            continue
        seen.add(number)
        own = next(tensor for tensor in formula.line.tensors if tensor.name == rows.tensor)
        dims = [d for d, label in zip(own.dims, own.labels, strict=True) if label in node.free]
        tensor = Tensor(name=f"{node.op}_of_row", dims=tuple(dims), dtype=own.dtype, detached=True)
        yield node, tensor, rows


def _is_of_call(node: Node) -> bool:
    """Return whether a value is made of sizes and scalars alone."""
    return not any(part.op in (READ, *REDUCTIONS) for part in in_order([node]))


def _rows_of(node: Node, line: Line) -> Rows | None:
    """Return the tensor whose rows a value is a statistic of; None if it is none of rows."""
    tensors = {tensor.name: tensor for tensor in line.tensors if is_real(tensor)}
    for part in in_order([node]):
        own = tensors.get(part.name) if part.op == READ else None
        if own is None or own.many or own.optional or not node.free < part.free:
            continue
        indices = [place.index for place in part.places]
        left = [d for d, index in enumerate(indices) if index not in node.free]
        is_named = all(
            i == label for i, label in zip(indices, own.labels, strict=True) if i in node.free
        )
        if None in indices or len({*indices}) < len(indices) or not is_named:
            continue
        batch = own.labels.index(BATCH) if own.has_batch else len(indices)
        if batch not in left:
            many = len(indices)
            return Rows(tensor=own.name, reduced=tuple(d if d < batch else d - many for d in left))
    return None


def returning(formula: Formula, kept: Sequence[tuple[Node, Tensor]]) -> Formula:
    """Return a formula that returns some values behind its outputs."""
    own = formula.line
    line = replace(
        own,
        name=f"_{own.name.removeprefix('_')}_forward",
        outputs=(*own.outputs, *(tensor for _, tensor in kept)),
        formula=derived.UNWRITTEN,
        stands_for=own.called,
    )
    return replace(formula, line=line, elements=(*formula.elements, *(node for node, _ in kept)))


def _cut(formula: Formula, dtype: str | None) -> _Cut | None:
    """Return a formula with the statistics of its rows, in a dtype; None if it has none."""
    products = find_products(formula)
    labels = [output.labels for output in formula.line.outputs]
    try:
        pairs = sorted(products, key=sorted)
        whole = make_passes(formula.nodes, labels, formula.sizes, pairs)
    except Unfit:
        return None
    within = {index for node in products.values() for index in node.free}
    kept = dict(_find_kept(formula, whole, within, dtype))
    values = {name: tensor for (name, op), tensor in kept.items() if op != ARGMAX}
    places = {name: tensor for (name, op), tensor in kept.items() if op == ARGMAX}
    return _Cut(formula, whole, values, places) if kept else None


def _find_kept(
    formula: Formula, whole: Passes, within: Set[str], dtype: str | None
) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield statistics of rows, and places of maxima, each with the output that it becomes.

    Args:
        formula: all of it.
        whole: it in passes.
        within: the indices of products of matrices; a statistic of rows has no others.
        dtype: of what is kept; None for that of the tensors.
    """
    used = {label for output in formula.line.outputs for label in output.labels}
    names = {size: index for index, size in formula.sizes.items() if index in used}
    names |= {size_of(name): name for name in formula.line.dimensions}
    outputs = zip(whole.elements, whole.labels, strict=True)
    returned = {
        node.name
        for node, labels in outputs
        if node.op == READ and tuple(place.index for place in node.places) == labels
    }
    placed = {own.greatest for own in whole.statistics if own.name in returned}
    free, partial = FreeNames(formula.line), _find_partial(formula, whole)
    for own in whole.statistics:
        if own.name in partial:
            continue
        indices = [index for index in own.labels if index != BATCH]
        dims = [names[size] for i in indices if (size := whole.ranges[i]) in names]
        is_named = len(set(dims)) == len(indices)
        is_of_rows = own.op in (SUM, MAX) and own.type == "real" and within >= {*indices}
        if not (is_named and is_of_rows):
            continue
        batch = [Batch()] if BATCH in own.labels else []
        dims_of = (*batch, *(Name(name=name) for name in dims))
        if dtype or own.name not in returned:
            name = free.fresh("_".join([own.op, *dims]))
            tensor = Tensor(name=name, dims=dims_of, dtype=dtype, detached=True)
            yield (own.name, own.op), tensor
        if own.op == MAX and own.name not in placed:
            name = free.fresh("_".join([ARGMAX, *dims]))
            place = Tensor(name=name, dims=dims_of, dtype="int64", detached=True)
            yield (own.name, ARGMAX), place


def _find_partial(formula: Formula, whole: Passes) -> set[str]:
    """Return the statistics that some rows do not have: what these would read is outside.

    A condition around them, as that of `pad`, holds for the other rows.
    """
    by_name = {own.name: own for own in whole.statistics}

    def read_in(node: Node) -> list[Check]:
        return [check for check in find_unguarded(node) if check.node.op == READ]

    of_all, left = set[str](), [*whole.elements]
    while left:
        names = {check.node.name for check in read_in(left.pop())} & by_name.keys() - of_all
        of_all |= names
        left += [by_name[name].body for name in names]
    partial = set[str]()
    for own in whole.statistics:
        checks = [] if own.name in of_all else read_in(own.body)
        for check in checks:
            within = replace(check, around=(*whole.ranges.items(), *check.around))
            is_of_tensor = check.node.name not in by_name
            if check.node.name in partial or (is_of_tensor and not is_inside(formula, within)):
                partial.add(own.name)
    return partial


class _Cut:
    """A formula from which statistics are cut out.

    Attributes:
        kept: the statistics by their names in the passes, each with the output that it becomes.
        places: likewise for maxima, each with the output that its place becomes.
        elements: the outputs, which read what is kept.
        definitions: the elements of what is kept, by name, which read one another.
    """

    def __init__(
        self,
        formula: Formula,
        whole: Passes,
        kept: Mapping[str, Tensor],
        places: Mapping[str, Tensor],
    ) -> None:
        self.formula = formula
        self.whole = whole
        self.kept = kept
        self.places = places
        self.by_name = {own.name: own for own in whole.statistics}
        self.definitions, values = self.write(kept)
        outputs = zip(whole.elements, whole.labels, formula.line.outputs, strict=True)
        self.elements = tuple(
            rename_indices(self.replaced(element, values), labels, output.labels)
            for element, labels, output in outputs
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What values and places become."""
        return *self.kept.values(), *self.places.values()

    def gradients(self) -> Derived | None:
        """Return the gradients, which read what is kept; None if all are zero."""
        names = {tensor.name for tensor in self.kept.values()}
        values = {name: node for name, node in self.definitions.items() if name in names}
        places = {node: name for name, node in self.definitions.items() if name not in names}
        by_name = {tensor.name: tensor for tensor in self.places.values()}
        every = self.forward({tensor.name for tensor in self.tensors})
        made = derived.backward_reading(
            every, self.elements, values, {node: by_name[name] for node, name in places.items()}
        )
        return made and replace(made, formula=factor_products(made.formula, names))

    def forward(self, names: Set[str]) -> Formula:
        """Return the formula that returns some of what is kept behind its outputs."""
        tensors = [tensor for tensor in self.tensors if tensor.name in names]
        in_full, _ = self.write({})
        return returning(self.formula, [(in_full[tensor.name], tensor) for tensor in tensors])

    def write(self, cut: Mapping[str, Tensor]) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return the elements of what is kept, and what stands for each statistic.

        Args:
            cut: the statistics that are read; others are written out.
        """
        found: dict[str, Node] = {}
        values: dict[str, Node] = {}
        for own in self.whole.statistics:
            value = own.reduce(self.replaced(own.body, values), self.whole.ranges.__getitem__)
            if own.name in self.kept:
                tensor = self.kept[own.name]
                found[tensor.name] = rename_indices(value, own.labels, tensor.labels)
            if own.name in self.places:
                tensor = self.places[own.name]
                found[tensor.name] = rename_indices(argmax_of(value), own.labels, tensor.labels)
            is_read = own.name in cut
            values[own.name] = read(cut[own.name].name, map(at, own.labels)) if is_read else value
        return found, values

    def replaced(self, node: Node, values: Mapping[str, Node]) -> Node:
        """Return an expression with what stands for the statistics in it, at their indices there.

        In a sum over rows, as of a mean loss, these are not those of the statistic.
        """
        ranges = Ranges(self.whole.ranges)

        def known(part: Node) -> Node | None:
            if part.op != READ or part.name not in values:
                return None
            own = self.by_name[part.name]
            others = zip(own.labels, part.places, strict=True)
            at_places = {label: place for label, place in others if place != at(label)}
            return substitute(values[part.name], at_places, ranges)

        return rewrite_nodes([node], lambda part: part, ranges, known)[0]
