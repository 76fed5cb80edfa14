"""Forward mode by the backward that an author wrote: it has to be linear in what arrives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_function import same
from torch import Tensor, func
from torch.autograd import forward_ad

import pullback as pb
from pullback.bind.register import RedefinitionNotice
from tests.gathered import for_each

NUMBERS = itertools.count()
CLIP_IN_CPP = """
void clip(double* r, const double* g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) r[i] = g[i] > 1 ? 1 : g[i] < -1 ? -1 : g[i];
}
"""


def operator_of(backward: Any, forward: Callable[..., Any] = torch.clone) -> pb.Operator:
    """Return a new operator, of which nothing is known yet."""
    line = f"pbtransposed::f{next(NUMBERS)}(x[...]) -> y[...]"
    return pb.operator(line, python=forward, backward=backward)


def by_operator(**kernel: Any) -> pb.Operator:
    """Return an operator whose backward is another operator."""
    name = f"pbtransposed::g{next(NUMBERS)}"
    pb.operator(f"{name}(grad[...]) -> r[...]", **kernel)
    return operator_of({"x": f"{name}(grad)"})


def numbers() -> Tensor:
    return torch.randn(5, dtype=torch.float64)


def top(grad: Tensor) -> Tensor:
    return grad * (grad.abs() > grad.abs().mean())


def with_numpy(grad: Tensor) -> Tensor:
    return torch.from_numpy(np.clip(grad.numpy(), -1, 1))


NOT_LINEAR: dict[str, Callable[[], pb.Operator]] = {
    "a clip": lambda: operator_of(lambda grad: grad.clamp(-1, 1)),
    "a clip far away": lambda: operator_of(lambda grad: grad.clamp(-1e6, 1e6)),
    "a sign": lambda: operator_of(lambda grad: grad.sign()),
    "a norm": lambda: operator_of(lambda grad: grad / (grad.norm() + 1e-3)),
    "a dead zone": lambda: operator_of(lambda grad: torch.where(grad.abs() > 1e-2, grad, 0)),
    "an offset": lambda: operator_of(lambda grad, x: grad + 0.01 * x),
    "rounding": lambda: operator_of(lambda grad: (grad * 8).round() / 8),
    "the largest": lambda: operator_of(top),
    "an expression": lambda: operator_of({"x": "aten::clamp(grad, -1, 1)"}),
    "a formula": lambda: operator_of({"x": "min(max(grad, -1), 1)"}),
    "a kernel in Python": lambda: by_operator(
        python=with_numpy, backward=lambda grad_r, grad: grad_r * (grad.abs() < 1)
    ),
    "a kernel that says it is linear": lambda: by_operator(
        python=with_numpy, backward=lambda grad_r: grad_r.clone()
    ),
    "a kernel in C++": lambda: by_operator(
        cpu=pb.source(CLIP_IN_CPP, call="clip(r, grad, numel(grad))"),
        backward=lambda grad_r: grad_r.clone(),
    ),
}
LINEAR: dict[str, Any] = {
    "a factor": lambda grad, x: 2 * grad * x.abs(),
    "some elements": lambda grad, x: grad * (x > 0),
    "a sum": lambda grad: grad.cumsum(0).flip(0),
    "a tiny factor": lambda grad: 1e-12 * grad,
    "an expression": {"x": "aten::mul.Tensor(grad, aten::exp(x))"},
    "a formula": {"x": "grad*exp(x)"},
    "nothing": {"x": None},
}
FORWARD_MODE: dict[str, Callable[[Any, Tensor], Any]] = {
    "jvp": lambda f, x: func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "hessian": lambda f, x: func.hessian(lambda x: (f(x) ** 2).sum())(x),
    "vmap": lambda f, x: func.vmap(lambda x: func.jvp(f, (x,), (x,)))(torch.stack([x, 2 * x]))[1],
    "vmap of jacfwd": lambda f, x: func.vmap(func.jacfwd(f), in_dims=1)(torch.stack([x, x], 1)),
}


def dual(f: Any, x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@for_each("name", NOT_LINEAR)
def test_a_backward_that_is_not_linear_has_no_forward_mode(name: str) -> None:
    operator = NOT_LINEAR[name]()
    for way in (*FORWARD_MODE.values(), dual):
        with pytest.raises(pb.PullbackError, match="not linear") as caught:
            way(operator, numbers())
        assert caught.value.finding.code == "PB309"


@for_each("name", NOT_LINEAR)
def test_reverse_mode_of_one_is_as_it_was(name: str) -> None:
    operator, x = NOT_LINEAR[name](), numbers().requires_grad_()
    (found,) = torch.autograd.grad(operator(x).sum(), x)
    assert found.isfinite().all()


@for_each("name", LINEAR)
def test_a_backward_that_is_linear_has_forward_mode(name: str) -> None:
    operator, x = operator_of(LINEAR[name], torch.exp), numbers()
    for way in ("jacfwd", "vmap of jacfwd"):
        transposed = func.jacrev(operator)(x)
        same(
            FORWARD_MODE[way](operator, x),
            transposed if way == "jacfwd" else torch.stack([transposed, transposed]),
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_it_is_so_in_every_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(40, dtype=dtype)
    linear = operator_of(lambda grad, x: 2 * grad * x.abs())
    expected = (2 * x.abs()).to(dtype)
    torch.testing.assert_close(FORWARD_MODE["jvp"](linear, x), expected)
    clipped = operator_of(lambda grad: grad / grad.abs().clamp(min=1e-2))
    with pytest.raises(pb.PullbackError, match="not linear"):
        FORWARD_MODE["jvp"](clipped, x)


def test_a_limit_that_an_argument_says_is_seen_where_it_is_given() -> None:
    limited = pb.operator(
        f"pbtransposed::f{next(NUMBERS)}(x[...], limit: float) -> y[...]",
        python=lambda x, limit: x.clone(),
        backward=lambda grad, limit: grad.clamp(-limit, limit),
    )
    x = numbers()
    same(func.jacfwd(lambda x: limited(x, float("inf")))(x), torch.eye(5, dtype=x.dtype))
    with pytest.raises(pb.PullbackError, match="not linear"):
        func.jacfwd(lambda x: limited(x, 1.0))(x)


def test_an_operator_that_is_defined_again_is_tried_again() -> None:
    line = f"pbtransposed::f{next(NUMBERS)}(x[...]) -> y[...]"
    linear = pb.operator(line, python=torch.clone, backward=lambda grad: grad.clone())
    same(func.jacfwd(linear)(numbers()), torch.eye(5, dtype=torch.float64))
    with pytest.warns(RedefinitionNotice):
        clipped = pb.operator(line, python=torch.clone, backward=lambda grad: grad.clamp(-1, 1))
    with pytest.raises(pb.PullbackError, match="not linear"):
        func.jacfwd(clipped)(numbers())


def test_one_of_several_outputs_and_inputs_is_enough() -> None:
    both = pb.operator(
        f"pbtransposed::f{next(NUMBERS)}(x[n], w[n]?) -> (y[n], z[n])",
        python=lambda x, w: (x.clone(), x * w),
        backward=lambda grad_y, grad_z, x, w: (grad_y + grad_z * w, (grad_z * x).clamp(-1, 1)),
    )
    x, w = numbers(), numbers()
    same(func.jacfwd(lambda x: both(x, w)[1])(x), w.diag())
    with pytest.raises(pb.PullbackError, match="not linear"):
        func.jacfwd(lambda w: both(x, w)[1])(w)


def test_outputs_without_a_gradient_stand_between_those_with_one() -> None:
    line = "transposed::three(x[n]) -> (y[n], sign[n]: int64, z[n])"

    def kernel(x: Tensor) -> tuple[Tensor, ...]:
        return 2 * x, x.sign().long(), 3 * x

    def linear(grad_y: Tensor, grad_z: Tensor) -> Tensor:
        return 2 * grad_y + 3 * grad_z

    def clipped(grad_y: Tensor, grad_z: Tensor) -> Tensor:
        return 2 * grad_y + 3 * grad_z.clamp(-1, 1)

    x, tangent = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    right = pb.operator(line, python=kernel, backward=linear)
    found = func.jvp(lambda x: right(x)[::2], (x,), (tangent,))[1]
    torch.testing.assert_close(found, (2 * tangent, 3 * tangent))
    wrong = pb.operator(line.replace("three", "third"), python=kernel, backward=clipped)
    with pytest.raises(RuntimeError, match="PB309"):
        func.jvp(lambda x: wrong(x)[::2], (x,), (tangent,))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_tensors_and_batches_without_elements_are_no_matter(shape: tuple[int, ...]) -> None:
    operator = operator_of(lambda grad, x: grad * x)
    same(FORWARD_MODE["vmap"](operator, torch.ones(shape)), torch.ones(2, *shape))
    found = func.vmap(lambda x: FORWARD_MODE["jvp"](operator, x))(torch.ones(shape))
    same(found, torch.ones(shape))


@pytest.mark.parametrize("backward", [lambda grad: grad.clamp(-1, 1), lambda grad: 2 * grad])
def test_a_compiled_program_says_so_too(backward: Callable[[Tensor], Tensor]) -> None:
    operator, x = operator_of(backward), numbers()
    torch._dynamo.reset()
    run = torch.compile(lambda x: FORWARD_MODE["jvp"](operator, x), backend="aot_eager")
    if backward(torch.tensor(5.0)) == 1:
        with pytest.raises(Exception, match="not linear"):
            run(x)
    else:
        same(run(x), torch.full_like(x, 2))
