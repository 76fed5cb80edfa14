"""Formulas in index notation, each with the same in PyTorch's words."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

SIZES = {
    **{"n": 7, "m": 5, "d": 3, "i": 4, "o": 6, "h": 8, "w": 7, "p": 3, "q": 2, "v": 9, "...": 2},
    **{"b": 2, "c": 3, "a": 2, "s": 5, "t": 4, "e": 3, "j": 3},
}


def pad_conv(x: Tensor, k: Tensor) -> Tensor:
    return F.conv1d(F.pad(x, (1, len(k) - 2))[None, None], k[None, None])[0, 0]


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.ones(len(q), len(q)).triu(1).bool()
    return torch.softmax((q @ k.T).masked_fill(later, -torch.inf), -1) @ v


def pairs(s: Tensor, t: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(-(s[:, None] - s) * (t[:, None] - t))).mean()


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "linear(x[n, i], w[o, i], b[o]) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]": F.linear,
    "sqdist(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)": (
        lambda x, y: ((x[:, None] - y) ** 2).sum(-1)
    ),
    "gauss(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])": (
        lambda x, y, v: torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v
    ),
    "correlate(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])": (
        lambda x, k: F.conv2d(x[None, None], k[None, None])[0, 0]
    ),
    "rownorm(x[..., n]) -> y[..., n] = x/sqrt(mean[m](x[m]**2) + 1e-6)": (
        lambda x: x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6)
    ),
    "softmax(x[..., n]) -> y[..., n]"
    " = exp(x - max[m](x[m]))/sum[k](exp(x[k] - max[m](x[m])))": lambda x: x.softmax(-1),
    "logsumexp(x[..., n]) -> y[...] = top = max[n](x); y = top + log(sum[n](exp(x - top)))": (
        lambda x: x.logsumexp(-1)
    ),
    "gather(x[v, d], idx[n]: int64) -> y[n, d] = x[idx[n], d]**2": lambda x, idx: x[idx] ** 2,
    "bag(x[v, d], idx[n, m]: int64) -> y[n, d] = sum[m](x[idx[n, m], d])": (
        lambda x, idx: x[idx].sum(1)
    ),
    "shifted(x[v], idx[n]: int64) -> y[n] = sum[p < 2](pad(x[idx[n] + p]))": lambda x, idx: (
        x[idx] + F.pad(x, (0, 1))[idx + 1]
    ),
    "cell(x[n, m, d], s[n], t[m]) -> y[d] = x[argmax[i](s[i]), argmax[j](t[j]), d] + s[0]*t[0]": (
        lambda x, s, t: x[s.argmax(), t.argmax()] + s[0] * t[0]
    ),
    "pair(s[n], t[n]) -> l[]"
    " = sum[i, j](log(1 + exp(-(s[i] - s[j])*(t[i] - t[j]))))/size(n)**2": pairs,
    "bilinear(x[n, i], a[o, i, j], y[n, j]) -> z[n, o]"
    " = tanh(sum[i, j](x[n, i]*a[o, i, j]*y[n, j]))": (
        lambda x, a, y: torch.tanh(torch.einsum("ni,oij,nj->no", x, a, y))
    ),
    "padded(x[h], k[p]) -> y[h] = sum[p](k[p]*pad(x[h + p - 1]))": pad_conv,
    "stride(x[h], k[p]) -> y[j] = sum[p](x[2*j + p]*k[p])": (
        lambda x, k: F.conv1d(x[None, None], k[None, None], stride=2)[0, 0]
    ),
    "nearest(x[h, w]) -> y[i, j] = x[i//2, (j + 1)//3]": (
        lambda x: x.repeat_interleave(2, 0).repeat_interleave(3, 1)[:, 1:]
    ),
    "scaled(x[n, m], s[n, d], t[e]) -> y[n, m] = x*s[n, m//2]*t[m % 3]": (
        lambda x, s, t: x * s.repeat_interleave(2, 1)[:, :-1] * torch.cat((t, t))[:-1]
    ),
    "conv2d(x[b, c, h, w], f[a, c, p, q]) -> y[b, a, i, j]"
    " = sum[c, p, q](x[b, c, i + p, j + q]*f[a, c, p, q])": F.conv2d,
    "laplace(u[h, w]) -> y[h, w]"
    " = pad(u[h + 1, w]) + pad(u[h - 1, w]) + pad(u[h, w + 1]) + pad(u[h, w - 1]) - 4*u": (
        lambda u: F.conv2d(
            u[None, None],
            torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=u.dtype)[None, None],
            padding=1,
        )[0, 0]
    ),
    "attention(q[s, e], k[t, e], v[t, d]) -> o[s, d]"
    " = score = sum[e](q[s, e]*k[t, e]); weight[s, t] = exp(score - max[r](score[s, r]))"
    "; o = sum[t](weight*v)/sum[t](weight)": (lambda q, k, v: torch.softmax(q @ k.T, -1) @ v),
    "causal(q[s, e], k[s, e], v[s, d]) -> o[s, d]"
    " = w[s, t] = where(t <= s, exp(sum[e](q[s, e]*k[t, e])), 0)"
    "; o = sum[t](w[s, t]*v[t, d])/sum[t](w[s, t])": causal,
    "rowmax(x[n, m]) -> y[n] = max[m](x[n, m]**2)": lambda x: (x**2).amax(1),
    "chamfer(x[n, d], y[m, d]) -> z[n] = -max[m](-sum[d]((x[n, d] - y[m, d])**2))": (
        lambda x, y: ((x[:, None] - y) ** 2).sum(-1).amin(1)
    ),
    "cumsum(x[n]) -> y[n] = sum[m]((m <= n)*x[m])": lambda x: x.cumsum(0),
    "weighted(x[n]) -> y[] = sum[n](n*exp(x[n])) + size(n)": (
        lambda x: (torch.arange(len(x)) * x.exp()).sum() + len(x)
    ),
    "layernorm(x[..., n], g[n], b[n]) -> y[..., n]"
    " = mu = mean[n](x); y = (x - mu)/sqrt(mean[m]((x[m] - mu)**2) + 1e-5)*g + b": (
        lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, 1e-5)
    ),
    "entropy(x[n, v], label[n]: int64) -> y[n] = log(sum[k](exp(x[n, k]))) - x[n, label[n]]": (
        lambda x, label: F.cross_entropy(x, label, reduction="none")
    ),
    "column(a[n, m]) -> y[n] = sum[m](a[n, m]**2)*a[n, 0]": lambda a: (a**2).sum(1) * a[:, 0],
    "outer(x[n], y[m]) -> z[n, m] = x[n] + y[m]": lambda x, y: x[:, None] + y,
    "hinge(s[n]) -> y[n] = sum[m](relu(1 - (s[n] - s[m])))": (
        lambda s: torch.relu(1 - (s[:, None] - s)).sum(1)
    ),
}
