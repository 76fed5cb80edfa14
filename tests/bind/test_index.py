"""Operators in index notation: what a user gets from one line."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import pullback as pb
from pullback import PullbackError
from pullback.bind.dense.elements import FormulaNotice
from pullback.bind.loops import nests
from pullback.bind.math import choose, verified, verify
from pullback.bind.memo import Memo
from tests.telling import telling

pytestmark = pytest.mark.compiler
numbers = itertools.count()

GAUSS = "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)) * v[m])"
CORRELATE = "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q] * k[p, q])"
EMBED = "(table[v, d], index[n]: int64) -> y[n, d] = table[index[n], d]"
ROWMAX = "(x[n, m]) -> y[n] = max[m](x[n, m])"
PRODUCTS = "(x[n], y[m]) -> z[n] = sum[m](exp(x[n]*y[m]))"
SOFTMAX = "(x[..., n]) -> y[..., n] = exp(x[n] - max[m](x[m])) / sum[m](exp(x[m] - max[k](x[k])))"


@functools.cache
def define(rest: str) -> pb.Operator:
    """Return the operator of a text, one for all tests: its derivatives take seconds to derive."""
    return pb.operator(f"pbi::f{next(numbers)}{rest}")


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def gauss(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v


def points(n: int = 5, m: int = 4, d: int = 3, **given: Any) -> tuple[Tensor, ...]:
    return normal(n, d, **given), normal(m, d, **given), normal(m, **given)


# --- what comes from the line


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rest", "some"),
    [
        pytest.param(PRODUCTS, (normal(3), normal(2)), id="a sum"),
        pytest.param(GAUSS, points(3, 2, 2), id="a sum in a sum", marks=pytest.mark.thorough),
    ],
)
def test_its_derivatives_of_every_order_pass_gradcheck(rest: str, some: tuple[Tensor, ...]) -> None:
    operator = define(rest)
    assert torch.autograd.gradcheck(operator, some, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(operator, some, check_fwd_over_rev=True)


LINEAR = "(x[n, i], w[o, i], b[o]) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]"


def tangent(f: Any, x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, t))).tangent


FIRST_CALLS: dict[str, Callable[[Any, Tensor, Tensor], Any]] = {
    "forward mode": tangent,
    "`func.jvp`": lambda f, x, t: torch.func.jvp(f, (x,), (t,))[1],
    "forward over reverse": lambda f, x, t: torch.func.jvp(
        torch.func.grad(lambda x: f(x).sin().sum()), (x,), (t,)
    )[1],
    "vmap": lambda f, x, t: torch.vmap(f)(torch.stack([x, t])),
    "inference": torch.inference_mode()(lambda f, x, t: f(x).clone()),
    "autocast": torch.autocast("cpu")(lambda f, x, t: f(x)),
}


@pytest.mark.parametrize(
    "way", telling({way: way for way in FIRST_CALLS}, ["forward over reverse", "vmap", "autocast"])
)
def test_a_first_call_may_come_from_anywhere(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are compiled, compared and timed in it, and the timing is apart from where it is."""
    monkeypatch.setattr(choose, "_measured", Memo())
    operator, linear = define.__wrapped__(LINEAR), torch.nn.functional.linear
    (x, t, w), b = (normal(4, 3).detach() for _ in range(3)), normal(4).detach()
    found = FIRST_CALLS[way](lambda x: operator(x, w, b), x, t)
    assert choose._measured
    wanted = FIRST_CALLS[way](lambda x: linear(x, w, b), x, t)
    near = 1e-2 if way == "autocast" else 1e-9
    torch.testing.assert_close(found, wanted, atol=near, rtol=near, check_dtype=False)


def third(function: Any, some: tuple[Tensor, ...]) -> Tensor:
    hessian = torch.func.hessian(lambda x: function(x, *some[1:]).sin().sum())
    return torch.func.jacrev(lambda x: hessian(x).sum())(some[0])


