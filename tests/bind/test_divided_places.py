"""Reads at places that are divided by a number, or taken modulo one: `x[i//2]`, `s[k % 3]`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

import pullback as pb
from pullback.diagnostic import PullbackError
from tests.telling import telling

Case = tuple[str, Callable[..., Tensor], Callable[[int], Sequence[tuple[int, ...]]]]


def scaled(x: Tensor, s: Tensor) -> Tensor:
    return x * s.repeat_interleave(128, 1)[:, : x.shape[1]]


def in_squares(x: Tensor) -> Tensor:
    (n, m), rest = x.shape, [-x.shape[0] % 4, -x.shape[1] % 8]
    squares = F.pad(x, (0, rest[1], 0, rest[0])).unflatten(1, (-1, 8)).unflatten(0, (-1, 4))
    means = squares.square().mean((1, 3), keepdim=True)
    return (squares / (1 + means)).flatten(2, 3).flatten(0, 1)[:n, :m]


def turned(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    one, other = x[:, 0::2], x[:, 1::2]
    both = one * c - other * s, other * c + one * s
    return torch.stack(both, -1).flatten(1)


def halves_turned(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    one, other = x[:, :20], x[:, 20:]
    return torch.cat((one * c - other * s, other * c + one * s), -1)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=1.0, enable_gqa=True)


CASES: dict[str, Case] = {
    "nearest": (
        "(x[c, h, w]) -> y[c, i, j] = x[c, i//2, j//3]",
        lambda x: x.repeat_interleave(2, 1).repeat_interleave(3, 2),
        lambda n: [(3, 4, n)],
    ),
    "linear": (
        "(x[n, k]) -> y[n, i < 2*size(k) - 1] = (x[n, i//2] + x[n, (i + 1)//2])/2",
        lambda x: F.interpolate(
            x[None], size=2 * x.shape[1] - 1, mode="linear", align_corners=True
        )[0],
        lambda n: [(3, n)],
    ),
    "shuffled": (
        "(x[k, h, w]) -> y[c < size(k)//4, i < 2*size(h), j < 2*size(w)]"
        " = x[4*c + 2*(i % 2) + j % 2, i//2, j//2]",
        lambda x: F.pixel_shuffle(x[None], 2)[0],
        lambda n: [(8, 3, n)],
    ),
    "shuffled by 4": (
        "(x[k, h, w]) -> y[c < size(k)//16, i < 4*size(h), j < 4*size(w)]"
        " = x[16*c + 4*(i % 4) + j % 4, i//4, j//4]",
        lambda x: F.pixel_shuffle(x[None], 4)[0],
        lambda n: [(32, 2, n)],
    ),
    # No line says that one dimension is a multiple of the other.
    "scales of blocks": (
        "(x[n, k], s[n, b]) -> y[n, k] = x*s[n, k//128]",
        scaled,
        lambda n: [(3, 9 * n), (3, -(-9 * n // 128))],
    ),
    "in turn": (
        "(x[n, k], w[3]) -> y[n, k] = x*w[(k + n) % 3]",
        lambda x, w: x * w[torch.arange(x.shape[1]).add(torch.arange(len(x))[:, None]) % 3],
        lambda n: [(4, n), (3,)],
    ),
    "in turn of many": (
        "(x[n, k], w[n, p]) -> y[n, k] = x*w[n, (k + 5) % 20]",
        lambda x, w: x * w[:, torch.arange(x.shape[1]).add(5) % 20],
        lambda n: [(3, 5 * n), (3, 20)],
    ),
    "in turn backwards": (
        "(x[n, k], w[n, 3]) -> y[n, k] = x*w[n, (5 - k) % 3]",
        lambda x, w: x * w[:, (5 - torch.arange(x.shape[1])) % 3],
        lambda n: [(4, n), (4, 3)],
    ),
    "digits of pairs": (
        "(x[n, k], w[n, 6]) -> y[n, k] = x*w[n, (k + 1 - 2*(k % 2)) % 6]",
        lambda x, w: x * w[:, torch.arange(x.shape[1]).bitwise_xor(1) % 6],
        lambda n: [(4, n), (4, 6)],
    ),
    "one after the other": (
        "(x[n, k], w[2, 3, 4]) -> y[n, k] = x*w[k//12 % 2, k//4 % 3, k % 4]",
        lambda x, w: x * w.flatten()[torch.arange(x.shape[1]) % 24],
        lambda n: [(3, n), (2, 3, 4)],
    ),
    "unshuffled": (
        "(x[c, h, w]) -> y[k < 4*size(c), i < size(h)//2, j < size(w)//2]"
        " = x[k//4, 2*i + (k//2) % 2, 2*j + k % 2]",
        lambda x: F.pixel_unshuffle(x[None, :, :4, : x.shape[2] // 2 * 2], 2)[0],
        lambda n: [(2, 5, n + 1)],
    ),
    "pairs turned": (
        "(x[n, k], c[n, p], s[n, p]) -> y[n, k] = x*c[n, k//2]"
        " + where(k % 2 == 0, -1.0, 1.0)*pad(x[n, k + 1 - 2*(k % 2)])*s[n, k//2]",
        turned,
        lambda n: [(3, 2 * n), (3, n), (3, n)],
    ),
    "halves turned": (
        "(x[n, k], c[n, p], s[n, p]) -> y[n, k] = x*c[n, k % 20]"
        " + where(k < 20, -pad(x[n, k + 20]), pad(x[n, k - 20]))*s[n, k % 20]",
        halves_turned,
        lambda n: [(n, 40), (n, 20), (n, 20)],
    ),
    "padded": (
        "(x[n, k]) -> y[n, i < 2*size(k) + 3] = pad(x[n, i//2 - 1])",
        lambda x: F.pad(x.repeat_interleave(2, 1), (2, 1)),
        lambda n: [(3, n)],
    ),
    "means of blocks": (
        "(x[n, k]) -> y[n, b < size(k)//64] = mean[p < 64](x[n, 64*b + p]**2)",
        lambda x: x[:, : x.shape[1] // 64 * 64].unflatten(1, (-1, 64)).square().mean(2),
        lambda n: [(3, 64 + 9 * n)],
    ),
    "squares": (
        "(x[n, m]) -> y[n, m] = s[a < (size(n) + 3)//4, b < (size(m) + 7)//8]"
        " = 1 + sum[p < 4, q < 8](pad(x[4*a + p, 8*b + q])**2)/32; y = x/s[n//4, m//8]",
        in_squares,
        lambda n: [(11, n)],
    ),
    "heads in groups": (
        "(q[h, n, d], k[g, m, d], v[g, m, e]) -> y[h, n, e] = "
        "p[h, n, m] = exp(sum[d](q*k[h//2, m, d]) - max[j](sum[d](q*k[h//2, j, d]))); "
        "y[h, n, e] = sum[m](p[h, n, m]*v[h//2, m, e])/sum[m](p[h, n, m])",
        grouped,
        lambda n: [(4, n, 5), (2, 3, 5), (2, 3, 6)],
    ),
}
# Around the lanes of vectors, and four of these.
LENGTHS = (1, 7, 16, 33, 67)


@pytest.mark.parametrize("name", telling({n: n for n in CASES}, ["nearest", "scales of blocks"]))
def test_values_and_gradients_are_those_of_pytorch(name: str, seed: int) -> None:
    """Costs a second or two of the compiler for each."""
    line, peer, shapes = CASES[name]
    op = pb.operator(f"test::divided_{name.replace(' ', '_')}{line}")
    digits = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
    for length, dtype in itertools.product(LENGTHS, digits):
        given = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes(length)]
        exact = [each.detach().double().requires_grad_() for each in given]
        value, want = op(*given), peer(*exact)
        grad = torch.randn(want.shape).to(dtype)
        found = torch.autograd.grad(value, given, grad)
        theirs = torch.autograd.grad(want, exact, grad.double())
        for mine, other in zip((value, *found), (want, *theirs), strict=True):
            few = digits[dtype]
            # A gradient of attention reads its output, which is rounded: what is small beside the
            # others has fewer digits, as PyTorch's own has.
            largest = max(1.0, other.abs().max().item())
            torch.testing.assert_close(mine.double(), other, rtol=few, atol=few * largest)


@pytest.mark.parametrize(
    "name", telling({n: n for n in ("in turn", "scales of blocks", "padded")}, ["in turn"])
)
def test_second_derivatives_are_those_of_finite_differences(name: str, seed: int) -> None:
    line, _, shapes = CASES[name]
    op = pb.operator(f"test::twice_{name.replace(' ', '_')}{line}")
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes(2)]
    assert torch.autograd.gradgradcheck(op, given, atol=1e-4)


def test_each_call_checks_that_what_is_divided_is_inside() -> None:
    """Neither of two independent sizes is known when the line is read."""
    op = pb.operator("test::blocks(x[n], s[b]) -> y[n] = x*s[n//4]")
    assert op(torch.ones(8), torch.ones(2)).shape == (8,)
    assert op(torch.ones(0), torch.ones(0)).shape == (0,)
    with pytest.raises(PullbackError, match=r"s\[n//4\] is outside of 's': it reads 2"):
        op(torch.ones(9), torch.ones(2))


def test_what_is_outside_is_named_with_the_index_of_the_sum_that_reads_it() -> None:
    op = pb.operator("test::shared(q[h, d], k[g, d]) -> y[h] = sum[d](q*k[h//4, d])")
    with pytest.raises(PullbackError, match=r": k\[h//4, i\] is outside of 'k': it reads 2"):
        op(torch.ones(9, 2), torch.ones(2, 2))


def test_where_a_condition_leaves_it_out_it_may_be_outside() -> None:
    op = pb.operator("test::some_blocks(x[n], s[b]) -> y[n] = where(x > 0, x*s[n//4], 0)")
    x = torch.ones(40)
    with pytest.raises(PullbackError, match="'s' is read at 9 of its dimension 'b'"):
        op(x, torch.ones(9))
    x[36:] = -1
    assert op(x, torch.ones(9)).sum() == 36


def test_a_block_is_gone_through_once_in_a_gradient() -> None:
    """As long as all rows and columns together, each for each block, it took 2 s for 1 ms."""
    op = pb.operator("test::tiles(x[n, k], s[a, b]) -> y[n, k] = x*s[n//32, k//32]")
    x, s = torch.randn(64, 96, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    gradient = str(op.derivative())
    assert "grad_s[a, b] = sum[" in gradient
    assert gradient.count("< 32") == 2, gradient
    op(x, s).sum().backward()
    whole = x.detach().view(2, 32, 3, 32).sum((1, 3))
    torch.testing.assert_close(s.grad, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("unshuffled", "grad[4*c + w % 2 + 2*(h % 2), h//2, w//2]"),
        ("shuffled", "grad[k//4, 2*h + k//2 % 2, k % 2 + 2*w]"),
        ("pairs turned", "grad[n, k - 2*(k % 2) + 1]*s[n, k//2]"),
        ("halves turned", "where(0 <= k + 20 < size(k), grad[n, k + 20]*s[n, k % 20], 0)"),
        ("in turn of many", "grad[n, 20*i + (p + 15) % 20]*x[n, 20*i + (p + 15) % 20]"),
    ],
)
def test_what_is_read_once_is_no_sum_in_a_gradient(name: str, gradient: str) -> None:
    """As a sum over all places, one of which is selected, it took 10 to 50 times as long."""
    op = pb.operator(f"test::once_{name.replace(' ', '_')}{CASES[name][0]}")
    assert gradient in str(op.derivative())


def test_an_input_may_have_the_name_of_what_arrives() -> None:
    op = pb.operator("test::of_grad(grad[c, i]) -> y[k < 2*size(c), i] = grad[k//2, i]")
    grad = torch.randn(3, 4, requires_grad=True)
    op(grad).sum().backward()
    assert "grad" in str(op.plan(grad))
    assert (grad.grad == 2).all()


@pytest.mark.parametrize(
    "text",
    [
        "(x[t]) -> y[n] = mean[p < 100](x[n + p])",
        "(x[t]) -> y[n] = x[100*n] + pad(x[100*n + 90])",
        "(x[n], w[p]) -> y[n] = x*w[n % 64]",
    ],
)
def test_what_fits_no_tiny_tensor_has_a_loop(text: str) -> None:
    """It is compared at sizes that it fits; such lines had none, and took 20 times as long."""
    op = pb.operator(f"test::wide_{len(text)}{text}")
    given = [torch.randn(100_000), *([torch.randn(64)] if "w[p]" in text else [])]
    assert "own loop" in str(op.plan(*given))
