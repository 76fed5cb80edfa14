"""Places of maxima that a recorded call keeps, so that no gradient looks for them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.math import kept
from tests.bind.test_kept_rows import saved_by
from tests.telling import telling


def between(x: Tensor, y: Tensor) -> Tensor:
    return (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)


def first_and_last(x: Tensor) -> Tensor:
    padded = functional.pad(x, (1, 0), value=-torch.inf)
    return padded.unfold(1, 2, 1).max(-1).values


def blocks_of(x: Tensor) -> Tensor:
    return functional.pad(x, (0, -x.shape[1] % 8)).unflatten(1, (-1, 8))


# A line, PyTorch's own for it, the shapes of calls, and how many places are kept.
LINES: dict[str, tuple[str, Callable[..., Tensor], list[list[tuple[int, ...]]], int]] = {
    "rows": (
        "(x[n, d]) -> u[n] = max[d](x)",
        lambda x: x.max(1).values,
        [[(1, 1)], [(40, 7)], [(90, 131)]],
        1,
    ),
    "columns": (
        "(x[..., n, d]) -> u[..., d] = max[n](x)",
        lambda x: x.max(-2).values,
        [[(1, 1)], [(3, 40, 7)], [(90, 131)]],
        1,
    ),
    "windows": (
        "(x[c, t]) -> y[c, s] = max[p < 3](x[c, 2*s + p])",
        lambda x: functional.max_pool1d(x, 3, 2),
        [[(1, 3)], [(5, 40)], [(7, 131)]],
        1,
    ),
    "windows of any size": (
        "(x[c, t], k: int) -> y[c, s] = max[p < k](x[c, s + p])",
        lambda x: functional.max_pool1d(x, 4, 1),
        [[(1, 4)], [(5, 40)], [(7, 131)]],
        1,
    ),
    "windows of two indices": (
        "(x[..., h, w]) -> y[..., i, j] = max[p < 3, q < 2](x[..., 2*i + p, 2*j + q])",
        lambda x: functional.max_pool2d(x, (3, 2), 2),
        [[(1, 3, 2)], [(5, 9, 10)], [(2, 3, 70, 33)]],
        2,
    ),
    "padded": (
        "(x[c, t]) -> y[c, t] = max[p < 2](where(t + p > 0, x[c, t + p - 1], -inf))",
        first_and_last,
        [[(1, 1)], [(5, 40)], [(7, 131)]],
        1,
    ),
    "nearest": (
        "(x[n, d], y[m, d]) -> u[n] = min[m](sum[d]((x - y)**2))",
        lambda x, y: between(x, y).min(1).values,
        [[(1, 1), (1, 1)], [(40, 17), (9, 17)], [(90, 3), (700, 3)]],
        1,
    ),
    "nearest of each other": (
        "(x[b, n, d], y[b, m, d]) -> u[]"
        " = sum[b, n](min[m](sum[d]((x - y)**2))) + sum[b, m](min[n](sum[d]((x - y)**2)))",
        lambda x, y: between(x, y).min(1).values.sum() + between(x, y).min(2).values.sum(),
        [[(1, 2, 1), (1, 1, 1)], [(3, 40, 17), (3, 9, 17)], [(2, 130, 3), (2, 70, 3)]],
        2,
    ),
    "farthest of the nearest": (
        "(x[n, d], y[m, d]) -> u[] = max[n](min[m](sum[d](abs(x - y))))",
        lambda x, y: (x[:, None] - y).abs().sum(-1).min(1).values.max(),
        [[(1, 1), (1, 1)], [(40, 17), (9, 17)], [(90, 3), (70, 3)]],
        2,
    ),
    # There is one for each pair.
    "pairs": (
        "(x[n, d], y[m, d]) -> u[] = sum[n, m](max[d](x[n, d]*y[m, d]))",
        lambda x, y: (x[:, None] * y).max(2).values.sum(),
        [[(1, 1), (1, 1)], [(40, 17), (9, 17)]],
        0,
    ),
    "scaled": (
        "(x[n, d]) -> y[n, d] = x/max[k](abs(x[n, k]))",
        lambda x: x / x.abs().max(1, keepdim=True).values,
        [[(1, 1)], [(40, 7)], [(90, 131)]],
        1,
    ),
    # A block's would be written for each of its elements.
    "scaled by blocks": (
        "(x[b, n]) -> y[b, n] = x/max[p < 8](abs(pad(x[b, 8*(n//8) + p])))",
        lambda x: x / blocks_of(x).abs().max(2).values.repeat_interleave(8, 1)[:, : x.shape[1]],
        [[(1, 1)], [(40, 7)], [(90, 131)]],
        0,
    ),
    "of weighted blocks": (
        "(x[b, n], w[n, 8]) -> y[b, n] = max[p < 8](w[n, p]*pad(x[b, 8*(n//8) + p]))",
        lambda x, w: blocks_of(x).repeat_interleave(8, 1)[:, : x.shape[1]].mul(w).max(2).values,
        [[(1, 1), (1, 8)], [(40, 7), (7, 8)], [(90, 131), (131, 8)]],
        1,
    ),
}


@cache
def operator(name: str) -> pb.Operator:
    return pb.operator(f"test::kept_{name.replace(' ', '_')}{LINES[name][0]}")


@pytest.fixture
def of_any_size() -> Iterator[None]:
    """Small calls keep places too."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LEAST_LENGTH", "LEAST_ROWS", "LEAST_ELEMENTS", "LEAST_SEARCHED"):
            patch.setattr(kept, name, 1)
        yield