@pytest.mark.thorough
def test_a_third_derivative_is_pytorchs() -> None:
    operator, some = define(PRODUCTS), (normal(3), normal(2))
    wanted = third(lambda x, y: torch.exp(x[:, None] * y).sum(1), some)
    torch.testing.assert_close(third(operator, some), wanted)


@pytest.mark.thorough
def test_a_third_derivative_of_a_sum_in_a_sum_is_pytorchs() -> None:
    some = points(3, 2, 2)
    torch.testing.assert_close(third(define(GAUSS), some), third(gauss, some))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_dtype_is_computed_as_exactly_as_pytorch_would(dtype: torch.dtype) -> None:
    operator = define(GAUSS)
    some = points(40, 33, 3, dtype=torch.float64)
    exact = gauss(*(t.to(dtype).double() for t in some))
    found = operator(*(t.to(dtype) for t in some))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=4 * torch.finfo(dtype).eps)


def test_batch_dimensions_broadcast_and_gradients_are_summed_back() -> None:
    operator = define("(x[..., n], w[..., n]) -> y[...] = sum[n](x[n]*w[n])/size(n)")
    x, w = normal(2, 1, 5), normal(3, 5)
    found, wanted = operator(x, w), (x * w).mean(-1)
    torch.testing.assert_close(found, wanted)
    grad = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, (x, w), grad), torch.autograd.grad(wanted, (x, w), grad)
    )


def test_any_strides_will_do() -> None:
    operator = define(GAUSS)
    x, y, v = points(6, 6, 6)
    some = (x.t(), y[::2].expand(3, 6), v[0].expand(3))
    torch.testing.assert_close(operator(*some), gauss(*some))
    x = normal(4).expand(3, 4)
    torch.testing.assert_close(define(SOFTMAX)(x), x.softmax(-1))


def test_an_optional_tensor_that_is_none_counts_as_zeros() -> None:
    operator = define("(x[n, i], w[o, i], b[o]?) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]")
    x, w, b = normal(3, 4), normal(2, 4), normal(2)
    torch.testing.assert_close(operator(x, w, None), x @ w.t())
    assert torch.autograd.gradcheck(lambda x, w: operator(x, w, None), (x, w))
    assert torch.autograd.gradcheck(operator, (x, w, b))


def test_scalars_and_several_outputs() -> None:
    operator = define(
        "(x[n, m], scale: float = 2.0, shift: int = 1) -> (a[n], b[m])"
        " = t[i, j] = scale*x[i, j] + shift; a = sum[m](t[n, m]); b = max[n](t[n, m])"
    )
    x = normal(4, 3)
    for scalars in ((), (0.5, 3)):
        scale, shift = scalars or (2.0, 1)
        t = scale * x + shift
        torch.testing.assert_close(operator(x, *scalars), (t.sum(1), t.amax(0)))
    assert torch.autograd.gradcheck(lambda x: operator(x, 0.5, 3), (x,))


def test_it_can_be_compiled_exported_and_counted() -> None:
    operator, some = define(GAUSS), points()
    compiled = torch.compile(lambda *a: operator(*a).sin(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*some), gauss(*some).sin())
    dynamic = torch.compile(operator, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(dynamic(*points(7, 6, 2)), gauss(*points(7, 6, 2)))
    torch.library.opcheck(operator.overload, some)
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    with FlopCounterMode(display=False) as counter:
        operator(*some)
    assert counter.get_total_flops() > 5 * 4 * 3


def test_a_new_dimension_has_the_size_that_its_range_says() -> None:
    operator = define(CORRELATE)
    x, k = normal(7, 6), normal(3, 2)
    wanted = torch.nn.functional.conv2d(x[None, None], k[None, None])[0, 0]
    torch.testing.assert_close(operator(x, k), wanted)
    assert torch.autograd.gradcheck(operator, (x, k))
    assert operator(x.detach().to("meta"), k.detach().to("meta")).shape == (5, 5)


def test_the_first_maximum_gets_the_gradient() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0]], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(define(ROWMAX)(x).sum(), x)
    assert grad.tolist() == [[0, 1, 0]]


