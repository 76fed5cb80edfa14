"""Right for some elements and wrong for others: which ones, by index or by value."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Pair, Sample


class WrongElements(Hypothesis):
    """Wrong elements that an index or a threshold of the input determines."""

    order = 34

    def explain(self, sample: Sample) -> Cause | None:
        """Split the columns, then the rows."""
        if sample.is_complex:
            return None
        pair = sample.pair
        wrong, used = pair.wrong, (pair.numeric != 0) | (pair.analytic != 0)
        for axis, like, indices in (
            (0, sample.value, pair.columns),
            (1, sample.returned, pair.rows),
        ):
            # A line of the Jacobian is right if all of it is.
            bad, there = wrong.any(axis), used.any(axis)
            if not bad.any() or not (there & ~bad).any():
                continue
            what = f"`{sample.name}`" if axis == 0 else "the output"
            for text, key in splits(bad[there], indices[there], like, what, sample, axis):
                return Cause(
                    name="region",
                    text=f"the gradient of `{sample.name}` is {text}: "
                    f"{describe_wrong(pair, wrong)}",
                    help="look at the branch, mask, index or block of backward that treats these "
                    "elements",
                    key=key,
                )
        return None


def splits(  # noqa: PLR0913, PLR0917  (what is split, and how it is told)
    bad: Tensor, indices: Tensor, like: Tensor, what: str, sample: Sample, axis: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield descriptions of the wrong elements among some."""
    places = torch.unravel_index(indices, like.shape) if like.dim() else ()
    for dim, place in enumerate(places):
        inside, outside = place[bad], place[~bad]
        own = f"the indices along axis {dim} of {what}"
        low, high = int(inside.min()), int(inside.max())
        if low > int(outside.max()):
            yield f"wrong from index {low} on along axis {dim} of {what} (the tail)", (axis, dim, 1)
        elif high < int(outside.min()):
            yield f"wrong up to index {high} along axis {dim} of {what}", (axis, dim, -1)
        elif low == high and not (outside == low).any():
            yield f"wrong at index {low} along axis {dim} of {what}", (axis, dim, 0)
        elif not torch.isin(inside % 2, outside % 2).any():
            yield f"wrong for {'odd' if low % 2 else 'even'} ones of {own}", (axis, dim, 2)
    if len(bad) >= 4:
        yield from thresholds(bad, indices, like, sample, axis)


def thresholds(
    bad: Tensor, indices: Tensor, like: Tensor, sample: Sample, axis: int
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield a threshold of a value that separates the wrong elements from the right ones."""
    named = [(f"`{leaf.name}`", leaf.value) for leaf in sample.call.leaves]
    for name, tensor in [*named, ("the output", sample.returned)]:
        if tensor.is_complex() or tensor.shape != like.shape:
            continue
        for shown, values in ((name, tensor), (f"|{name}|", tensor.abs())):
            value = values.double().reshape(-1)[indices]
            inside, outside = value[bad], value[~bad]
            if inside.min() > outside.max():
                text = f"right for {shown} <= {float(outside.max()):.3g} and wrong for {shown} >= "
                yield f"{text}{float(inside.min()):.3g}", (axis, name, 1)
            elif inside.max() < outside.min():
                text = f"right for {shown} >= {float(outside.min()):.3g} and wrong for {shown} <= "
                yield f"{text}{float(inside.max()):.3g}", (axis, name, -1)


def describe_wrong(pair: Pair, wrong: Tensor) -> str:
    """Say what the wrong elements are."""
    found, right = pair.analytic[wrong], pair.numeric[wrong]
    if not found.any():
        return f"0 instead of {float(right[0]):.4g}"
    c = float(found @ right) / max(float(right @ right), 1e-300)
    if float((found - c * right).norm()) <= 30 * pair.tolerance * float(found.norm()):
        return f"{c:.4g} x the true one there ({float(found[0]):.4g} for {float(right[0]):.4g})"
    return f"{float(found[0]):.4g} instead of {float(right[0]):.4g}"


class Spread(Hypothesis):
    """Backward gives gradients to elements that the output does not depend on."""

    order = 50

    def explain(self, sample: Sample) -> Cause | None:
        """Look for elements that forward does not use."""
        pair = sample.pair
        extra = (pair.analytic != 0) & (pair.numeric == 0) & pair.known
        if extra.sum() < 0.2 * (pair.analytic != 0).sum() or not pair.numeric.any():
            return None
        lost = (pair.analytic == 0) & (pair.numeric != 0)
        what = (
            "other elements than those it depends on: the gradient is summed or indexed along the "
            "wrong axis"
            if lost.any()
            else "more elements than those it depends on: a mask, an index or a diagonal is missing"
        )
        return Cause(
            name="spread",
            text=f"backward passes the gradient of an output element on to elements of "
            f"`{sample.name}` that it does not depend on, {what}",
            help="compare the axes and indices of backward with those of forward",
            key=(bool(lost.any()),),
        )
