"""`torch.vmap` of a formula in one call: the same formula with one dimension more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pullback.bind.math import derive
from pullback.define.line import Line
from pullback.define.line import Tensor as TensorSpec
from pullback.define.math.batched import add_dimension
from pullback.define.math.formula import Formula
from pullback.define.operator import Definition

if TYPE_CHECKING:
    from pullback.bind.batching import BatchedCall
    from pullback.bind.kinds.kind import Kind

# No name in a line begins so, as all of them would in a derived line.
DIMENSION = "vmapped"


def call_batched(kind: Kind, call: BatchedCall) -> tuple[Any, Any]:
    """Return what a formula's call under `vmap` gives, and where that is batched."""
    definition = kind.definition
    rows = list(zip(definition.line.parameters, call.arguments, call.dims, strict=True))
    moved = [
        value.movedim(dim, 0) if isinstance(value, Tensor) and dim is not None else value
        for _, value, dim in rows
    ]
    batched = {p.name for p, _, dim in rows if dim is not None and isinstance(p, TensorSpec)}
    with derive.lock:
        made = derive.operator_of(batch_formula(definition, batched), type(kind))
    results = made.overload(*moved, **call.keywords)
    if isinstance(results, Tensor):
        return results, 0
    return results, tuple(None if result is None else 0 for result in results)


def batch_formula(definition: Definition, batched: set[str]) -> Formula:
    """Return an operator's formula with the dimension of `vmap`."""
    dimension = DIMENSION + "_" * count_nesting(definition.line)
    assert definition.formula
    return add_dimension(definition.formula, batched, dimension)


def count_nesting(line: Line) -> int:
    """Return how many dimensions of this kind a line has already: `vmap` of `vmap`."""
    return sum(name.startswith(DIMENSION) for name in line.dimensions)
