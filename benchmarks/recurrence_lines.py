"""Lines of recurrences, and the loops in Python that they stand for.

A loop takes its steps by `unbind`: `x[:, t]` would fill a whole tensor for each step in backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

LRU = "lru(a[b, t, d], x[b, t, d], h0[b, d]) -> h[b, t, d] = a*h[b, t - 1, d] + x; h[b, -1, d] = h0"
SCAN = (
    "ss(dt[b, t, d], a[d, s], p[b, t, s], c[b, t, s], x[b, t, d]) -> y[b, t, d] = "
    "h[b, t, d, s] = exp(dt*a)*pad(h[b, t - 1, d, s]) + dt*p*x; y = sum[s](c*h[b, t, d, s])"
)
HEADS = (
    "heads(dt[b, t, h], a[h], p[b, t, s], c[b, t, s], x[b, t, h, d]) -> y[b, t, h, d] = "
    "u[b, t, h, d, s] = exp(dt*a)*pad(u[b, t - 1, h, d, s]) + dt*p*x; "
    "y = sum[s](c*u[b, t, h, d, s])"
)
RESERVOIR = (
    "reservoir(x[b, t, n], w[n, k], to[n, k]: int64) -> h[b, t, n] = "
    "tanh(x + sum[k](w*pad(h[b, t - 1, to[n, k]])))"
)
BIQUAD = (
    "biquad(x[..., t], b[3], a[3]) -> y[..., t] = b[0]*x + b[1]*pad(x[t - 1]) + b[2]*pad(x[t - 2]) "
    "- a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])"
)
GAE = "gae(delta[t, b], c[t, b]) -> v[t, b] = delta + c*pad(v[t + 1, b])"
HEAT = (
    "heat(u0[x], k[x], time[t]) -> u[t, x] = u[t - 1, x] + "
    "k*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[-1, x] = u0"
)
GRU = (
    "gru(x[b, t, 3, d], w[3, d, d]) -> h[b, t, d] = "
    "r[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "z[b, t, d] = sigmoid(x[b, t, 1, d] + sum[j](w[1, d, j]*pad(h[b, t - 1, j]))); "
    "n[b, t, d] = tanh(x[b, t, 2, d] + r*sum[j](w[2, d, j]*pad(h[b, t - 1, j]))); "
    "h = (1 - z)*n + z*pad(h[b, t - 1, d])"
)
LSTM = (
    "lstm(x[b, t, 4, d], w[4, d, d]) -> h[b, t, d] = "
    "i[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "f[b, t, d] = sigmoid(x[b, t, 1, d] + sum[j](w[1, d, j]*pad(h[b, t - 1, j]))); "
    "g[b, t, d] = tanh(x[b, t, 2, d] + sum[j](w[2, d, j]*pad(h[b, t - 1, j]))); "
    "o[b, t, d] = sigmoid(x[b, t, 3, d] + sum[j](w[3, d, j]*pad(h[b, t - 1, j]))); "
    "c[b, t, d] = f*pad(c[b, t - 1, d]) + i*g; h = o*tanh(c)"
)
DTW = (
    "dtw(D[..., i, j]) -> R[..., i, j] = "
    "D - logaddexp(-R[i - 1, j - 1], logaddexp(-R[i - 1, j], -R[i, j - 1])); "
    "R[-1, -1] = 0; R[-1, j] = inf; R[i, -1] = inf"
)


def lru_loop(a: Tensor, x: Tensor, h: Tensor) -> Tensor:
    """The linear recurrence, step by step."""
    found: list[Tensor] = []
    for own, given in zip(a.unbind(1), x.unbind(1), strict=True):
        h = own * h + given
        found.append(h)
    return torch.stack(found, 1)


def scan_loop(dt: Tensor, a: Tensor, p: Tensor, c: Tensor, x: Tensor) -> Tensor:
    """The selective scan, step by step."""
    h, found = torch.zeros(()), list[Tensor]()
    for step, own, out, given in zip(*(v.unbind(1) for v in (dt, p, c, x)), strict=True):
        h = (step[..., None] * a).exp() * h + (step * given)[..., None] * own[:, None]
        found.append((h * out[:, None]).sum(-1))
    return torch.stack(found, 1)


def heads_loop(dt: Tensor, a: Tensor, p: Tensor, c: Tensor, x: Tensor) -> Tensor:
    """The selective scan of Mamba-2, step by step: a head's elements decay alike."""
    u, found = torch.zeros(()), list[Tensor]()
    for step, own, out, given in zip(*(v.unbind(1) for v in (dt, p, c, x)), strict=True):
        decay = (step * a).exp()[..., None, None]
        u = decay * u + (step[..., None] * given)[..., None] * own[:, None, None]
        found.append((u * out[:, None, None]).sum(-1))
    return torch.stack(found, 1)


