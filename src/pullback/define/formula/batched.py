"""A formula with one dimension more: what `torch.vmap` of it is."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from pullback.define.formula.derived import replaced
from pullback.define.formula.draft import name_of
from pullback.define.formula.formula import Formula, element
from pullback.define.line import Line, Name, Tensor


def with_dimension(formula: Formula, batched: Set[str], dimension: str) -> Formula:
    """Return a formula in which some tensors, and so all outputs, have one dimension more.

    Args:
        formula: a pointwise one.
        batched: the tensors that have the dimension.
        dimension: its name, which comes first.
    """
    line = formula.line
    made = line_with_dimension(line, batched, dimension)
    leaves = {
        element(old, line.qualname): element(new, line.qualname)
        for old, new in zip(line.tensors, made.tensors, strict=True)
    }
    return Formula(
        line=made,
        elements=replaced(formula.elements, leaves),
        dims=(Name(name=dimension), *formula.space.dims),
        accuracy=formula.accuracy,
        full=formula.full & batched,
    )


def line_with_dimension(
    line: Line, batched: Set[str], dimension: str, formula: str | None = None
) -> Line:
    """Return a line whose outputs and some of whose tensors have one dimension more, the first."""

    def wider(tensor: Tensor) -> Tensor:
        return replace(tensor, dims=(Name(name=dimension), *tensor.dims))

    return Line(
        namespace=line.namespace,
        name=name_of(line, "vmap"),
        parameters=tuple(
            wider(p) if isinstance(p, Tensor) and p.name in batched else p for p in line.parameters
        ),
        outputs=tuple(map(wider, line.outputs)),
        formula=formula,
    )
