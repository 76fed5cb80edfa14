"""A factor of each element, or a term, that is a known function of an input or the output."""

from __future__ import annotations

import torch
from torch import Tensor

from pullback.verify.numbers.causes.features import format_multiple, recognise
from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Pair, Sample


class ElementFactor(Hypothesis):
    """Each input's or each output's elements have a factor of their own."""

    order = 40

    def explain(self, sample: Sample) -> Cause | None:
        """Look for columns, then for rows, that are multiples of the right ones."""
        if sample.is_complex:
            return None
        pair = sample.pair
        for axis, like, indices in (
            (0, sample.value, pair.columns),
            (1, sample.returned, pair.rows),
        ):
            factor = factors(pair, axis)
            if factor is None:
                continue
            ratio, used = factor
            found = recognise(1 / ratio, sample, like, indices[used], pair.tolerance)
            if found and found[0] != "1":
                what = format_multiple(found[1], found[0])
                return cause(sample, f"a factor {what} is missing", found[0])
            found = recognise(ratio, sample, like, indices[used], pair.tolerance)
            if found and found[0] != "1":
                what = format_multiple(found[1], found[0])
                return cause(sample, f"a factor {what} is too many", found[0])
        return None


def cause(sample: Sample, what: str, key: str) -> Cause:
    """Return the cause of an element's own factor."""
    return Cause(
        name="element factor",
        text=f"the gradient of `{sample.name}` has the right elements and a wrong factor depending "
        f"on the value: {what}",
        help="compare this factor with the chain rule of forward",
        key=(what.rsplit(maxsplit=1)[-1], key),
    )


def factors(pair: Pair, axis: int) -> tuple[Tensor, Tensor] | None:
    """Return the factors that turn each column (axis 0) or row (1) into backward's."""
    square = pair.numeric.square().sum(axis)
    used = square > 0
    if int(used.sum()) < 3:
        return None
    ratio = (pair.analytic * pair.numeric).sum(axis)[used] / square[used]
    scaled = torch.zeros_like(square)
    scaled[used] = ratio
    fitted = pair.numeric * (scaled if axis == 0 else scaled[:, None])
    if not pair.same(pair.analytic, fitted) or not ratio.all():
        return None
    return ratio, used


class ElementFormula(Hypothesis):
    """Each element is multiplied by a known function, but by the wrong one."""

    order = 42

    def explain(self, sample: Sample) -> Cause | None:
        """Recognise backward's factor; fall back to the range of the wrong factors."""
        pair = sample.pair
        factor = None if sample.is_complex else factors(pair, 0)
        if factor is None:
            return None
        used = factor[1]
        what = f"{float(factor[0].min()):.3g} to {float(factor[0].max()):.3g} x the true one"
        if pair.same(pair.numeric, torch.diag(pair.numeric.diag())) and pair.whole:
            names = [
                recognise(m.diag()[used], sample, sample.value, pair.columns[used], pair.tolerance)
                for m in (pair.analytic, pair.numeric)
            ]
            found, right = (
                None if own is None else format_multiple(own[1], own[0]) for own in names
            )
            if found and right:
                what = f"grad * {found} where grad * {right} is right"
        return Cause(
            name="element factor",
            text=f"the gradient of `{sample.name}` has the right elements and a wrong factor that "
            f"depends on the value: {what}",
            help="the derivative is another function, or the wrong tensor is saved",
        )


class ElementTerm(Hypothesis):
    """On the diagonal a term is missing, or there is one too many."""

    order = 41

    def explain(self, sample: Sample) -> Cause | None:
        """Recognise the difference."""
        pair = sample.pair
        if sample.is_complex or sample.value.shape != sample.returned.shape or not pair.whole:
            return None
        rest = pair.numeric - pair.analytic
        if not pair.same(rest, torch.diag(rest.diag())):
            return None
        found = recognise(rest.diag(), sample, sample.value, pair.columns, pair.tolerance)
        if found is None:
            return None
        what = format_multiple(found[1], found[0])
        return Cause(
            name="element term",
            text=f"a term is missing in the gradient of `{sample.name}`: grad * ({what})",
            help="a product rule has a term for each factor, and an input that is used twice one "
            "for each use",
            key=(found[0], round(found[1], 3)),
        )