def test_what_is_not_selected_has_no_influence() -> None:
    operator = define("(x[n], y[n]) -> z[n] = where(x[n] > 0, log(x[n])*y[n], 0)")
    x = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([torch.inf, torch.nan, 3.0], dtype=torch.float64, requires_grad=True)
    z = operator(x, y)
    assert z[:2].tolist() == [0, 0]
    for grad in torch.autograd.grad(z.sum(), (x, y)):
        assert grad.isfinite().all()
        assert grad[:2].tolist() == [0, 0]


def test_what_it_shows_of_its_derivative_is_the_language_again() -> None:
    shown = str(define(EMBED).derivative())
    assert "grad_table = sum[n](where(v == index[n], grad[n, d], 0))" in shown
    assert "saves index, table" in shown


# --- who computes it


def test_a_plan_says_who_computes_what_and_why() -> None:
    operator = define(GAUSS)
    some = points(600, 500, 3, dtype=torch.float32)
    plan = operator.plan(*some)
    assert [step.outputs for step in plan.steps] == [("u",), ("grad_x",), ("grad_y", "grad_v")]
    assert "own loop, pairwise sum" in str(plan)
    assert all(step.flops > 500 * 600 for step in plan.steps)
    linear = define("(x[n, i], w[o, i]) -> y[n, o] = sum[i](x[n, i]*w[o, i])")
    assert "PyTorch" in str(linear.plan(normal(64, 32), normal(16, 32)))


def test_only_index_notation_is_planned() -> None:
    with pytest.raises(PullbackError) as caught:
        define("(x[...]) -> y[...] = x*2").plan(normal(2))
    assert caught.value.finding.code == "PB343"


def test_the_slower_way_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever the clock says: it is asked where the model cannot tell."""
    operator, x = define(SOFTMAX), normal(3, 5, dtype=torch.float32)
    monkeypatch.setattr(choose, "CLEAR", float("inf"))
    for fast in ("loop", "PyTorch"):

        def seconds_of(ways: dict[str, Any], _: object, fast: str = fast) -> dict[str, float]:
            assert all(way() is not None for way in ways.values())
            return {name: float(name != fast) for name in ways}

        monkeypatch.setattr(choose, "_measured", Memo())
        monkeypatch.setattr(choose, "measure_seconds", seconds_of)
        [step, *_] = operator.plan(x.detach()).steps
        assert step.way.startswith("own loop" if fast == "loop" else "PyTorch"), step


def test_nothing_of_n_by_m_is_held() -> None:
    """2^18 x 2^18 pairs of float32 would be 256 GiB; 2^15 x 2^15, 4 GiB, are enough to see it."""
    operator = define(GAUSS)
    x, y, v = (t.detach() for t in points(2**15, 2**15, 1, dtype=torch.float32))
    result = operator(x, y, v)
    torch.testing.assert_close(result[:5], gauss(x[:5], y, v), rtol=1e-4, atol=1e-4)


def test_a_loop_that_differs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run = nests.Own.run

    def wrong(self: nests.Own, *given: Any) -> Sequence[Tensor]:
        return [value * (1 + 1e-3) for value in run(self, *given)]

    monkeypatch.setattr(nests.Own, "run", wrong)
    monkeypatch.setattr(verify, "_agreed", set())
    monkeypatch.setattr(verified, "is_marked", lambda _: False)
    for _ in range(2):  # and leaves nothing registered
        with pytest.raises(PullbackError) as caught:
            pb.operator(f"pbi::wrong{GAUSS}")
        assert caught.value.finding.code == "PB147"
        assert re.search(r"'u': .* and .* at \[\d\]", str(caught.value))


def test_one_that_differs_in_a_call_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, some = define(GAUSS), [t.detach() for t in points(60, 50, 3, dtype=torch.float32)]
    run = nests.Own.run
    monkeypatch.setattr(nests.Own, "run", lambda *given: [value + 1 for value in run(*given)])
    monkeypatch.setattr(verify, "_agreed", set())
    monkeypatch.setattr(verified, "is_marked", lambda _: False)
    with pytest.warns(FormulaNotice, match=r"PB147(.|\n)*PyTorch's operations compute it instead"):
        result = operator(*some)
    torch.testing.assert_close(result, gauss(*some))


@pytest.mark.parametrize("rest", ["x[n, k]/max[j](x[n, j])", "x[n, k]/maximum(x[n, k], y[n, k])"])
def test_a_loop_may_take_another_of_two_zeros(rest: str) -> None:
    """Which of 0 and -0 is the maximum is nobody's promise, and 1/0 is not 1/-0."""
    operator = define(f"(x[n, k], y[n, k]) -> z[n, k] = {rest}")
    x, y = normal(4, 9), normal(4, 9).detach() + 2
    divisor = torch.maximum(x, y) if "maximum" in rest else x.amax(1, keepdim=True)
    torch.testing.assert_close(operator(x, y), x / divisor)


