"""The sizes of one call: of every name of a line, and of the indices that only a formula names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pullback.define.formula.index import BATCH, Affine
from pullback.define.formula.node import Node
from pullback.define.index.indexed import Indexed
from pullback.define.shape import Size, SizeMismatch, Sizes


def of_call(indexed: Indexed, sizes: Sizes) -> dict[str, Size]:
    """Return every size: of the line's names, of new indices, and of `...` taken together.

    Raises:
        PullbackError: PB112, a dimension has another size than the formula's indices run over: the
            `grad[i]` of a derivative that is called by itself.
    """
    known: dict[str, Size] = {**sizes.dims, BATCH: math.prod(sizes.batch)}
    for index, size in indexed.sizes.items():
        value = evaluated(size, known)
        if value is None:
            continue
        if known.setdefault(index, value) != value:
            raise SizeMismatch.error(
                f"{indexed.line.qualname}: dimension '{index}' is {known[index]}, "
                f"and its formula needs {value}"
            )
    return known


def evaluated(size: Affine, known: Mapping[str, Size]) -> Size | None:
    """Return a size as a number; None if something in it is not known."""
    total: Size = size.constant
    for term, factor in size.terms:
        value = known.get(term.strip("|")) if isinstance(term, str) else _quotient(term, known)
        if value is None:
            return None
        total = total + value * factor
    return total


def _quotient(node: Node, known: Mapping[str, Size]) -> Size | None:
    """Return a size that is divided: `(h - p)//2`, rounded down."""
    if node.op == "number":
        return int(node.number)
    if node.op == "index":
        return evaluated(node.places[0], known)
    assert node.op == "floor_divide", node
    dividend, divisor = (_quotient(arg, known) for arg in node.args)
    return None if dividend is None or divisor is None else dividend // divisor
