"""Attention by its structure, for what computes it as one operation.

Whatever a line calls its tensors, and in whatever order its dimensions are: in passes over blocks
it is a maximum of products of matrices, and two sums of the same exponentials under it, one of them
weighted, which the output divides by the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pullback.define.math.index import BATCH, at
from pullback.define.math.node import (
    MAX,
    NUMBER,
    READ,
    SCALAR,
    SUM,
    Node,
    index,
    is_number,
    rename_index,
)
from pullback.define.math.passes import Passes, Statistic
from pullback.define.math.term import Term, split_sum, term_of

# The index of what is summed over within scores.
FEATURE = "feature"
# A tensor's name, and the indices of its dimensions.
Read = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """A softmax of scores between rows and columns, times values.

    Attributes:
        query: the tensor of the queries.
        key: of the keys.
        value: of the values.
        output: the indices of the output.
        batch: the other indices of the queries: first those that keys and values have too, then
            those of the queries that share keys, such as the heads of a group.
        shared: how many of these keys and values have.
        rows: the index of the queries.
        columns: that of the keys and values.
        width: that of the values' features.
        factor: a number that scores are multiplied by.
        over: scalars that they are multiplied by.
        under: scalars that they are divided by.
        is_causal: whether a row sees the columns up to its own place alone.
    """

    query: Read
    key: Read
    value: Read
    output: tuple[str, ...]
    batch: tuple[str, ...]
    shared: int
    rows: str
    columns: str
    width: str
    factor: float
    over: tuple[str, ...]
    under: tuple[str, ...]
    is_causal: bool

    @property
    def tensors(self) -> tuple[Read, ...]:
        """The queries, the keys and the values."""
        return self.query, self.key, self.value


@dataclass(frozen=True, kw_only=True)
class Attending:
    """A formula that is an attention, and what each of its outputs is.

    Attributes:
        attention: what it computes.
        outputs: of each output "value", "most" or "total": the maximum of a row, or its sum.
        labels: of each output the indices.
    """

    attention: Attention
    outputs: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]


class _Other(Exception):  # noqa: N818  (it is caught here)
    """A formula is something else."""


def _require(condition: object) -> None:
    if not condition:
        raise _Other


def find_attention(whole: Passes) -> Attending | None:
    """Return the attention that a formula in passes is; None if it is another one."""
    try:
        return _find(whole)
    except _Other:
        return None


def _find(whole: Passes) -> Attending:
    first = term_of(whole.elements[0])
    _require(len(whole.statistics) == 3 and not first.conditions and first.factor == 1)
    _require(len(first.over) == len(first.under) == 1)
    names = [part.name if part.op == READ else "" for part in (*first.over, *first.under)]
    known = {own.name: own for own in whole.statistics}
    _require(len(names) == len(set(names) & known.keys()))
    weighted, total = (known.pop(name) for name in names)
    [most] = known.values()
    kinds = {most.name: "most", total.name: "total"}
    rest = [kinds.get(e.name, "") if e.op == READ else "" for e in whole.elements[1:]]
    _require("" not in rest)
    # Blocks may be taken of heads in place of rows.
    candidates = dict.fromkeys((*(most.pair - {most.index}), *reversed(most.labels)))
    found = (_match_rows(whole.labels[0], most, weighted, total, rows) for rows in candidates)
    attention = next((own for own in found if own), None)
    if attention is None:
        raise _Other
    return Attending(
        attention=attention,
        outputs=("value", *rest),
        labels=whole.labels,
    )


def _match_rows(
    output: tuple[str, ...], most: Statistic, weighted: Statistic, total: Statistic, rows: str
) -> Attention | None:
    """Return an attention with some index as its rows; None if it is none."""
    try:
        return _match(output, most, weighted, total, rows)
    except _Other:
        return None


def _match(
    output: tuple[str, ...], most: Statistic, weighted: Statistic, total: Statistic, rows: str
) -> Attention:
    columns = most.index
    _require(rows != BATCH)
    _require((most.op, weighted.op, total.op) == (MAX, SUM, SUM))
    _require(weighted.index == total.index == columns)
    value = _weights(most, weighted, total)
    scaled, is_causal = _scores(most.body, rows, columns)
    query, key = _factors(scaled, columns)
    widths = [label for label in weighted.labels if label not in most.labels]
    _require(len(widths) == 1)
    every = [label for label in output if label not in (rows, *widths)]
    shared = [label for label in every if label in key[1]]
    batch = (*shared, *(label for label in every if label not in shared))
    for labels, own, last in (
        (query[1], batch, (rows, FEATURE)),
        (key[1], shared, (columns, FEATURE)),
        (value[1], shared, (columns, *widths)),
        (output, batch, (rows, *widths)),
    ):
        _require(sorted(labels) == sorted((*own, *last)))
    divisor = math.prod(f.number for f in scaled.under if f.op == NUMBER)
    _require(divisor)
    return Attention(
        query=query,
        key=key,
        value=value,
        output=output,
        batch=batch,
        shared=len(shared),
        rows=rows,
        columns=columns,
        width=widths[0],
        factor=scaled.factor * math.prod(f.number for f in scaled.over if f.op == NUMBER) / divisor,
        over=_scalars(scaled.over),
        under=_scalars(scaled.under),
        is_causal=is_causal,
    )


def _weights(most: Statistic, weighted: Statistic, total: Statistic) -> Read:
    """Return the values that exponentials of scores under their maximum are multiplied by."""
    exponential = total.body
    _require(exponential.op == "exp")
    _require(list(split_sum(exponential.args[0])) == [(1, most.body), (-1, most.node)])
    product = term_of(weighted.body)
    _require(product.factor == 1 and not (product.under or product.conditions))
    values = [factor for factor in product.over if factor is not exponential]
    _require(len(product.over) == 2 and len(values) == 1)
    return _read(values[0])


def _scores(scores: Node, rows: str, columns: str) -> tuple[Term, bool]:
    """Return a product of matrices with its scale, and whether a row sees what came before."""
    is_causal = scores.op == "where"
    if is_causal:
        row, column = (index(at(name)) for name in (rows, columns))
        condition, scores, other = scores.args
        before = (("le", (column, row)), ("ge", (row, column)))
        _require((condition.op, condition.args) in before and is_number(other, -math.inf))
    scaled = term_of(scores)
    others = [*(f for f in scaled.over if f.op != SUM), *scaled.under]
    _require(len(others) == len(scaled.over) + len(scaled.under) - 1 and not scaled.conditions)
    _require(all(factor.op in (SCALAR, NUMBER) for factor in others))
    return scaled, is_causal


def _factors(scaled: Term, columns: str) -> tuple[Read, Read]:
    """Return the queries and the keys of scores."""
    [contracted] = [factor for factor in scaled.over if factor.op == SUM]
    body = term_of(rename_index(contracted.args[0], contracted.bound, FEATURE))
    _require(len(body.over) == 2 and body.factor == 1 and not (body.under or body.conditions))
    query, key = sorted(body.over, key=lambda factor: columns in factor.free)
    return _read(query), _read(key)


def _read(node: Node) -> Read:
    """Return a tensor's name and the indices that it is read at."""
    _require(node.op == READ and all(place.index for place in node.places))
    return node.name, tuple(place.index or "" for place in node.places)


def _scalars(factors: Iterable[Node]) -> tuple[str, ...]:
    return tuple(factor.name for factor in factors if factor.op == SCALAR)