# --- bad input


def test_sizes_that_do_not_fit_are_named() -> None:
    with pytest.raises(PullbackError, match=r"dimension 'd' is 3 in 'x' .* but 2 in 'y'"):
        define(GAUSS)(normal(5, 3), normal(4, 2), normal(4))


@pytest.mark.parametrize("index", [[0, 7], [-1, 0]])
def test_an_index_outside_is_an_error_and_no_wild_read(index: list[int]) -> None:
    with pytest.raises(PullbackError) as caught:
        define(EMBED)(normal(7, 2), torch.tensor(index))
    assert caught.value.finding.code == "PB149"
    assert "'table'" in str(caught.value)


def test_a_maximum_over_nothing_is_an_error() -> None:
    with pytest.raises(PullbackError) as caught:
        define(ROWMAX)(normal(2, 0))
    assert caught.value.finding.code == "PB148"
    assert "max[" in str(caught.value)
    assert define(ROWMAX)(normal(0, 0)).shape == (0,)


@pytest.mark.parametrize(
    ("place", "shift"), [("n + k", 0), ("n + k + 2", 2), ("n + k + size(n)", 4)]
)
def test_what_is_outside_is_no_part_of_a_sum(place: str, shift: int) -> None:
    """Whatever it is multiplied by, and whether some of it is outside, or all by the line."""
    operator = define(f"(x[n], w[k]) -> y[n] = sum[k](w[k]*pad(x[{place}]))")
    x, w = normal(4).detach(), torch.tensor([1, torch.inf, torch.nan], dtype=torch.float64)
    wanted = [
        sum((w[k] * x[n + k + shift] for k in range(3) if n + k + shift < 4), torch.zeros(()))
        for n in range(4)
    ]
    for run in (operator, operator.kind.references()["its formula in PyTorch"]):
        torch.testing.assert_close(
            run(x, w), torch.stack(wanted), check_dtype=False, equal_nan=True
        )


# Lines, and inputs of which the last is wrong in its values or its shape.
WEIGHED = "(x[n, m], w[v], i[n]: int64) -> y[n, m] = exp(x[n, m])/sum[k](exp(x[n, k]))*w[i[n]]"
DECAYED = "(x[t], w[v], i[t]: int64) -> y[t] = x[t] + w[i[t]]*pad(y[t - 1])"
OUTSIDE = torch.full([64], 9)
NAMED: dict[str, tuple[str, tuple[Tensor, ...]]] = {
    "PB149": (WEIGHED, (torch.ones(64, 1024), torch.ones(5), OUTSIDE)),
    "PB149 in a step": (DECAYED, (torch.ones(64), torch.ones(5), OUTSIDE)),
    "PB148": ("(w[n], x[n, m]) -> y[n] = w[n]*max[m](x[n, m])", (torch.ones(4), torch.ones(4, 0))),
    "PB112": ("(x[n], y[n]) -> z[n] = x*y", (torch.ones(4), torch.ones(3))),
}


