"""What follows from a formula alone, worked out once for all of its calls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pullback.bind.dense.record import Records
from pullback.define.math import absent, bounds, softmax
from pullback.define.math.cases import Cases, by_cases
from pullback.define.math.formula import Formula
from pullback.define.math.index import Affine
from pullback.define.math.node import Node
from pullback.define.math.program import FormulaFacts
from pullback.define.math.ranges import Ranges

if TYPE_CHECKING:
    from pullback.bind.dense.between import Between

MOST_PROGRAMS = 512


class PreparedFormula:
    """What follows from a formula, and from which of its tensors are None."""

    def __init__(self, nodes: tuple[Node, ...], sizes: Mapping[str, Affine]) -> None:
        self.nodes = nodes
        ranges = Ranges(sizes)
        self.cases = [by_cases(node, ranges) for node in nodes]
        roots = [
            node for own in self.cases for node in (own.nodes if isinstance(own, Cases) else [own])
        ]
        self.program = FormulaFacts(sizes, roots)
        self.gathers = [bounds.find_gathers(node) for node in nodes]
        self.maxima = [bounds.find_maxima(node) for node in nodes]
        self.records = Records()
        self.is_between: dict[Node, bool] = {}
        self.between: dict[tuple[object, ...], Between] = {}


def prepare_call(indexed: Formula, arguments: Mapping[str, object]) -> PreparedFormula:
    """Return what is worked out once for calls in which the same tensors are None."""
    missing = frozenset(t.name for t in indexed.line.tensors if arguments[t.name] is None)
    return prepare(indexed.layout, indexed.nodes, tuple(indexed.sizes.items()), missing)


@functools.lru_cache(maxsize=MOST_PROGRAMS)
def prepare(
    layout: tuple[tuple[str, ...], ...],  # keeps apart the records of different operators
    nodes: tuple[Node, ...],
    sizes: tuple[tuple[str, Affine], ...],
    missing: frozenset[str],
) -> PreparedFormula:
    """Return what is worked out once for a formula, with the records of its calls."""
    present = absent.drop_absent(nodes, set(missing)) if missing else nodes
    return PreparedFormula(softmax.normalize(present), dict(sizes))