def reservoir_loop(x: Tensor, w: Tensor, to: Tensor) -> Tensor:
    """Neurons of which each reads a few others, step by step."""
    h, found = torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in x.unbind(1):
        h = torch.tanh(given + (w * h[:, to]).sum(-1))
        found.append(h)
    return torch.stack(found, 1)


def biquad_loop(x: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """The filter, sample by sample."""
    found, zero = list[Tensor](), torch.zeros_like(x[..., 0])
    one = two = before = older = zero
    for given in x.unbind(-1):
        y = b[0] * given + b[1] * one + b[2] * two - a[1] * before - a[2] * older
        one, two, before, older = given, one, y, before
        found.append(y)
    return torch.stack(found, -1)


def gae_loop(delta: Tensor, c: Tensor) -> Tensor:
    """Advantages, from the last step on."""
    v, found = torch.zeros_like(delta[0]), list[Tensor]()
    for own, given in zip(reversed(delta.unbind(0)), reversed(c.unbind(0)), strict=True):
        v = own + given * v
        found.append(v)
    return torch.stack(found[::-1])


def heat_loop(u: Tensor, k: Tensor, time: Tensor) -> Tensor:
    """The heat equation, step by step."""
    found: list[Tensor] = []
    for _ in range(len(time)):
        wide = torch.nn.functional.pad(u, (1, 1))
        u = u + k * (wide[2:] - 2 * u + wide[:-2])
        found.append(u)
    return torch.stack(found)


def gru_loop(x: Tensor, w: Tensor) -> Tensor:
    """A GRU over time, whose inputs are multiplied already."""
    h, found = torch.zeros_like(x[:, 0, 0]), list[Tensor]()
    for own in x.unbind(1):
        r, z, n = (h @ w.transpose(1, 2)).unbind(0)
        r, z = (own[:, 0] + r).sigmoid(), (own[:, 1] + z).sigmoid()
        h = (1 - z) * (own[:, 2] + r * n).tanh() + z * h
        found.append(h)
    return torch.stack(found, 1)


def lstm_loop(x: Tensor, w: Tensor) -> Tensor:
    """An LSTM over time, whose inputs are multiplied already."""
    h, c, found = torch.zeros_like(x[:, 0, 0]), torch.zeros_like(x[:, 0, 0]), list[Tensor]()
    for own in x.unbind(1):
        i, f, g, o = (own.transpose(0, 1) + h @ w.transpose(1, 2)).unbind(0)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(h)
    return torch.stack(found, 1)


def dtw_loop(distances: Tensor) -> Tensor:
    """Soft-DTW, front by front: of each the elements by their i; far away where there is none."""
    batch, rows, columns = distances.shape
    i = torch.arange(rows, device=distances.device)
    far = distances.new_full((batch, rows), 1e10)
    before, older, found = far, far, list[Tensor]()
    for f in range(rows + columns - 1):
        there = (f - i >= 0) & (f - i < columns)
        own = distances[:, i, (f - i).clamp(0, columns - 1)]
        above, both = (torch.cat([far[:, :1], each[:, :-1]], 1) for each in (before, older))
        if f == 0:
            both = torch.where(i == 0, 0.0, far)
        least = torch.logsumexp(-torch.stack([both, above, before]), 0)
        older, before = before, torch.where(there, own + -least, far)
        found.append(before)
    fronts = torch.stack(found, 1)
    return fronts[:, i[:, None] + torch.arange(columns, device=i.device), i[:, None]]
