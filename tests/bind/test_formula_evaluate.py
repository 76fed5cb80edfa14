"""A formula by PyTorch's operations, as it runs on a device that has no loops."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.dense import elements

pytestmark = pytest.mark.compiler
numbers = itertools.count()


@pytest.mark.parametrize(
    "formula",
    ["(y[...], z[...]) = x, x", "(y[...], z[...]) = t = 2 * x; y = t; z = t", "y[...] = x + 0 * w"],
)
def test_outputs_share_no_memory(formula: str) -> None:
    line = f"pbevaluate::f{next(numbers)}(x[...], w[...]) -> {formula}"
    run = elements.kernel_of(pb.operator(line).definition)
    x, w = torch.ones(2, 3), torch.ones(3)
    # As below the runtime's autograd kernel, where PyTorch does not say what is a view.
    with torch._C._AutoDispatchBelowADInplaceOrView():
        found = run(x, w)
    outputs = found if isinstance(found, tuple) else (found,)
    tensors = [tensor for tensor in (x, w, *outputs) if isinstance(tensor, Tensor)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 2 + len(outputs)
    assert all(tensor.is_contiguous() for tensor in tensors)
