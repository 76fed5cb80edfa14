"""Complex numbers: conj() is missing, or a part is lost."""

from __future__ import annotations

import torch
from torch import Tensor

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample


class Conjugate(Hypothesis):
    """The gradient is right except for a conjugation of a factor, or of itself."""

    order = 22

    def explain(self, sample: Sample) -> Cause | None:
        """Conjugate either side or both."""
        if not sample.is_complex:
            return None
        pair, name = sample.pair, sample.name
        rows = signs(sample.returned)[pair.rows][:, None]
        columns = signs(sample.value)[pair.columns]
        tries = (
            (
                rows * pair.numeric * columns,
                sample.returned.is_complex() and sample.value.is_complex(),
                f"conj() is missing in the gradient of `{name}`: "
                "analytic = conj of the right factor",
            ),
            (
                pair.numeric * columns,
                sample.value.is_complex(),
                f"the gradient of `{name}` is the conjugate of the right one: conj() is missing",
            ),
            (
                rows * pair.numeric,
                sample.returned.is_complex(),
                f"the gradient of `{name}` conjugates the gradient that arrives: conj() is missing"
                " or stands at the wrong place",
            ),
        )
        for right, possible, text in tries:
            if possible and pair.same(pair.analytic, right):
                return Cause(
                    name="conj",
                    text=text,
                    help="for y = f(x) holomorphic, the gradient is grad * f'(x).conj()",
                    key=(text,),
                )
        return explain_lost_part(sample)


def explain_lost_part(sample: Sample) -> Cause | None:
    """Look for an imaginary or real part that is thrown away."""
    pair, name = sample.pair, sample.name
    for sign, part in ((1.0, "imaginary"), (-1.0, "real")):
        if sample.value.is_complex():
            kept = (signs(sample.value)[pair.columns] == sign).double()
            if pair.same(pair.analytic, pair.numeric * kept):
                return Cause(
                    name="part",
                    text=f"the {part} part of the gradient of `{name}` is lost (it is 0)",
                    help="the gradient of a complex input is complex",
                    key=(part,),
                )
        if sample.returned.is_complex():
            kept = (signs(sample.returned)[pair.rows] == sign).double()[:, None]
            if pair.same(pair.analytic, pair.numeric * kept):
                return Cause(
                    name="part",
                    text=f"the {part} part of the gradient that arrives is ignored for `{name}`",
                    help="use all of the complex gradient before taking a real part",
                    key=(part,),
                )
    return None


def signs(tensor: Tensor) -> Tensor:
    """Return 1 for real parts and -1 for imaginary ones, in the layout of a complex tensor."""
    if not tensor.is_complex():
        return torch.ones(tensor.numel(), dtype=torch.float64)
    return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(tensor.numel())