@pytest.mark.parametrize("name", NAMED)
def test_an_error_names_the_operator_that_was_called(name: str) -> None:
    """And none that was made for it, as to keep sums for the gradient, or for `vmap`."""
    rest, (first, *others) = NAMED[name]
    operator = define(rest)
    for call in (
        lambda x: operator(x, *others),
        lambda x: operator(x.requires_grad_(), *others),
        lambda x: torch.vmap(operator)(*(torch.stack([t, t]) for t in (x, *others))),
        lambda x: torch.func.jvp(lambda x: operator(x, *others), (x,), (x,)),
    ):
        with pytest.raises(PullbackError, match=rf"{name[:5]}\]: {operator.line.qualname}: "):
            call(first.clone())


def test_what_is_wrong_in_a_derivative_is_said_of_it_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One of its own: no other test has called its gradient yet.
    operator, some = pb.operator(f"pbi::f{next(numbers)}{PRODUCTS}"), (normal(3), normal(2))
    value = operator(*some)
    run = nests.Own.run
    monkeypatch.setattr(nests.Own, "run", lambda *given: [value + 1 for value in run(*given)])
    monkeypatch.setattr(verify, "_agreed", set())
    monkeypatch.setattr(verified, "is_marked", lambda _: False)
    of = f"PB147(.|\n)*: the gradient of {operator.line.qualname}: "
    with pytest.warns(FormulaNotice, match=of):
        torch.autograd.grad(value.sum(), some)


def test_a_sum_over_nothing_is_zero() -> None:
    x, y, v = (t.detach().requires_grad_() for t in points(3, 0, 2))
    result = define(GAUSS)(x, y, v)
    assert result.tolist() == [0, 0, 0]
    grads = torch.autograd.grad(result.sum(), (x, y, v))
    assert [tuple(grad.shape) for grad in grads] == [(3, 2), (0, 2), (0,)]
    assert grads[0].abs().max() == 0


def test_a_size_below_zero_is_an_error() -> None:
    with pytest.raises(PullbackError, match="would be -1"):
        define(CORRELATE)(normal(2, 5), normal(4, 2))


def test_whole_numbers_have_no_gradient() -> None:
    operator = define("(index[n]: int64) -> y[n]: int64 = 2*index[n] + n")
    result = operator(torch.tensor([3, 4]))
    assert result.tolist() == [6, 9]
    assert not result.requires_grad


def test_complex_tensors_are_refused() -> None:
    with pytest.raises(PullbackError) as caught:
        define(ROWMAX)(torch.ones(2, 2, dtype=torch.complex64))
    assert caught.value.finding.code == "PB139"


def test_a_derivative_called_by_itself_has_its_sizes_checked() -> None:
    operator = define(CORRELATE)
    name = operator.line.name
    gradients = getattr(torch.ops.pbi, f"_{name}_grad")
    with pytest.raises(PullbackError) as caught:
        gradients(normal(9, 9), normal(5, 5), normal(2, 2))
    assert caught.value.finding.code == "PB112"


# --- what may be asked


def test_a_cost_is_of_the_shapes_and_the_dtype() -> None:
    linear = define("(x[n, i], w[o, i], b[o]?) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]")
    some = torch.empty(64, 32, device="meta"), torch.empty(16, 32, device="meta")
    assert linear.cost(*some).flops == 2 * 64 * 16 * 32
    assert linear.cost(*some).written == 4 * 64 * 16
    assert linear.cost(*(t.double() for t in some)).written == 8 * 64 * 16
    assert linear.cost(*some, torch.empty(16, device="meta")).flops == 2 * 64 * 16 * 32 + 64 * 16
    assert str(linear.cost(*some)).startswith("65.5 kFLOP, 10.2 kB read, 4.1 kB written; ")


