"""Statistics of rows that a recorded call keeps for its gradients: means, deviations, sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

import pullback as pb
from pullback.bind.math import kept
from pullback.bind.operator import Operator
from tests.telling import telling

NORM = (
    "(x[..., d], w[d], b[d]) -> y[..., d] = c[..., d] = x - mean[k](x[..., k]); "
    "y = c[..., d]/sqrt(mean[k](c[..., k]**2) + 1e-5)*w[d] + b[d]"
)
LOG_SUM = "(x[n, d]) -> y[n] = m[n] = max[d](x[n, d]); y = m[n] + log(sum[d](exp(x[n, d] - m[n])))"
SOFTMAX = "(x[n, d]) -> y[n, d] = exp(x - max[k](x[n, k]))/sum[k](exp(x[n, k] - max[j](x[n, j])))"
ENTROPY = (
    "(x[n, d], t[n]: int64) -> y[n] = m[n] = max[d](x[n, d]); "
    "y = m[n] + log(sum[d](exp(x[n, d] - m[n]))) - x[n, t[n]]"
)
ROOT = "(x[n, d], w[d]) -> y[n, d] = x/sqrt(mean[k](x[n, k]**2) + 1e-5)*w"
GROUPS = (
    "(x[n, c, d]) -> y[n] = m[n] = max[c, d](x[n, c, d]); "
    "y = m[n] + log(sum[c, d](exp(x[n, c, d] - m[n])))"
)


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def log_sum(x: Tensor) -> Tensor:
    return torch.logsumexp(x, 1)


# A line, what PyTorch has for it, and how many statistics are kept.
LINES: dict[str, tuple[str, Callable[..., Tensor], int]] = {
    "layer norm": (NORM, norm, 2),
    "log-sum-exp": (LOG_SUM, log_sum, 2),
    "softmax": (SOFTMAX, lambda x: x.softmax(1), 0),
    "root mean square": (ROOT, lambda x, w: functional.rms_norm(x, x.shape[1:], w, 1e-5), 1),
}
ORDERS = {"layer norm": NORM, "log-sum-exp": LOG_SUM, "root": ROOT, "groups": GROUPS}
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
every_line = pytest.mark.parametrize("name", LINES)


@cache
def operator(name: str, line: str) -> Operator:
    return pb.operator(f"test::kept_rows_{name.replace(' ', '_').replace('-', '_')}{line}")


def inputs(op: Operator, n: int, d: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    shapes = [(n, d), *[(d,)] * (len(op.line.tensors) - 1)]
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def saved_by(call: Callable[[], object]) -> list[tuple[torch.Size, torch.dtype]]:
    """Return what a call saves."""
    found: list[tuple[torch.Size, torch.dtype]] = []
    with saved_tensors_hooks(lambda t: (found.append((t.shape, t.dtype)), t)[1], lambda t: t):
        call()
    return found


def gradients(value: Tensor, given: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, given, grad.to(value.dtype), retain_graph=True)


@pytest.fixture
def of_any_size() -> Iterator[None]:
    """Small calls keep statistics too."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LEAST_LENGTH", "LEAST_ROWS", "LEAST_ELEMENTS"):
            patch.setattr(kept, name, 1)
        yield


@pytest.mark.ci(2)
@pytest.mark.parametrize("width", telling({str(d): d for d in range(7, 18)}, ["9", "16"]))
def test_short_rows_share_a_loop_with_what_is_added_up_from_them(width: int) -> None:
    """Written out as sums of few elements, 16 took seven times as long as PyTorch's."""
    op = operator("short", NORM)
    given = inputs(op, 20_000, width)
    value = op(*given)
    grad = torch.randn(value.shape)
    exact = [leaf.detach().double().requires_grad_() for leaf in given]
    for got, want in zip(
        gradients(value, given, grad), gradients(norm(*exact), exact, grad), strict=True
    ):
        torch.testing.assert_close(
            got.double(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max())
        )
    if width >= 8:
        backward = str(op.plan(*given)).split("_grad\n")[1]
        assert "grad_x, grad_w, grad_b: own loop" in backward, backward


