"""What else people write recurrences with: loops compiled by numba, and `associative_scan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._higher_order_ops import associative_scan

Arrays = Callable[..., Any]


def lru_scan(a: Tensor, x: Tensor, h0: Tensor) -> Tensor:
    """A linear recurrence as a scan of an associative function, in eager PyTorch."""

    def join(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return one[0] * other[0], one[1] * other[0] + other[1]

    products, sums = associative_scan(join, (a, x), dim=1, combine_mode="generic")
    return sums + products * h0[:, None]


def lru(a: Any, x: Any, h0: Any) -> Any:
    """A linear recurrence."""
    h = np.empty_like(x)
    batch, steps, width = x.shape
    for b in range(batch):
        for d in range(width):
            h[b, 0, d] = a[b, 0, d] * h0[b, d] + x[b, 0, d]
        for t in range(1, steps):
            for d in range(width):
                h[b, t, d] = a[b, t, d] * h[b, t - 1, d] + x[b, t, d]
    return h


def gae(delta: Any, c: Any) -> Any:
    """Advantages, from the last step on."""
    v = np.empty_like(delta)
    steps, width = delta.shape
    for b in range(width):
        v[steps - 1, b] = delta[steps - 1, b]
    for t in range(steps - 2, -1, -1):
        for b in range(width):
            v[t, b] = delta[t, b] + c[t, b] * v[t + 1, b]
    return v


def heat(u0: Any, k: Any, time: Any) -> Any:
    """The heat equation with nothing at both ends."""
    steps, width = len(time), len(u0)
    u = np.empty((steps, width), u0.dtype)
    for t in range(steps):
        before = u0 if t == 0 else u[t - 1]
        two = before.dtype.type(2)
        u[t, 0] = before[0] + k[0] * (before[1] - two * before[0])
        for x in range(1, width - 1):
            u[t, x] = before[x] + k[x] * (before[x + 1] - two * before[x] + before[x - 1])
        u[t, width - 1] = before[-1] + k[width - 1] * (before[-2] - two * before[-1])
    return u


def biquad(x: Any, b: Any, a: Any) -> Any:
    """A filter of second order, from rest."""
    y = np.empty_like(x)
    for row in range(len(x)):
        x1 = x2 = y1 = y2 = x.dtype.type(0)
        for t in range(x.shape[1]):
            now = b[0] * x[row, t] + b[1] * x1 + b[2] * x2 - a[1] * y1 - a[2] * y2
            x1, x2, y1, y2 = x[row, t], x1, now, y1
            y[row, t] = now
    return y


def scan(delta: Any, a: Any, b: Any, c: Any, u: Any) -> Any:
    """A selective scan."""
    batch, steps, width = delta.shape
    states = a.shape[1]
    y, h = np.empty_like(delta), np.empty_like(a)
    for n in range(batch):
        h[:] = 0
        for t in range(steps):
            for d in range(width):
                total = delta.dtype.type(0)
                for s in range(states):
                    decay = np.exp(delta[n, t, d] * a[d, s])
                    h[d, s] = decay * h[d, s] + delta[n, t, d] * b[n, t, s] * u[n, t, d]
                    total += h[d, s] * c[n, t, s]
                y[n, t, d] = total
    return y


LOOPS: dict[str, Arrays] = {"lru": lru, "gae": gae, "heat": heat, "biquad": biquad, "scan": scan}


def compile_by_numba(name: str) -> Callable[..., Tensor] | None:
    """Return the loop of a case by numba, on tensors; None without one, or without numba."""
    try:
        import numba  # noqa: PLC0415  (who measures may not have it)
    except ImportError:
        return None
    if name not in LOOPS:
        return None
    loop = numba.njit(LOOPS[name])
    return lambda *given: torch.from_numpy(loop(*(t.detach().numpy() for t in given)))