def given_for(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.ci(2)
@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize(
    "name",
    telling(
        {name: name for name in LINES}, ["windows of two indices", "nearest", "scaled by blocks"]
    ),
)
def test_gradients_are_those_of_pytorch_and_read_what_is_kept(name: str, seed: int) -> None:
    """Costs two seconds of the compiler for each line."""
    line, peer, calls, many = LINES[name]
    op = operator(name)
    last = (4,) if ": int" in line else ()
    for shapes in calls:
        for dtype in (torch.float32, torch.float64):
            given = given_for(shapes, dtype)
            exact = [leaf.detach().double().requires_grad_() for leaf in given]
            saved = saved_by(lambda given=given: op(*given, *last))
            assert sum(kind == torch.int64 for _, kind in saved) == many
            value, want = op(*given, *last), peer(*exact)
            grad = torch.randn(want.shape, dtype=torch.float64)
            found = torch.autograd.grad(value, given, grad.to(dtype))
            theirs = torch.autograd.grad(want, exact, grad)
            for a, b in zip((value, *found), (want, *theirs), strict=True):
                torch.testing.assert_close(a, b.to(dtype), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("of_any_size")
def test_second_derivatives_are_those_of_autograd(seed: int) -> None:
    given = given_for([(6, 3), (5, 3)], torch.float64)
    assert torch.autograd.gradgradcheck(operator("nearest"), given)


@pytest.mark.usefixtures("of_any_size")
def test_of_equal_values_the_first_one_has_the_gradient(seed: int) -> None:
    """As PyTorch's own windows have it."""
    ways = operator("windows"), LINES["windows"][1]
    x = torch.randint(3, (40, 31)).float().requires_grad_()
    grads = [torch.autograd.grad(call(x).square().sum(), x)[0] for call in ways]
    torch.testing.assert_close(*grads)


def test_nothing_is_kept_without_a_gradient_or_of_small_tensors(seed: int) -> None:
    op = pb.operator(f"test::kept_small{LINES['windows'][0]}")
    x = torch.randn(5, 30)
    assert saved_by(lambda: op(x)) == []
    assert [dtype for _, dtype in saved_by(lambda: op(x.requires_grad_()))] == [torch.float32]
    large = torch.randn(50, 3000).requires_grad_()
    assert saved_by(lambda: op(large))[-1] == ((50, 1499), torch.int64)
    assert "keeps argmax_c_s" in str(op.plan(large))