@pytest.mark.ci(3)
@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize(
    "case",
    telling(
        {f"{name}-{dtype}": (name, dtype) for dtype in DTYPES for name in LINES},
        ["layer norm-torch.bfloat16", *(f"{name}-{DTYPES[0]}" for name in LINES)],
    ),
)
def test_gradients_are_as_near_as_pytorchs_and_read_what_is_kept(
    case: tuple[str, torch.dtype], seed: int
) -> None:
    """In half precision statistics have the digits of single precision."""
    name, dtype = case
    line, peer, many = LINES[name]
    op = operator(name, line)
    for n, d in ((131, 67), (64, 303)):
        given = inputs(op, n, d, dtype)
        values = op(*given), peer(*given)
        grad = torch.randn(values[0].shape)
        exact = [leaf.detach().double().requires_grad_() for leaf in given]
        want = gradients(peer(*exact), exact, grad.to(dtype))
        for own, theirs, each in zip(
            gradients(values[0], given, grad), gradients(values[1], given, grad), want, strict=True
        ):
            assert own.dtype == dtype
            # In double precision what is exact is PyTorch's own.
            scale = each.abs().max() * torch.finfo(dtype).eps
            allowed = 2 * (theirs.double() - each).abs().max() + 4 * scale
            assert (own.double() - each).abs().max() <= allowed
        in_single = torch.float32 if dtype == torch.bfloat16 else dtype
        saved = saved_by(lambda given=given: op(*given))
        assert saved.count((torch.Size([n]), in_single)) == many


def test_nothing_is_kept_where_no_gradient_is_asked_or_little_is_spared(seed: int) -> None:
    """A call without a gradient, a short one, and few rows return no statistics."""
    op = operator("plain calls", LOG_SUM)
    with torch.no_grad():
        assert not saved_by(lambda: op(torch.randn(700, 100, requires_grad=True)))
    for n, d in ((10, 8), (3, 40_000), (40_000, 3)):
        x = torch.randn(n, d, requires_grad=True)
        assert saved_by(lambda x=x: op(x)) == [((n, d), torch.float32)]
    assert len(saved_by(lambda: op(torch.randn(700, 100, requires_grad=True)))) == 3


def test_a_wrong_size_is_told_of_the_operator_itself(seed: int) -> None:
    """And not of the one that returns statistics too."""
    op = operator("layer norm", NORM)
    x, w, b = inputs(op, 700, 100)
    _ = op(x, w, b)
    with pytest.raises(pb.PullbackError, match=r"\[PB112\]: test::kept_rows_layer_norm: "):
        op(x, w[:5], b)


@pytest.mark.thorough
def test_rows_of_two_indices_are_kept(seed: int) -> None:
    groups = operator("groups", GROUPS)
    assert len(saved_by(lambda: groups(torch.randn(700, 10, 10, requires_grad=True)))) == 3


@every_line
@pytest.mark.usefixtures("of_any_size")
def test_the_values_are_those_of_a_call_without_a_gradient(name: str, seed: int) -> None:
    """What is kept changes no bit of a result."""
    op = operator(name, LINES[name][0])
    given = inputs(op, 143, 67)
    value = op(*given)
    with torch.no_grad():
        assert torch.equal(op(*given), value)


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("line", telling(ORDERS, ["log-sum-exp"]))
def test_derivatives_of_both_orders(line: str, seed: int) -> None:
    """A derivative that is recorded computes statistics anew."""
    op = operator(f"orders {len(line)}", line)
    shapes = [(3, 2, 4)] if line == GROUPS else [(3, 4), *[(4,)] * (len(op.line.tensors) - 1)]
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(op, given)
    assert torch.autograd.gradgradcheck(op, given)


