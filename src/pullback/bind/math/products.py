"""How many products of matrices a formula in passes over blocks computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from pullback.bind.loops import block_loops
from pullback.bind.math.call import IndexedCall
from pullback.define.math import extents
from pullback.define.math.blocks import Sweep
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.lower import is_contraction, product_of
from pullback.define.math.node import SUM, Node, in_order
from pullback.define.math.panels import Panels, find_panels
from pullback.define.math.passes import Unfit
from pullback.define.math.passing import Passing, make_passing
from pullback.define.math.statistics import Keeping
from pullback.define.math.tiles import find_product_tiles


def products_in(sweep: Sweep) -> Iterator[tuple[object, frozenset[str], tuple[Affine, ...]]]:
    """Yield the products of matrices in a pass: what each is known by, and its indices."""
    seen: set[Node] = set()
    for own in sweep.statistics:
        for node in in_order([own.body]):
            if node.op == SUM and node not in seen and sweep.pair <= node.free:
                seen.add(node)
                product = product_of(node)
                if is_contraction(product):
                    yield node, node.free, tuple(size for _, size in product.bound)
        rest = frozenset(own.labels) - sweep.pair - sweep.batches.keys()
        if own.op == SUM and rest:
            yield own, sweep.pair | frozenset(own.labels), ()


def products_of(
    passing: Passing, device: torch.device
) -> Iterator[tuple[object, frozenset[str], tuple[Affine, ...]]]:
    """Yield the products of matrices in all passes, those that panels hold once."""
    has_panels = panels_on(passing, device) is not None
    seen = set[object]()
    for sweep in (sweep for sweeps in passing.sweeps for sweep in sweeps):
        found = list(products_in(sweep))
        yield from (each for each in found if not (has_panels and each[0] in seen))
        seen |= {key for key, _, _ in found}


def panels_on(passing: Passing, device: torch.device) -> Panels | None:
    """Return the two passes that take turns on a device, if there are two."""
    return find_panels(passing) if block_loops.can_compile(device) else None


def count_products(call: IndexedCall, passing: Passing) -> tuple[float, float]:
    """Return the operations of products of matrices: by blocks, and as a whole, each once."""
    ranges = passing.passes.ranges

    def extent(size: Affine) -> int:
        return int(extents.evaluate_size(size, call.sizes) or 1)

    total, once = 0.0, dict[object, float]()
    for key, free, bound in products_of(passing, call.outputs.device):
        many = math.prod(map(extent, bound)) * math.prod(
            extent(ranges[i]) if i in ranges else call.sizes.get(i, 1) for i in free
        )
        total += 2.0 * many
        once[key] = 2.0 * many
    return total, sum(once.values())


def saves_products(kept: Keeping, other: Keeping) -> bool:
    """Return whether a CPU multiplies less if a forward computes some gradients, too.

    Args:
        kept: the formulas that keep these.
        other: those that do not.
    """
    wanted = [place in kept.backward.gives for place in other.backward.gives]
    every = [True] * len(kept.forward.line.outputs)
    forward = _count_of(other.forward, [True] * len(other.forward.line.outputs))
    backward = _count_of(other.backward.formula, wanted)
    return 0 < _count_of(kept.forward, every) < forward + backward


def _count_of(formula: Formula, wanted: Sequence[bool]) -> int:
    """Return how many products a formula has by blocks on a CPU; 0 if that cannot be."""
    labels = [output.labels for output in formula.line.outputs]
    pairs = {pair for pair, _ in find_product_tiles(formula.nodes, labels, formula.sizes)}
    try:
        passing = make_passing(formula, formula.nodes, sorted(pairs, key=sorted), wanted)
    except Unfit:
        return 0
    return len(list(products_of(passing, torch.device("cpu"))))
