"""Recurrences of tensors that are halves, have no dimensions, or dtypes of their own."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

import pullback as pb

LRU = "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"

define = functools.cache(pb.operator)


@pytest.fixture(scope="session")
def lru() -> pb.Operator:
    return define(f"halves::lru{LRU}")


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


# Each state's dtype, how it becomes what it is, and an output that reads it.
TYPED = {
    "counts": ("c[t, d]: int64", "pad(c[t - 1, d]) + int(x > 0)", "x*c"),
    "counts of 32 bits": ("c[t, d]: int32", "pad(c[t - 1, d]) + int(x > 0)", "x*c"),
    "conditions": ("c[t, d]: bool", "pad(c[t - 1, d], False) or x > 1", "where(c, x, 0)"),
    "the last count": ("c[t, d]: int64", "pad(c[t - 1, d]) + 1", "x*c[size(t) - 1, d]"),
    "wide": ("c[t, d]: float64", "pad(c[t - 1, d]) + int(x > 0)", "x*c"),
}


@pytest.mark.parametrize("length", [1, 3, 200])  # by PyTorch's operations, and by loops
@pytest.mark.parametrize("name", TYPED)
def test_an_output_may_read_a_state_of_any_dtype(name: str, length: int, seed: int) -> None:
    state, step, output = TYPED[name]
    line = f"(x[t, d]) -> ({state}, y[t, d]: float32) = c = {step}; y = {output}"
    op = define(f"typed::{name.replace(' ', '_')}{line}")
    x = torch.randn(length, 24, requires_grad=True)
    states, y = op(x)
    counts = (x > 0).cumsum(0) if "int(x" in step else torch.arange(1, length + 1)[:, None]
    expected: Tensor = ((x > 1).cumsum(0) > 0) if "bool" in state else counts.expand(x.shape)
    torch.testing.assert_close(states, expected.to(states.dtype))
    factor = expected[-1:] if "last" in name else expected
    torch.testing.assert_close(y, x.detach() * factor)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], factor.expand(x.shape).float())


@pytest.mark.parametrize("length", [3, 200])
@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float32", "float64")])
def test_a_line_may_name_the_dtypes_of_its_tensors(dtypes: tuple[str, str], length: int) -> None:
    first, second = dtypes
    op = define(
        f"typed::named_{first}(x[t, d]: {first}, m[d]: {second}) -> (s[t, d], y[t, d], z[d])"
        " = q[t, d] = sum[k](x[t, k]*m[k]); s = pad(s[t - 1, d])/2 + x + q; y = s*m*x;"
        " z = sum[t](s[t, d])*m"
    )
    x, m = torch.rand(length, 24).to(getattr(torch, first)), torch.rand(24)
    m = m.to(getattr(torch, second))
    found = op(x, m)
    s, states = torch.zeros(24).double(), list[Tensor]()
    for row in x.double():
        s = s / 2 + row + (row * m.double()).sum()
        states.append(s)
    whole = torch.stack(states)
    expected = whole, whole * m.double() * x.double(), whole.sum(0) * m.double()
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other.to(own.dtype), rtol=1e-5, atol=1e-5)
