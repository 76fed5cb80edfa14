"""A sum is missing: the missing or superfluous term has rank one in each row or block."""

from __future__ import annotations

import torch
from torch import Tensor

from pullback.verify.numbers.causes.features import format_multiple, recognise
from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Pair, Sample


class MissingSum(Hypothesis):
    """Outputs depend on several inputs, but backward uses fewer of them."""

    order = 33

    def explain(self, sample: Sample) -> Cause | None:
        """Look for dependences that backward does not know."""
        pair = sample.pair
        depends, used = pair.numeric != 0, pair.analytic != 0
        lost = depends & ~used
        # A dependence smaller than rounding does not count.
        lost &= pair.numeric.abs() > 1e-3 * pair.numeric.abs().max()
        if lost.sum() < 0.4 * depends.sum() or (used & ~depends).any() or not used.any():
            return None
        if not used.any(1)[depends.any(1)].all() or not used.any(0)[depends.any(0)].all():
            return None  # whole rows or columns: not a term is missing there, but the gradient
        axes = axes_of(lost, pair, sample)
        over = f" over axis {axes[0]}" if len(axes) == 1 else (f" over axes {axes}" if axes else "")
        name = sample.name
        few = int(used.sum(1).max())
        own = "only its own element" if few == 1 else f"only {few} of them"
        row = "its row" if len(axes) <= 1 else "its block"
        return Cause(
            name="missing sum",
            text=f"each output element depends on several elements of `{name}` ({row}), but "
            f"backward uses {own}: a sum{over} is missing{describe_term(sample)}",
            help="the derivative of a normalisation, a softmax or a mean has a term that sums "
            "grad over the same axis",
            key=tuple(axes),
        )


class WrongTerm(Hypothesis):
    """The difference is an outer product in each block, as from a sum over a row."""

    order = 45

    def explain(self, sample: Sample) -> Cause | None:
        """Look for a difference of rank one."""
        found = describe_term(sample)
        if not found:
            return None
        return Cause(
            name="wrong term",
            text=f"a term with a sum is missing or wrong in the gradient of `{sample.name}`{found}",
            help="derive the terms of each mean, variance or normaliser once more",
        )


def axes_of(lost: Tensor, pair: Pair, sample: Sample) -> list[int]:
    """Return the axes along which inputs are left out, seen from the output's place."""
    inner, outer = sample.value.shape, sample.returned.shape
    if len(inner) != len(outer) or sample.is_complex:
        return []
    rows, columns = lost.nonzero(as_tuple=True)
    here = torch.unravel_index(pair.rows[rows], outer)
    there = torch.unravel_index(pair.columns[columns], inner)
    return [axis for axis in range(len(inner)) if bool((here[axis] != there[axis]).any())]


def describe_term(sample: Sample) -> str:
    """Return the term that is missing, ": -y * sum(grad * y)", if it can be recognised."""
    pair = sample.pair
    if sample.is_complex or not pair.known.all():
        return ""
    rest = pair.numeric - pair.analytic
    texts: set[str] = set()
    for rows, columns in find_blocks(rest, 10 * pair.tolerance * float(pair.numeric.abs().max())):
        if len(rows) < 2 or len(columns) < 2:
            return ""
        block = rest[rows][:, columns]
        left, values, right = torch.linalg.svd(block)
        if values[1] > 1e-4 * values[0]:
            return ""
        tolerance = max(pair.tolerance, 1e-6)
        a = recognise(left[:, 0], sample, sample.returned, pair.rows[rows], tolerance)
        b = recognise(right[0], sample, sample.value, pair.columns[columns], tolerance)
        if a is None or b is None:
            texts.add(" (the difference has rank one in each block: a sum times a vector)")
            continue
        c = float(values[0]) * a[1] * b[1]
        inside = "grad" if a[0] == "1" else f"grad * {a[0]}"
        texts.add(f": {format_multiple(c, b[0]) if b[0] != '1' else f'{c:.4g}'} * sum({inside})")
    first = sorted(texts)
    return first[0] if first else ""


def find_blocks(matrix: Tensor, floor: float) -> list[tuple[Tensor, Tensor]]:
    """Return the rows and columns of a matrix's blocks."""
    used = matrix.abs() > floor
    left = set(used.any(1).nonzero()[:, 0].tolist())
    found: list[tuple[Tensor, Tensor]] = []
    while left:
        rows = torch.zeros(len(matrix), dtype=torch.bool)
        rows[min(left)] = True
        while True:
            columns = used[rows].any(0)
            more = used[:, columns].any(1)
            if torch.equal(more, rows):
                break
            rows = more | rows
        found.append((rows.nonzero()[:, 0], columns.nonzero()[:, 0]))
        left -= set(rows.nonzero()[:, 0].tolist())
    return found
