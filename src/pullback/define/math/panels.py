"""Two passes over some rows after another, so that products of matrices of the first are held.

A pass that needs what another one has found of its own rows alone, as a gradient of the
log-sum-exps of rows does, need not wait for all rows. Where both have a product in common, it is
computed once: it is held for some rows at a time, a panel, and not as a matrix of all.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from pullback.define.math.blocks import Sweep
from pullback.define.math.index import at
from pullback.define.math.looped_block import LoopedBlock
from pullback.define.math.node import READ, Node, in_order, names_read
from pullback.define.math.passing import Passing


@dataclass(frozen=True, kw_only=True, eq=False)
class Panels:
    """Two passes that take turns.

    Attributes:
        first: the pass that computes what is held.
        second: the one that reads it; its rows are those of the first.
        held: the products, each as a `LoopedBlock` identifies it.
    """

    first: Sweep
    second: Sweep
    held: tuple[object, ...]

    def has_held(self, one: LoopedBlock | None, other: LoopedBlock | None) -> bool:
        """Return whether a block of the first pass has what the same of the second needs."""
        return _identities(other) & {*self.held} <= _identities(one)


@functools.lru_cache(maxsize=512)
def find_panels(passing: Passing) -> Panels | None:
    """Return the passes of a formula panel by panel; None if that saves no product."""
    sweeps = [sweep for part in passing.sweeps for sweep in part]
    if len(sweeps) != 2 or sweeps[0].pair != sweeps[1].pair:
        return None
    if any(sweep.batches for sweep in sweeps) or sweeps[1].running:
        return None
    first, second = _make_turns(passing, *sweeps)
    if not _is_of_rows(passing, second):
        return None
    one, other = first.looped_anywhere, second.looped_anywhere
    held = _identities(one) & _identities(other)
    if one is None or other is None or not held:
        return None
    ordered = [own for each in one.products if (own := one.identity(each)) in held]
    return Panels(first=first, second=second, held=tuple(ordered))


def _make_turns(passing: Passing, first: Sweep, second: Sweep) -> tuple[Sweep, Sweep]:
    """Return two passes whose rows are the same, in which the second does what it can.

    With final statistics, nothing that is summed up has to be exchanged for a newer value.
    """
    read_by_others = {*names_read([own.body for own in (*first.statistics, *second.statistics)])}
    late = [
        own
        for own in first.statistics
        if own.running and own.name not in read_by_others and {*own.labels} - first.pair
    ]
    settled = [replace(own, level=second.statistics[0].level, running=(), rates=()) for own in late]
    early = [own for own in first.statistics if own not in late]
    tensors = {spec.name: spec.labels for spec in passing.indexed.line.tensors}
    one, other = (
        Sweep(passing.passes, own, tensors, settled=False, rows=first.rows)
        for own in (early, [*settled, *second.statistics])
    )
    return one, other


def _is_of_rows(passing: Passing, sweep: Sweep) -> bool:
    """Return whether what a pass reads of others is complete with each row."""
    others = {own.name: own for own in passing.statistics}

    def is_of_rows(node: Node) -> bool:
        own = others.get(node.name) if node.op == READ else None
        if own is None:
            return True
        row = [p for label, p in zip(own.labels, node.places, strict=True) if label == sweep.rows]
        return own.index == sweep.columns and row == [at(sweep.rows)]

    return all(is_of_rows(node) for own in sweep.statistics for node in in_order([own.body]))


def _identities(block: LoopedBlock | None) -> set[object]:
    """Return what identifies the products of a block, which may be none."""
    return {block.identity(product) for product in block.products} if block else set()
