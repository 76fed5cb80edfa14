"""The sizes of one call: of every name of a line, and of the indices that only a formula names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH, Affine, is_size
from pullback.define.math.node import INDEX, NUMBER, Node
from pullback.define.shape import Size, SizeMismatch, Sizes
from pullback.diagnostic import Rule

NegativeLimit = Rule("PB156", "negative-limit")


def with_counts(indexed: Formula, sizes: Sizes, arguments: Mapping[str, object]) -> Sizes:
    """Return the sizes of a call, to which its int scalars that count an index belong.

    Args:
        indexed: the operator.
        sizes: those that the inputs' shapes give.
        arguments: by name.

    Raises:
        PullbackError: PB156, such a scalar is negative.
    """
    if not indexed.counts:
        return sizes
    counts = {name: cast("Size", arguments[name]) for name in indexed.counts}
    for name, value in counts.items():
        # A symbolic one is asked for its sign by nobody: that would fix it, or could not be known.
        if type(value) is int and value < 0:
            raise NegativeLimit.error(
                f"{indexed.line.called}: '{name}' is {value}, and an index runs up to it",
                help="give 0, and the index has no values, or more",
            )
    return Sizes({**sizes.dims, **counts}, sizes.batch)


def sizes_of_call(indexed: Formula, sizes: Sizes) -> dict[str, Size]:
    """Return every size: of the line's names, of new indices, and of `...` taken together.

    Raises:
        PullbackError: PB112, a dimension has another size than the formula's indices run over: the
            `grad[i]` of a derivative that is called by itself.
    """
    known: dict[str, Size] = {**sizes.dims, BATCH: math.prod(sizes.batch)}
    for index, size in indexed.sizes.items():
        value = evaluate_size(size, known)
        if value is None:
            continue
        if known.setdefault(index, value) != value:
            raise SizeMismatch.error(
                f"{indexed.line.called}: dimension '{index}' is {known[index]}, "
                f"and its formula needs {value}"
            )
    return known


def evaluate_size(size: Affine, known: Mapping[str, Size]) -> Size | None:
    """Return a size as a number; None if a part of it is unknown, or an index."""
    total: Size = size.constant
    for term, factor in size.terms:
        value = term_of(term, known)
        if value is None:
            return None
        total = total + value * factor
    return total


def term_of(term: str | Node, known: Mapping[str, Size]) -> Size | None:
    """Return one part of a size as a number: of a dimension, or `(h - p)//2`, rounded down."""
    if isinstance(term, str):
        return known.get(term.strip("|")) if is_size(term) else None
    if term.op == NUMBER:
        return int(term.number)
    if term.op == INDEX:
        return evaluate_size(term.places[0], known)
    if term.op != "floor_divide":
        return None
    dividend, divisor = (term_of(arg, known) for arg in term.args)
    return None if dividend is None or divisor is None else dividend // divisor