def test_a_sharding_is_shown_for_the_operator_and_its_gradients() -> None:
    shown = str(define(GAUSS).sharding())
    assert re.search(r"^n +shard\(0\) +all +all +-> +shard\(0\)$", shown, re.M)
    assert "_grad(grad[n], x[n, d], y[m, d], v[m]) -> (grad_x[n, d]" in shown


@pytest.mark.parametrize("question", ["plan", "cost"])
def test_what_is_not_in_index_notation_is_not_asked(question: str) -> None:
    with pytest.raises(PullbackError) as caught:
        getattr(define("(x[...]) -> y[...] = x*2"), question)()
    assert caught.value.finding.code == "PB343"
    assert "it is not in index notation" in str(caught.value)


@pytest.mark.parametrize("question", ["plan", "cost"])
def test_what_cannot_be_called_is_not_planned_or_counted(question: str) -> None:
    asked = getattr(define(GAUSS), question)
    for some, code in ((points()[:2], "PB341"), ((*points()[:2], normal(9)), "PB112")):
        with pytest.raises(PullbackError) as caught:
            asked(*some)
        assert caught.value.finding.code == code


def test_dimensions_of_a_batch_may_be_empty_and_so_may_those_beside_it() -> None:
    operator = define("(x[..., n, d], y[..., m, d]) -> z[..., n] = sum[m](exp(-sum[d]((x-y)**2)))")
    for batch, n, m in itertools.product(((), (2,), (0,), (2, 0)), (0, 2), (0, 3)):
        x = torch.randn(*batch, n, 4, requires_grad=True)
        y = torch.randn(m, 4, requires_grad=True)
        found = operator(x, y)
        wanted = torch.exp(-(x[..., :, None, :] - y[..., None, :, :]).pow(2).sum(-1)).sum(-1)
        torch.testing.assert_close(found, wanted)
        found.sum().backward()
        assert x.grad is not None
        assert y.grad is not None


def test_maxima_along_either_side_may_stand_beside_the_places_of_one(seed: int) -> None:
    x = torch.randn(5, 7, requires_grad=True)
    for body in ("x[n, m]", "exp(x[n, m])"):
        operator = define(
            "(x[n, m]) -> (rows[n], columns[m], j[n]: int64, i[m]: int64) = "
            f"rows = max[m]({body}); columns = max[n]({body}); "
            f"j = argmax[m]({body}); i = argmax[n]({body})"
        )
        rows, columns, j, i = operator(x)
        values = x.exp() if "exp" in body else x
        for found, place, dim in ((rows, j, 1), (columns, i, 0)):
            wanted = values.max(dim)
            torch.testing.assert_close(found, wanted.values)
            assert torch.equal(place, wanted.indices)
        asked = rows.sum() + columns.sum()
        wanted = torch.autograd.grad(values.max(1).values.sum() + values.max(0).values.sum(), x)
        torch.testing.assert_close(torch.autograd.grad(asked, x), wanted)


@pytest.mark.parametrize("place", ["b[i[n], j[n]]", "b[j[n], i[n]] + b[0, i[n]]"])
def test_equal_sizes_in_a_line_may_be_gathered_from(place: str) -> None:
    operator = define(f"(b[3, 3], i[n]: int64, j[n]: int64) -> o[n] = {place}")
    b, i, j = torch.arange(9.0).view(3, 3), torch.tensor([0, 1, 2, 2]), torch.tensor([2, 1, 0, 2])
    wanted = b[i, j] if "+" not in place else b[j, i] + b[0, i]
    assert torch.equal(operator(b, i, j), wanted)


def test_a_line_may_fix_large_sizes() -> None:
    """Comparing its loops at them took minutes. Costs 5 s."""
    operator = define("(x[n, 2000], w[1000, 2000]) -> y[n, o] = sum[i](abs(x[n, i] - w[o, i]))")
    x, w = torch.randn(3, 2000), torch.randn(1000, 2000)
    torch.testing.assert_close(operator(x, w), torch.cdist(x, w, p=1), rtol=1e-4, atol=1e-3)
