"""Operators in index notation for a library: lines, the same in PyTorch, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Draw = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """One operator.

    Attributes:
        text: its line, after the name.
        reference: the same by PyTorch's operations.
        arguments: for a function that draws a tensor of a shape.
    """

    text: str
    reference: Callable[..., Tensor]
    arguments: Callable[[Draw], tuple[object, ...]]


def gauss(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return (-(x[:, None] - y).square().sum(-1)).exp() @ v


def correlate(x: Tensor, k: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x[None, None], k[None, None])[0, 0]


def bag(x: Tensor, i: Tensor) -> Tensor:
    return torch.where((i >= 0)[..., None], x[i.clamp(min=0)], 0).sum(1)


def laplace(u: Tensor) -> Tensor:
    p = torch.nn.functional.pad(u, (1, 1, 1, 1))
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u


def scaled(x: Tensor, b: Tensor | None, s: float, k: int) -> Tensor:
    y = x * s / (k + x.shape[1]) + x.sum(1, keepdim=True)
    return y if b is None else y * b


def bumps(x: Tensor, w: Tensor, order: int) -> Tensor:
    return w[:, None] * sum(
        (-((x[:, None] - torch.arange(2) * k) ** 2)).exp() for k in range(order)
    )


def in_blocks(x: Tensor, s: Tensor, t: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])
    return torch.where(x > 0, x * s[:, places // 8] * t[(places + 1) % 3], x)


def lru(a: Tensor, x: Tensor, h0: Tensor) -> Tensor:
    states = [h0.expand_as(x[:, 0])]
    for factor, value in zip(a.unbind(1), x.unbind(1), strict=True):
        states.append(factor * states[-1] + value)
    return torch.stack(states[1:], 1)


def final(x: Tensor, h: Tensor) -> Tensor:
    for value in x:
        h = value * h.tanh()
    return h.exp()


def backwards(delta: Tensor, c: Tensor) -> Tensor:
    states = [delta[..., -1]]
    for value, factor in zip(delta[..., :-1].unbind(-1)[::-1], c.unbind(-1)[-2::-1], strict=True):
        states.append(value + factor * states[-1])
    return torch.stack(states[::-1], -1)


def selective(dt: Tensor, a: Tensor, b: Tensor, x: Tensor, s: float) -> Tensor:
    state, found = torch.zeros(dt.shape[1:] + a.shape[1:], dtype=dt.dtype), list[Tensor]()
    for k in range(len(dt)):
        state = (-(dt[k, :, None] * a).square()).exp() * state + b[k] * x[k, :, None] * s
        found.append(state.sum(-1) * x[k])
    return torch.stack(found)


def paths(x: Tensor, w: Tensor) -> Tensor:
    rows: list[list[Tensor]] = []
    zero = x.new_zeros(())
    for i in range(len(x)):
        row: list[Tensor] = []
        for j in range(x.shape[1]):
            above = rows[-1][j] if i else zero
            corner = rows[-1][j - 1] if i and j else zero
            row.append(x[i, j] + (above + w[j] * (row[-1] if j else zero) + corner).tanh())
        rows.append(row)
    return torch.stack([torch.stack(row) for row in rows])


def numbers(most: int, *shape: int) -> Tensor:
    """Return some indices, of which many are the same."""
    return torch.arange(torch.Size(shape).numel()).mul(7).remainder(most).reshape(shape)


# Of each family, and one of several kernels; their gradients are a pairwise sum, rows, a stencil, a
# scatter and a recurrence. The last has an int scalar that says how far an index runs.
FEW = ("gauss", "softmax", "batchnorm", "correlate", "gather", "lru", "final", "bumps")
# Of each family, on GPUs; of places within places, and of a sum in chunks.
ON_GPUS = (
    *("gauss", "softmax", "batchnorm", "correlate", "bag"),
    *("batched", "windows", "hop", "total", "scaled"),
)
# And their second derivatives.
TWICE_ON_GPUS = ("gauss", "softmax")
# And by nvcc.
FOR_GPUS = ("gauss", "softmax", "bag", "total")
CASES = {
    "gauss": Case(
        "(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])",
        gauss,
        lambda draw: (draw(37, 3), draw(53, 3), draw(53)),
    ),
    "softmax": Case(
        "(x[..., n]) -> y[..., n] = exp(x - max[m](x[m]))/sum[k](exp(x[k] - max[m](x[m])))",
        lambda x: x.softmax(-1),
        lambda draw: (draw(19, 2, 4).permute(1, 2, 0),),
    ),
    "batchnorm": Case(
        "(x[b, c, s], g[c]) -> y[b, c, s] = u[c] = mean[p, q](x[p, c, q]);"
        " y = (x - u)/sqrt(mean[p, q]((x[p, c, q] - u[c])**2) + 1e-5)*g",
        lambda x, g: torch.nn.functional.batch_norm(x, None, None, g, training=True),
        lambda draw: (draw(6, 5, 19), draw(5)),
    ),
    "correlate": Case(
        "(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
        correlate,
        lambda draw: (draw(17, 19), draw(3, 5)),
    ),
    "gather": Case(
        "(x[v, d], i[n]: int64, w[n]) -> y[n, d] = x[i[n], d]*w[n]",
        lambda x, i, w: x[i] * w[:, None],
        lambda draw: (draw(7, 11).t(), numbers(11, 40), draw(40)),
    ),
    "bumps": Case(
        "(x[n], w[n], order: int) -> y[n, b < 2] = w*sum[k < order](exp(-(x - b*k)**2))",
        bumps,
        lambda draw: (draw(40), draw(40), 5),
    ),
    "bag": Case(
        "(x[v, d], i[n, k]: int64) -> y[n, d] = sum[k](where(i[n, k] >= 0, x[i[n, k], d], 0))",
        bag,
        lambda draw: (draw(9, 4), numbers(11, 30, 5) - 2),
    ),
    "batched": Case(
        "(x[..., v, d], i[..., n]: int64) -> y[..., n, d] = exp(x[..., i[..., n], d])",
        lambda x, i: x.exp().gather(1, i[..., None].expand(-1, -1, x.shape[-1])),
        lambda draw: (draw(3, 6, 2), numbers(6, 3, 10)),
    ),
    "windows": Case(
        "(x[v], i[n]: int64) -> y[n, k < 20] = x[i[n] + k]**2",
        lambda x, i: x[i[:, None] + torch.arange(20, device=x.device)] ** 2,
        lambda draw: (draw(50), numbers(30, 7)),
    ),
    "hop": Case(
        "(x[v], i[u]: int64, j[n]: int64) -> y[n] = x[i[j[n]]]**2",
        lambda x, i, j: x[i[j]] ** 2,
        lambda draw: (draw(9), numbers(9, 5), numbers(5, 30)),
    ),
    "greatest": Case(
        "(x[v, d], i[n, k]: int64) -> y[n, d] = max[k](x[i[n, k], d])",
        lambda x, i: x[i].amax(1),
        lambda draw: (draw(9, 4), numbers(9, 20, 3)),
    ),
    # Where the nearest one is has a loop of its own in the gradient for x.
    "nearest": Case(
        "(x[n, d], y[m, d]) -> u[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
        lambda x, y: (x[:, None] - y).square().sum(2).amin(1),
        lambda draw: (draw(37, 17), draw(53, 17)),
    ),
    "laplace": Case(
        "(u[h, w]) -> y[h, w] = pad(u[h + 1, w]) + pad(u[h - 1, w]) + pad(u[h, w + 1])"
        " + pad(u[h, w - 1]) - 4*u[h, w]",
        laplace,
        lambda draw: (draw(12, 21),),
    ),
    "rownorm": Case(
        "(x[..., n]) -> y[..., n] = x/sqrt(mean[m](x[m]**2) + 1e-6)",
        lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt(),
        lambda draw: (draw(5, 33),),
    ),
    "scaled": Case(
        "(x[n, m], b[m]?, s: float, k: int) -> y[n, m] = (x[n, m]*s/(k + size(m))"
        " + sum[j](x[n, j]))*b[m]",
        scaled,
        lambda draw: (draw(6, 9), draw(9), 1.5, 3),
    ),
    "matmul": Case(
        "(a[n, k], b[k, m]) -> c[n, m] = sum[k](a[n, k]*b[k, m])",
        lambda a, b: a @ b,
        lambda draw: (draw(20, 30), draw(30, 25)),
    ),
    "total": Case(
        "(x[n]) -> y[] = sum[n](exp(x[n]))/size(n)",
        lambda x: x.exp().mean(),
        lambda draw: (draw(100_000),),
    ),
    "last": Case(
        "(x[n, m]) -> y[n] = x[n, size(m) - 1]*max[m](x[n, m])",
        lambda x: x[:, -1] * x.amax(1),
        lambda draw: (draw(5, 6),),
    ),
    "pooled": Case(
        "(x[..., h, w]) -> y[..., i, j] = max[p < 3, q < 2](x[..., 2*i + p, j + q])",
        lambda x: torch.nn.functional.max_pool2d(x, (3, 2), (2, 1)),
        lambda draw: (draw(3, 17, 40),),
    ),
    # Places that are divided, and taken modulo a number; how many `s` has, each call has to check.
    "in_blocks": Case(
        "(x[n, k], s[n, b], t[3]) -> y[n, k] = where(x > 0, x*s[n, k//8]*t[(k + 1) % 3], x)",
        in_blocks,
        lambda draw: (draw(5, 43), draw(5, 6), draw(3)),
    ),
    "lru": Case(
        "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d]"
        " = a*h[t - 1, d] + x; h[-1, d] = h0",
        lru,
        lambda draw: (draw(2, 40, 19), draw(2, 40, 19), draw(19)),
    ),
    # Of its states, and of what arrives at them, the last step alone is read.
    "final": Case(
        "(x[t, d], h0[d]) -> y[d] = h[t, d] = x*tanh(h[t - 1, d]); h[-1, d] = h0;"
        " y = exp(h[size(t) - 1, d])",
        final,
        lambda draw: (draw(9, 11), draw(11)),
    ),
    # What c gets is a sum over the steps, the lanes and the batch.
    "decay": Case(
        "(x[..., t, d], c[]) -> h[..., t, d] = c*pad(h[t - 1, d]) + x",
        lambda x, c: lru(c.expand_as(x), x, torch.zeros_like(x[0, 0])),
        lambda draw: (draw(3, 40, 19), draw()),
    ),
    # The library has loops for d = 3, whose lanes are the batch.
    "narrow": Case(
        "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d]"
        " = a*h[t - 1, d] + x; h[-1, d] = h0",
        lru,
        lambda draw: (draw(2, 20, 3), draw(2, 20, 3), draw(3)),
    ),
    "backwards": Case(
        "(delta[..., t], c[..., t]) -> adv[..., t] = delta + c*pad(adv[t + 1])",
        backwards,
        lambda draw: (draw(3, 30), draw(3, 30)),
    ),
    "paths": Case(
        "(x[i, j], w[j]) -> y[i, j]"
        " = x + tanh(pad(y[i - 1, j]) + w*pad(y[i, j - 1]) + pad(y[i - 1, j - 1]))",
        paths,
        lambda draw: (draw(9, 21), draw(21)),
    ),
    "selective": Case(
        "(dt[t, d], a[d, s], b[t, s], x[t, d], k: float) -> y[t, d]"
        " = h[t, d, s] = exp(-(dt*a)**2)*pad(h[t - 1, d, s]) + k*b*x; y = x*sum[s](h)",
        selective,
        lambda draw: (draw(25, 6), draw(6, 3), draw(25, 3), draw(25, 6), 0.5),
    ),
}