@pytest.mark.usefixtures("of_any_size")
def test_transforms_and_tracers_see_the_operator_itself(seed: int) -> None:
    """What runs under them has the same gradients, and a batch of several dimensions too."""
    op = operator("transforms", NORM)
    given = [leaf.detach().double() for leaf in inputs(op, 5, 7)]

    def loss(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *given: function(*given).sin().sum()

    def batched(function: Callable[..., Tensor]) -> Tensor:
        of_each = torch.func.vmap(torch.func.grad(loss(function)), (0, None, None))
        return of_each(torch.stack([given[0], -given[0]]), *given[1:])

    torch.testing.assert_close(batched(op), batched(norm))
    pushed = [torch.func.jvp(f, tuple(given), tuple(given)) for f in (op, norm)]
    torch.testing.assert_close(*pushed)
    leaves = [leaf.clone().requires_grad_() for leaf in given]
    expected = torch.autograd.grad(loss(norm)(*leaves), leaves)
    traced = torch.compile(loss(op), backend="aot_eager", fullgraph=True)
    for way in (loss(op), traced):
        torch.testing.assert_close(torch.autograd.grad(way(*leaves), leaves), expected)
    wide = [torch.randn(2, 3, 7, requires_grad=True), *(leaf.float() for leaf in given[1:])]
    grad = torch.randn(2, 3, 7)
    own, theirs = (torch.autograd.grad(f(*wide), wide[:1], grad) for f in (op, norm))
    torch.testing.assert_close(own, theirs)


@pytest.mark.usefixtures("of_any_size")
def test_rows_of_minus_infinity_and_calls_without_elements(seed: int) -> None:
    """A gradient is NaN where PyTorch's own formula divides infinities, and empty where x is."""
    op = operator("infinite", LOG_SUM)
    x = torch.randn(20, 40)
    x[3] = -math.inf
    x[5, :7] = -math.inf
    x.requires_grad_()
    [own] = torch.autograd.grad(op(x).sum(), x)
    [theirs] = torch.autograd.grad(log_sum(x).sum(), x)
    usual = torch.arange(20) != 3
    torch.testing.assert_close(own[usual], theirs[usual])
    assert own[3].isnan().all()
    for shape in ((0, 5), (4, 0)):
        empty = torch.randn(shape, requires_grad=True)
        norms = operator("empty", NORM)
        w, b = (torch.randn(shape[1], requires_grad=True) for _ in range(2))
        value = norms(empty, w, b)
        found = torch.autograd.grad(value, (empty, w, b), torch.ones_like(value))
        assert [each.shape for each in found] == [shape, w.shape, b.shape]
        assert not any(each.any() for each in found)


@pytest.mark.usefixtures("of_any_size")
def test_statistics_that_are_outputs_already_are_read_back(seed: int) -> None:
    """They are kept once more only in half precision, which loses their digits."""
    op = operator(
        "outputs", "(x[n, d]) -> (y[n, d], m[n]) = m = mean[k](x[n, k]); y = (x - m[n])**3"
    )
    for dtype, many in ((torch.float32, 1), (torch.bfloat16, 2)):
        x = torch.randn(100, 64).to(dtype).requires_grad_()
        saved = saved_by(lambda x=x: op(x))
        assert [shape for shape, _ in saved].count(torch.Size([100])) <= many
        exact = x.detach().double().requires_grad_()
        value = (exact - exact.mean(1, keepdim=True)) ** 3
        [want] = torch.autograd.grad(value.sum(), exact)
        [own] = torch.autograd.grad(op(x)[0].sum(), x)
        torch.testing.assert_close(
            own.double(), want, rtol=0.02, atol=0.05 * float(want.abs().max())
        )


def test_the_plan_names_what_is_kept(seed: int) -> None:
    """`op.plan` shows the operator that reads it."""
    op = operator("shown", NORM)
    assert "keeps div_of_row, sqrt_of_row" in str(op.plan(*inputs(op, 1100, 64)))
    assert "keeps" not in str(op.plan(*inputs(op, 3, 64)))


@pytest.mark.usefixtures("of_any_size")
def test_an_entropy_keeps_the_statistics_of_its_logarithm(seed: int) -> None:
    """Whole numbers among the tensors are no hindrance."""
    op = operator("entropy", ENTROPY)
    x, t = torch.randn(150, 77, requires_grad=True), torch.randint(77, (150,))
    value = op(x, t)
    expected = functional.cross_entropy(x, t, reduction="none")
    torch.testing.assert_close(value, expected)
    grad = torch.randn(150)
    torch.testing.assert_close(
        torch.autograd.grad(value, x, grad), torch.autograd.grad(expected, x, grad)
    )
    assert len(saved_by(lambda: op(x, t))) == 4
