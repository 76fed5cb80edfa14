"""Statistics of rows that a forward keeps for its gradients: the maxima and sums of a softmax.

A gradient that lacks them computes them again, in a pass of its own (`passes.py`). So they are cut
out before anything is derived: the formula reads them, and the chain rule goes on through the
reads. What is derived reads them too, however its indices and conditions have changed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from pullback.define.line import Batch, Name, Tensor
from pullback.define.math import derived
from pullback.define.math.draft import Derived, FreeNames
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, at
from pullback.define.math.index import size as size_of
from pullback.define.math.node import MAX, READ, REDUCTIONS, SUM, Node, read, rename_index
from pullback.define.math.passes import Passes, Unfit, make_passes
from pullback.define.math.ranges import Ranges
from pullback.define.math.reduce import rewrite_nodes
from pullback.define.math.tiles import Pair, find_tiles, open_outputs


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """A formula that keeps statistics.

    Attributes:
        forward: the formula, whose last outputs are the statistics; these have no derivative.
        backward: the gradients of the other outputs, which read them.
    """

    forward: Formula
    backward: Derived


def keep_statistics(formula: Formula) -> Keeping | None:
    """Return a formula that keeps what its gradients read; None if there is nothing to keep."""
    cut = _cut(formula)
    if cut is None:
        return None
    every = cut.forward(cut.definitions.keys())
    made = derived.backward_reading(every, cut.elements, cut.definitions)
    read_by_it = cut.definitions.keys() & {*made.saved} if made else set[str]()
    return Keeping(forward=cut.forward(read_by_it), backward=made) if made and read_by_it else None


def find_products(formula: Formula) -> dict[Pair, Node]:
    """Return products of matrices that are reduced, by the two indices of each."""
    if formula.pointwise or formula.groups or formula.line.returns_gradients:
        return {}
    labels = [output.labels for output in formula.line.outputs]
    indices, opened, _ = open_outputs(formula.nodes, labels, formula.sizes)
    tiles = find_tiles(opened, indices)
    return {pair: node for pair, node in tiles if node.op in REDUCTIONS and node.type == "real"}


def _cut(formula: Formula) -> _Cut | None:
    """Return a formula with the statistics of its rows; None if it has none."""
    products = find_products(formula)
    labels = [output.labels for output in formula.line.outputs]
    try:
        pairs = sorted(products, key=sorted)
        whole = make_passes(formula.nodes, labels, formula.sizes, pairs)
    except Unfit:
        return None
    within = {index for node in products.values() for index in node.free}
    kept = dict(_find_kept(formula, whole, within))
    return _Cut(formula, whole, kept) if kept else None


def _find_kept(formula: Formula, whole: Passes, within: Set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield statistics of rows, each with the output that it becomes.

    Args:
        formula: all of it.
        whole: it in passes.
        within: the indices of products of matrices; a statistic of rows has no others.
    """
    used = {label for output in formula.line.outputs for label in output.labels}
    names = {size: index for index, size in formula.sizes.items() if index in used}
    names |= {size_of(name): name for name in formula.line.dimensions}
    outputs = zip(whole.elements, whole.labels, strict=True)
    returned = {(node.name, labels) for node, labels in outputs if node.op == READ}
    free = FreeNames(formula.line)
    for own in whole.statistics:
        indices = [index for index in own.labels if index != BATCH]
        dims = [names[size] for i in indices if (size := whole.ranges[i]) in names]
        is_named = len(set(dims)) == len(indices)
        is_of_rows = own.op in (SUM, MAX) and own.type == "real" and within >= {*indices}
        if is_named and is_of_rows and (own.name, own.labels) not in returned:
            batch = [Batch()] if BATCH in own.labels else []
            yield (
                own.name,
                Tensor(
                    name=free.fresh("_".join([own.op, *dims])),
                    dims=(*batch, *(Name(name=name) for name in dims)),
                    detached=True,
                ),
            )


class _Cut:
    """A formula from which statistics are cut out.

    Attributes:
        kept: the statistics by their names in the passes, each with the output that it becomes.
        elements: the outputs, which read what is kept.
        definitions: the elements of what is kept, by name, which read one another.
    """

    def __init__(self, formula: Formula, whole: Passes, kept: Mapping[str, Tensor]) -> None:
        self.formula = formula
        self.whole = whole
        self.kept = kept
        self.definitions, values = self.write(kept)
        outputs = zip(whole.elements, whole.labels, formula.line.outputs, strict=True)
        self.elements = tuple(
            rename(self.replaced(element, values), labels, output.labels)
            for element, labels, output in outputs
        )

    def forward(self, names: Set[str]) -> Formula:
        """Return the formula that returns some of what is kept behind its outputs."""
        own = self.formula.line
        tensors = [tensor for tensor in self.kept.values() if tensor.name in names]
        line = replace(
            own,
            name=f"_{own.name.removeprefix('_')}_forward",
            outputs=(*own.outputs, *tensors),
            formula=derived.UNWRITTEN,
        )
        in_full, _ = self.write({})
        elements = (*self.formula.elements, *(in_full[tensor.name] for tensor in tensors))
        return replace(self.formula, line=line, elements=elements)

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
                found[tensor.name] = rename(value, own.labels, tensor.labels)
            is_read = own.name in cut
            values[own.name] = read(cut[own.name].name, map(at, own.labels)) if is_read else value
        return found, values

    def replaced(self, node: Node, values: Mapping[str, Node]) -> Node:
        """Return an expression with what stands for the statistics in it."""

        def known(part: Node) -> Node | None:
            return values.get(part.name) if part.op == READ else None

        return rewrite_nodes([node], lambda part: part, Ranges(self.whole.ranges), known)[0]


def rename(node: Node, labels: Sequence[str], names: Sequence[str]) -> Node:
    """Return an expression whose indices have other names."""
    for label, name in zip(labels, names, strict=True):
        node = rename_index(node, label, name)
    return node
