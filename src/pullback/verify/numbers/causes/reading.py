"""Not all of the gradient that arrives is read: only its first element, or its sum or mean."""

from __future__ import annotations

import torch
from torch import Tensor

from pullback.verify.numbers.causes.hypothesis import Cause, Hypothesis
from pullback.verify.numbers.causes.sample import Sample


class OneElement(Hypothesis):
    """Backward reads a single element, as `grad[0]` or `grad.item()` do."""

    order = 12

    def explain(self, sample: Sample) -> Cause | None:
        """Look for an analytic Jacobian of one row."""
        pair = sample.pair
        used = pair.analytic.ne(0).any(1)
        if int(used.sum()) != 1 or pair.numeric.ne(0).any(1).sum() < 3:
            return None
        row = int(used.nonzero()[0, 0])
        if pair.analytic[row].ne(0).sum() <= pair.numeric[row].ne(0).sum():
            return None  # some of the elements, not one for all
        index = position_of(int(pair.rows[row]), sample.returned)
        return Cause(
            name="one element of grad",
            text=f"only element {index} of the gradient that arrives is read for `{sample.name}`",
            help="grad has the shape of the output and other values in each element: use all of it",
            key=(row,),
        )


class SumOfAll(Hypothesis):
    """All elements of the gradient are treated alike, as after grad.sum() or grad.mean()."""

    order = 13

    def explain(self, sample: Sample) -> Cause | None:
        """Look for equal rows."""
        pair = sample.pair
        if pair.analytic.shape[0] < 2 or not pair.known.all():
            return None
        mean = pair.analytic.mean(0, keepdim=True).expand_as(pair.analytic)
        if not pair.analytic.any() or not pair.same(pair.analytic, mean):
            return None
        return Cause(
            name="sum of grad",
            text=f"only the sum or the mean of the gradient that arrives is used for "
            f"`{sample.name}`: all output elements count alike",
            help="use grad element by element",
        )


def position_of(index: int, tensor: Tensor) -> list[int]:
    """Return where an element of a flattened tensor is."""
    index = index // 2 if tensor.is_complex() else index
    return [int(i) for i in torch.unravel_index(torch.tensor(index), tensor.shape)]
