"""Which dimensions of an operator may be split over processes, as far as its line alone tells.

An operator acts on each element along `...` separately, and a pointwise formula does so along every
dimension; so each process may compute its part. A gradient is a sum over the dimensions it lacks.
`math/sharding.py` knows more about index notation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pullback.define.line import Line, Tensor
from pullback.define.math.formula import Formula
from pullback.define.math.index import BATCH

# How what processes have makes the whole.
Over = Literal["sum", "max", "min"]


class RefusedSplit(Exception):  # noqa: N818  (it is an answer: the reason)
    """Why something may not be split."""


@dataclass(frozen=True)
class Replicate:
    """Every process has all of it."""

    def __str__(self) -> str:
        return "all"


@dataclass(frozen=True)
class Shard:
    """Every process has a part of one dimension.

    Attributes:
        dim: which; from the end, -1 the last, where batch dimensions stand before it. In a rule for
            `...` it is the last of the batch dimensions.
    """

    dim: int

    def __str__(self) -> str:
        return f"shard({self.dim})"


@dataclass(frozen=True)
class Partial:
    """Every process has something of its size; the sum or maximum of them all is the tensor."""

    by: Over = "sum"

    def __str__(self) -> str:
        return f"partial({self.by})"


Placement = Replicate | Shard | Partial


@dataclass(frozen=True, kw_only=True)
class Placements:
    """One way to split an operator, or why it is refused.

    Attributes:
        split: what is split: a dimension, `...` (any batch dimension); or "partial x, y", tensors
            that arrive as partial sums.
        inputs: what each process is given, by the name of the tensor. A tensor that all processes
            have may become partial: one process keeps it, and the others take zeros.
        outputs: what each output then is; meaningless for one that is not wanted.
        reason: why this may not be done; None if it may.
    """

    split: str
    inputs: Mapping[str, Placement] = field(default_factory=dict[str, Placement])
    outputs: tuple[Placement, ...] = ()
    reason: str | None = None

    @property
    def note(self) -> str:
        """What processes merge on the way."""
        return ""


def of_formula(formula: Formula) -> list[Placements]:
    """Return the ways to split a pointwise formula: every dimension that has one size."""
    line = formula.line
    dims = dict.fromkeys(label.rstrip("'") for label in formula.space.labels)
    return [_split(line, dim) for dim in dims if not dim.isdecimal()]


def of_line(line: Line) -> list[Placements]:
    """Return the ways to split an operator when only its line is known: along `...`.

    A named dimension is refused: `x[..., n] -> y[..., n]` may be a softmax along n.
    """
    names = dict.fromkeys(label.rstrip("'") for tensor in line.tensors for label in tensor.labels)
    return [
        Placements(split=name, reason=reason) if reason else _split(line, name)
        for name in names
        if not name.isdecimal()
        for reason in [_reason(line, name)]
    ]


def _reason(line: Line, dim: str) -> str | None:
    """Return why a process cannot compute its part of a dimension; None if it can.

    An output without `...` is a function of all elements, and so is its gradient; but the gradient
    of an input without `...` is a sum over them.
    """
    if dim != BATCH:
        return "a kernel promises to act on each element separately only along `...`"
    arriving = [t for t in line.tensors if t.name == "grad" or t.name.startswith("grad_")]
    is_gradient = arriving and all(output.name.startswith("grad_") for output in line.outputs)
    lacking = [t.name for t in (arriving if is_gradient else line.outputs) if not t.has_batch]
    return f"{lacking[0]} has no `...`" if lacking else None


def _split(line: Line, dim: str) -> Placements:
    """Return the effect of splitting one dimension: an output that lacks it is a sum over it."""
    try:
        inputs = {tensor.name: part(tensor, [dim]) for tensor in line.tensors}
        parts = [part(output, [dim]) for output in line.outputs]
    except RefusedSplit as refused:
        return Placements(split=dim, reason=str(refused))
    outputs = tuple(Partial() if placed == Replicate() else placed for placed in parts)
    return Placements(split=dim, inputs=inputs, outputs=outputs)


def part(tensor: Tensor, indices: Collection[str]) -> Placement:
    """Return a process's part of a tensor some of whose indices are split."""
    labels = tensor.labels
    places = [place for place, label in enumerate(labels) if label.rstrip("'") in indices]
    if len(places) > 1:
        raise RefusedSplit(f"{tensor.name} has it twice")
    if not places:
        return Replicate()
    [place] = places
    after = BATCH in labels[: place + 1]
    return Shard(place - len(labels) if after else place)


def format_table(found: Sequence[Placements], line: Line) -> str:
    """Return the ways to split an operator as a table."""
    names = [tensor.name for tensor in line.tensors]
    notes = any(rule.note for rule in found)
    head = ["split", *names, "->", *(output.name for output in line.outputs)]
    rows = [[*head, "merged"] if notes else head]
    refused: list[list[str]] = []
    for rule in found:
        if rule.reason is None:
            inputs = [str(rule.inputs.get(name, "none")) for name in names]
            row = [rule.split, *inputs, "->", *map(str, rule.outputs)]
            rows.append([*row, rule.note] if notes else row)
        else:
            refused.append([rule.split, f"refused: {rule.reason}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first = max([widths[0], *(len(row[0]) for row in refused)])
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, [first, *widths[1:]], strict=True))
        for row in rows
    ]
    text += [f"{split.ljust(first)}  {reason}" for split, reason in refused]
    return "\n".join(part.rstrip() for part in text)
