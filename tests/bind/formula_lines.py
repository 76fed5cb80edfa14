"""Lines with formulas of every kind, each with the same in PyTorch and with arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def doubles(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


SWISH = "(x[...], b[...]) -> y[...] = x*sigmoid(b) + tanh(x*b)"


def swish(x: Tensor, b: Tensor) -> Tensor:
    return x * torch.sigmoid(b) + torch.tanh(x * b)


Case = tuple[str, Callable[..., Any], Callable[[], tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "broadcasting": (SWISH, swish, lambda: (doubles(3, 1), doubles(2, 1, 4))),
    "broadcasting a 0-dim tensor": (SWISH, swish, lambda: (doubles(), doubles(2, 3))),
    "an outer product": (
        "(a[n], b[m]) -> c[n, m] = a*b + sin(a)",
        lambda a, b: torch.outer(a, b) + a[:, None].sin(),
        lambda: (doubles(3), doubles(4)),
    ),
    "permuted": (
        "(x[m, n], y[n, m]) -> z[n, m] = x*exp(y)",
        lambda x, y: x.T * y.exp(),
        lambda: (doubles(4, 3), doubles(3, 4)),
    ),
    "a turned output": (
        "(x[n, ..., m]) -> y[m, ..., n] = x**3",
        lambda x: (x**3).transpose(0, -1),
        lambda: (doubles(2, 3, 4),),
    ),
    "a bias": (
        "(x[..., n], b[n]) -> y[..., n] = tanh(x + b)",
        lambda x, b: torch.tanh(x + b),
        lambda: (doubles(2, 3, 4), doubles(4)),
    ),
    "a factor for each row": (
        "(x[..., n], a[...]) -> y[..., n] = x*a",
        lambda x, a: x * a[..., None],
        lambda: (doubles(2, 3, 4), doubles(2, 3)),
    ),
    "a square": (
        "(x[n, n], y[n, n]) -> z[n, n] = x*y",
        lambda x, y: x * y,
        lambda: (doubles(3, 3), doubles(3, 3)),
    ),
    "a fixed size": (
        "(x[n, 3], w[3]) -> y[n, 3] = x*w",
        lambda x, w: x * w,
        lambda: (doubles(2, 3), doubles(3)),
    ),
    "empty": (SWISH, swish, lambda: (doubles(3, 0), doubles(1, 0))),
    "several outputs": (
        "(x[...], y[...]) -> (s[...], p[...], q[...]) = s = x + y; p = x*y; q = exp(p)",
        lambda x, y: (x + y, x * y, torch.exp(x * y)),
        lambda: (doubles(3), doubles(2, 3)),
    ),
    "intermediate names": (
        "(x[...]) -> y[...] = t = tanh(x); u = t*t; y = u + t*u",
        lambda x: torch.tanh(x) ** 2 + torch.tanh(x) ** 3,
        lambda: (doubles(5),),
    ),
    "an input that is not used": (
        "(x[...], y[...]) -> z[...] = exp(x)",
        lambda x, y: torch.exp(x) + 0 * y,
        lambda: (doubles(3), doubles(2, 3)),
    ),
    "constants alone": (
        "(x[...]) -> y[...] = 2*pi",
        lambda x: torch.full_like(x, 2 * torch.pi) + 0 * x,
        lambda: (doubles(3),),
    ),
    "whole numbers": (
        "(x[...], k[...]: int64, j[...]: int32, u[...]: uint8, m[...]: bool) -> y[...] ="
        " x*k + where(m, j, u)*x",
        lambda x, k, j, u, m: x * k + torch.where(m, j.long(), u.long()) * x,
        lambda: (
            doubles(3),
            torch.tensor([1, -2, 3]),
            torch.tensor([4, 5, -6], dtype=torch.int32),
            torch.tensor([7, 8, 255], dtype=torch.uint8),
            torch.tensor([True, False, False]),
        ),
    ),
    "outputs of other types": (
        "(x[...], k[...]: int64) -> (y[...], m[...]: bool, j[...]: int64) ="
        " x*k, x > k, where(x > 0, 2*k, k // 2)",
        lambda x, k: (x * k, x > k, torch.where(x > 0, 2 * k, k // 2)),
        lambda: (doubles(4), torch.tensor([-3, 0, 1, 2])),
    ),
    "scalars": (
        "(x[...], flag: bool, a: float = 0.5, k: int = 3) -> y[...] ="
        " where(flag, x, -x)*a + k*x**2",
        lambda x, flag, a=0.5, k=3: (x if flag else -x) * a + k * x**2,
        lambda: (doubles(3), False),
    ),
    "scalars that are given": (
        "(x[...], flag: bool, a: float = 0.5, k: int = 3) -> y[...] ="
        " where(flag, x, -x)*a + k*x**2",
        lambda x, flag, a=0.5, k=3: (x if flag else -x) * a + k * x**2,
        lambda: (doubles(3), True, 1.5, -2),
    ),
    "an optional tensor": (
        "(x[...], b[...]?) -> y[...] = x*exp(x) + b*x",
        lambda x, b=None: x * torch.exp(x) + (0 if b is None else b * x),
        lambda: (doubles(3), doubles(2, 3)),
    ),
    "an optional tensor that is None": (
        "(x[...], b[...]?) -> y[...] = x*exp(x) + b*x",
        lambda x, b=None: x * torch.exp(x) + (0 if b is None else b * x),
        lambda: (doubles(3), None),
    ),
    "a name for each meaning": (
        "(grad[...], grad_x[...], x_[...], t1[...], s0[...]) -> x[...] ="
        " grad*grad_x + sin(x_)*t1 + s0",
        lambda a, b, c, d, e: a * b + torch.sin(c) * d + e,
        lambda: tuple(doubles(3) for _ in range(5)),
    ),
    "names of C++": (
        "(int[...], double[...], Real[...], data[...], n[...], exp[...], strides: float)"
        " -> run[...]"
        " = int*double + exp(Real)*data + n*exp*strides",
        lambda a, b, c, d, e, f, g: a * b + torch.exp(c) * d + e * f * g,
        lambda: (*(doubles(3) for _ in range(6)), 0.5),
    ),
    "more names of C++": (
        "(scalars[...], splat[...], Body[...], t0_[...], register[...], pullback[...], nan_[...])"
        " -> float[...] = scalars*splat + Body*t0_ + register*pullback*nan_",
        lambda a, b, c, d, e, f, g: a * b + c * d + e * f * g,
        lambda: tuple(doubles(3) for _ in range(7)),
    ),
    "100 terms": (
        "(x[...]) -> y[...] = " + " + ".join(f"sin({k}*x)/{k}" for k in range(1, 101)),
        lambda x: sum(torch.sin(k * x) / k for k in range(1, 101)),
        lambda: (doubles(3),),
    ),
    "40 levels": (
        "(x[...]) -> y[...] = " + "tanh(x + " * 40 + "x" + ")" * 40,
        lambda x: functools.reduce(lambda t, _: torch.tanh(x + t), range(40), x),
        lambda: (doubles(3),),
    ),
}
