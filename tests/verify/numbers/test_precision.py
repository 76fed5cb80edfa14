"""Gradients of too few digits are found; kernels that use fewer digits in all they do are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pullback as pb
from tests.verify.case import Made, d
from tests.verify.numbers.made import function

PROBES = ["PB551", "PB553", "PB555", "PB556"]


def codes(made: Made, **options: Any) -> dict[str, str]:
    """Return the codes of the faults with their texts."""
    target, inputs = made
    report = pb.check(target, *inputs, probes=PROBES, isolate=False, **options)
    return {finding.code: str(finding) for finding in report.faults}


def summed(sum_of: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Made:
    """Return a linear map whose weight's gradient is summed by `sum_of`."""

    def backward(g: Tensor, x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.outer(g, w), sum_of(g[:, None] * x)

    x, w = torch.rand(16, 4).to(dtype), torch.rand(4).to(dtype)
    return function(lambda x, w: x @ w, backward), (x, w)


def one_by_one(rows: Tensor) -> Tensor:
    """Add rows in their own dtype."""
    total = torch.zeros_like(rows[0])
    for row in rows:
        total = total + row
    return total


def numpy_single(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of sin, computed by numpy in float32."""
    return torch.from_numpy(g.numpy().astype(np.float32) * np.cos(x.numpy().astype(np.float32)))


FAULTS: list[tuple[str, str, tuple[str, ...], Callable[[], Made]]] = [
    (
        "returned in float32",
        "PB551",
        ("7 digits", "float32"),
        lambda: (function(torch.sin, lambda g, x, y: (g * x.cos()).float()), (d(6),)),
    ),
    (
        "numpy in float32",
        "PB551",
        ("7 digits", "float32"),
        lambda: (function(torch.sin, numpy_single), (d(6),)),
    ),
    (
        "a factor in float32",
        "PB551",
        ("7 digits", "float32"),
        lambda: (function(torch.sin, lambda g, x, y: g * x.float().cos().double()), (d(3, 2),)),
    ),
    (
        "float16 inside",
        "PB551",
        ("3 digits", "float16"),
        lambda: (function(torch.exp, lambda g, x, y: (g.half() * y.half()).double()), (d(8),)),
    ),
    (
        "a running sum in bfloat16",
        "PB556",
        ("bfloat16", "float32"),
        lambda: summed(one_by_one, torch.bfloat16),
    ),
    (
        "a running sum, float32 given",
        "PB556",
        ("bfloat16",),
        lambda: summed(one_by_one, torch.float32),
    ),
    (
        "another branch for float32",
        "PB555",
        ("float32", "0.5 x"),
        lambda: (
            function(
                lambda x: x**2, lambda g, x, y: g * x * (2 if x.dtype == torch.float64 else 1)
            ),
            (torch.randn(7),),
        ),
    ),
    (
        "another sign for half",
        "PB555",
        ("float16", "-1 x"),
        lambda: (
            function(
                torch.tanh,
                lambda g, x, y: g * (1 - y * y) * (-1 if x.dtype == torch.float16 else 1),
            ),
            (torch.randn(7),),
        ),
    ),
    (
        "another formula for bfloat16",
        "PB555",
        ("bfloat16",),
        lambda: (
            function(torch.exp, lambda g, x, y: g * (x if x.dtype == torch.bfloat16 else y)),
            (torch.randn(4, 3),),
        ),
    ),
    (
        "very small",
        "PB553",
        ("wrong sign",),
        lambda: (function(lambda x: 1e-30 * x**3, lambda g, x, y: -3e-30 * g * x**2), (d(5),)),
    ),
    (
        "one of many elements",
        "PB553",
        ("gradient of",),
        lambda: (
            function(torch.exp, lambda g, x, y: g * y * (1 + (torch.arange(x.numel()) == 777))),
            (d(5000),),
        ),
    ),
]

RIGHT: list[tuple[str, Callable[[], Made]]] = [
    (
        "twice, float32",
        lambda: (function(lambda x: 2 * x, lambda g, x, y: 2 * g), (torch.randn(5),)),
    ),
    (
        "all in float32",
        lambda: (
            function(lambda x: x.float().exp().double(), lambda g, x, y: (g.float() * y).double()),
            (d(6),),
        ),
    ),
    (
        "all in float32, one element",
        lambda: (
            function(lambda x: x.float().exp().double(), lambda g, x, y: (g.float() * y).double()),
            (d(1),),
        ),
    ),
    (
        "only float32 returned",
        lambda: (function(lambda x: x.float().exp(), lambda g, x, y: (g * y).to(x.dtype)), (d(6),)),
    ),
    (
        "bfloat16, summed in float32",
        lambda: summed(lambda rows: rows.float().sum(0).to(rows.dtype), torch.bfloat16),
    ),
    ("bfloat16, summed by PyTorch", lambda: summed(lambda rows: rows.sum(0), torch.bfloat16)),
    (
        "relu at 0",
        lambda: (
            function(torch.relu, lambda g, x, y: g * (x > 0)),
            (torch.zeros(4, dtype=torch.float64),),
        ),
    ),
    ("relu", lambda: (function(torch.relu, lambda g, x, y: g * (x > 0)), (d(1000),))),
    ("ties", lambda: (lambda x: x.sort()[0].cumsum(0), (torch.tensor([1.0, 1, 2, 2]),))),
    ("far from 0", lambda: (function(lambda x: x + 1e12, lambda g, x, y: g), (d(4),))),
    (
        "steep",
        lambda: (
            function(lambda x: (100 * x).sin(), lambda g, x, y: 100 * g * (100 * x).cos()),
            (d(4, 5),),
        ),
    ),
    ("dropout", lambda: (torch.nn.functional.dropout, (d(20),))),
    ("steps", lambda: (function(torch.round, lambda g, x, y: torch.zeros_like(g)), (d(9),))),
    (
        "whole numbers",
        lambda: (function(lambda x: x * x, lambda g, x, y: 2 * g * x), (torch.arange(5.0),)),
    ),
    ("huge", lambda: (function(lambda x: 1e200 * x**2, lambda g, x, y: 2e200 * g * x), (d(4),))),
    (
        "not used",
        lambda: (function(lambda x, b: x * 2, lambda g, x, b, y: (2 * g, None)), (d(4), d(3))),
    ),
    ("constant but for rounding", lambda: (lambda x: x.softmax(-1).sum(-1), (d(3, 4),))),
    (
        "of a symmetric matrix",
        lambda: (
            torch.linalg.cholesky,
            (torch.eye(4).double() * 4 + torch.ones(4, 4),),
        ),
    ),
    ("empty", lambda: (function(torch.sin, lambda g, x, y: g * x.cos()), (d(0, 3),))),
]


@pytest.mark.ci(3)
@pytest.mark.parametrize(
    ("code", "words", "made"),
    [pytest.param(code, words, made, id=name) for name, code, words, made in FAULTS],
)
def test_a_fault_is_found(code: str, words: tuple[str, ...], made: Callable[[], Made]) -> None:
    torch.manual_seed(0)
    found = codes(made())
    assert list(found) == [code], found
    assert all(word in found[code].lower() for word in words), found


@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in RIGHT])
def test_what_is_right_is_left_alone(made: Callable[[], Made]) -> None:
    torch.manual_seed(0)
    assert codes(made()) == {}


@pytest.mark.parametrize("intention", ["straight_through", "reversal", "surrogate"])
def test_what_is_declared_is_no_fault(intention: str) -> None:
    torch.manual_seed(0)
    reversed_sine = function(torch.sin, lambda g, x, y: -g * x.cos())
    assert "PB553" in codes((reversed_sine, (d(4),)))
    assert codes((reversed_sine, (d(4),)), **{intention: True}) == {}


class Rotate(torch.autograd.Function):
    """Points turned by an element of SO(2), which is stored as its cosine and its sine."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor) -> Tensor:
        turned = torch.stack([q[0] * x[0] - q[1] * x[1], q[1] * x[0] + q[0] * x[1]])
        ctx.save_for_backward(q, turned)
        return turned

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        q, turned = ctx.saved_tensors
        angle = (grads[0][1] * turned[0] - grads[0][0] * turned[1]).sum()
        back = torch.stack([q[0], -q[1]])
        x = torch.stack(
            [
                back[0] * grads[0][0] - back[1] * grads[0][1],
                back[1] * grads[0][0] + back[0] * grads[0][1],
            ]
        )
        return torch.stack([angle, torch.zeros_like(angle)]), x


def test_a_gradient_in_the_tangent_space_is_no_fault_where_it_is_meant() -> None:
    angle = torch.tensor(0.7, dtype=torch.float64)
    inputs = torch.stack([angle.cos(), angle.sin()]).requires_grad_(), d(2, 5)
    assert [f.code for f in pb.check(Rotate, *inputs, skip=["PB583"]).faults] == ["PB553"]
    meant = pb.check(Rotate, *inputs, skip=["PB583"], tangent_space=True)
    assert meant.ok, meant


def test_what_no_cause_fits_is_drawn() -> None:
    torch.manual_seed(0)
    mix = torch.randn(6, 6, dtype=torch.float64)
    report = pb.check(
        function(lambda x: x @ mix, lambda g, x, y: g @ (mix.t() + mix.sin().cos())),
        d(6),
        probes=["PB553"],
        isolate=False,
    )
    (finding,) = report.faults
    picture = dict(finding.evidence)["where it differs"].splitlines()
    assert len(picture) == 6
    assert set("".join(picture)) <= set("·░▒▓█")
