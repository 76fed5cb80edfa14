"""Recurrences of tensors that are halves, or have no dimensions: their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pullback as pb

LRU = "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"


@pytest.fixture(scope="session")
def lru() -> pb.Operator:
    return pb.operator(f"halves::lru{LRU}")


@pytest.mark.parametrize("length", [5, 200])  # by PyTorch's operations, and by loops
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_halves_are_computed_in_float32(
    lru: pb.Operator, dtype: torch.dtype, length: int, seed: int
) -> None:
    shapes = (2, length, 32), (2, length, 32), (2, 32)
    halves = [torch.rand(shape).to(dtype) for shape in shapes]
    grad = torch.rand(shapes[0]).to(dtype)

    def gradients(tensors: list[Tensor]) -> tuple[Tensor, ...]:
        leaves = [tensor.requires_grad_() for tensor in tensors]
        return torch.autograd.grad(lru(*leaves), leaves, grad.to(leaves[0].dtype))

    wide = gradients([half.float() for half in halves])
    found = gradients(halves)
    # The states that arrive going back are rounded at the end, not between the steps.
    assert torch.equal(found[1], wide[1].to(dtype))
    # Of this one h is a factor, which the forward rounded.
    torch.testing.assert_close(found[0], wide[0].to(dtype))


def test_a_batch_without_dimensions_may_have_a_tensor_without_any() -> None:
    decay = pb.operator("halves::decay(x[..., t], r[...]) -> y[..., t] = r*pad(y[t - 1]) + x")
    x, r = torch.tensor([1.0, 0, 0, 2]), torch.tensor(0.5, requires_grad=True)
    y = decay(x, r)
    assert y.tolist() == [1, 0.5, 0.25, 2.125]
    # Of 1 + r + r**2 + r**3 + 2.
    assert torch.autograd.grad(y.sum(), r)[0].item() == pytest.approx(1 + 2 * 0.5 + 3 * 0.25)
