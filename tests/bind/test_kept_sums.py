"""Sums over states that a recorded call of a recurrence keeps for its gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import pullback as pb
from pullback.bind.operator import Operator

GATED = (
    "gated(x[b, t, 2, d], w[2, d, d]) -> h[b, t, d] = "
    "z[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "n[b, t, d] = tanh(x[b, t, 1, d] + z*sum[j](w[1, d, j]*pad(h[b, t - 1, j]))); "
    "h = (1 - z)*n + z*pad(h[b, t - 1, d])"
)
FIRST = (
    GATED.replace("gated", "first")
    .replace("w[2, d, d])", "w[2, d, d], h0[b, d])")
    .replace("pad(h[b, t - 1, j])", "h[b, t - 1, j]")
    .replace("pad(h[b, t - 1, d])", "h[b, t - 1, d]; h[b, -1, d] = h0")
)
# The sum of `c`, which is no output, is computed again with it.
CELL = (
    "cell(x[b, t, 2, d], w[2, d, d]) -> h[b, t, d] = "
    "f[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "c[b, t, d] = f*pad(c[b, t - 1, d]) + sum[j](w[1, d, j]*pad(c[b, t - 1, j]))/9 + x[b, t, 1, d];"
    " h = tanh(c)"
)


THOROUGH = pytest.mark.thorough


def gated(x: Tensor, w: Tensor, h0: Tensor | None = None) -> Tensor:
    h = torch.zeros_like(x[:, 0, 0]) if h0 is None else h0
    found: list[Tensor] = []
    for given in x.unbind(1):
        z = (given[:, 0] + h @ w[0].T).sigmoid()
        n = (given[:, 1] + z * (h @ w[1].T)).tanh()
        h = (1 - z) * n + z * h
        found.append(h)
    return torch.stack(found, 1)


def cell(x: Tensor, w: Tensor) -> Tensor:
    h, c, found = torch.zeros_like(x[:, 0, 0]), torch.zeros_like(x[:, 0, 0]), list[Tensor]()
    for given in x.unbind(1):
        f = (given[:, 0] + h @ w[0].T).sigmoid()
        c = f * c + c @ w[1].T / 9 + given[:, 1]
        h = c.tanh()
        found.append(h)
    return torch.stack(found, 1)


@cache
def operator(line: str) -> Operator:
    return pb.operator(f"test::summed_{line}")


def saved_by(call: Callable[[], object]) -> list[tuple[torch.Size, torch.dtype]]:
    """Return what a call saves."""
    found: list[tuple[torch.Size, torch.dtype]] = []
    with saved_tensors_hooks(lambda t: (found.append((t.shape, t.dtype)), t)[1], lambda t: t):
        call()
    return found


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    ("line", "reference", "shapes"),
    [
        (GATED, gated, [(3, 6, 2, 33), (2, 33, 33)]),
        pytest.param(FIRST, gated, [(3, 6, 2, 33), (2, 33, 33), (3, 33)], marks=THOROUGH),
        pytest.param(CELL, cell, [(3, 6, 2, 33), (2, 33, 33)], marks=THOROUGH),
    ],
)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, pytest.param(torch.float32, marks=THOROUGH)]
)
def test_gradients_read_the_sums_of_the_steps(
    line: str,
    reference: Callable[..., Tensor],
    shapes: list[tuple[int, ...]],
    dtype: torch.dtype,
    seed: int,
) -> None:
    """They are those of a loop in Python, of both orders: the second sums up again.

    Costs three seconds of the compiler. In half precision sums are kept in single precision.
    """
    own = operator(line)
    given = [(torch.randn(s) / s[-1] ** (0.5 * (k == 1))).to(dtype) for k, s in enumerate(shapes)]
    results: list[list[Tensor]] = []
    for way, leaves in (own, given), (reference, [each.double() for each in given]):
        leaves = [each.detach().requires_grad_() for each in leaves]  # noqa: PLW2901
        y = way(*leaves)
        plain = torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True)
        first = torch.autograd.grad(y.sin().sum(), leaves, create_graph=True)
        second = torch.autograd.grad([g.square().sum() for g in first], leaves)
        results.append([y, *plain, *first, *(second if dtype == torch.float64 else ())])
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2}[dtype]
    for found, wanted in zip(*results, strict=True):
        assert found.dtype == dtype
        distance = (found.double() - wanted).abs().max()
        assert distance <= tolerance * wanted.abs().max()
    in_single = torch.float32 if dtype == torch.bfloat16 else dtype
    state = torch.Size((*shapes[0][:2], shapes[0][-1]))
    leaves = [each.requires_grad_() for each in given]
    saved = saved_by(lambda: own(*leaves))
    assert saved.count((state, in_single)) >= 1 + (dtype != torch.bfloat16)


def test_nothing_is_kept_of_short_sums_and_a_wrong_size_is_told_of_the_operator(seed: int) -> None:
    """A sum of few terms is computed again as fast as it is read."""
    own = pb.operator(f"test::few_{GATED}")
    x, w = torch.randn(2, 5, 2, 9, requires_grad=True), torch.randn(2, 9, 9, requires_grad=True)
    assert "keeps" not in str(own.plan(x, w))
    x, w = torch.randn(2, 5, 2, 40, requires_grad=True), torch.randn(2, 40, 40, requires_grad=True)
    assert "keeps summed" in str(own.plan(x, w))
    with pytest.raises(pb.PullbackError, match=r"\[PB112\]: test::few_gated: "):
        own(x, w[:, :5])
