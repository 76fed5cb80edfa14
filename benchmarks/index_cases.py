"""The operators in index notation that are measured, each with its peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

Function = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator.

    Attributes:
        name: in the table.
        line: pullback's.
        inputs: makes them; whole-number tensors have no gradient.
        eager: plain PyTorch, which `torch.compile` gets too.
        fused: PyTorch's own operator, where there is one.
        keops: the same by KeOps, where it can say it; it gets `LazyTensor`.
        family: whether it is one of those that pullback has own loops for.
    """

    name: str
    line: str
    inputs: Callable[[], tuple[Tensor, ...]]
    eager: Function
    fused: Function | None = None
    keops: Callable[..., Tensor] | None = None
    family: bool = True


def normal(*shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[], tuple[Tensor, ...]]:
    """Return what makes tensors of some shapes."""

    def make() -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(shape, generator=generator) * scale for shape in shapes)

    return make


def rows_of(rows: int, width: int, count: int, picked: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return what makes a table, and an index that picks some of its rows for each output."""

    def make() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        # All values differ: of equal maxima PyTorch's operations share the gradient.
        order = torch.randperm(rows * width, generator=generator)
        table = (2.0 * order / len(order) - 1).view(rows, width)
        return table, torch.randint(rows, (count, picked), generator=generator)

    return make


def bag(rows: int, width: int, count: int, picked: int) -> Case:
    """Return sums of rows that data picks."""
    return Case(
        name=f"bag {count}x{picked} of {rows}x{width}",
        line="(table[v, d], index[n, k]: int64) -> y[n, d] = sum[k](table[index[n, k], d])",
        inputs=rows_of(rows, width, count, picked),
        eager=lambda table, index: table[index].sum(1),
        fused=lambda table, index: F.embedding_bag(index, table, mode="sum"),
    )


@cache
def ends_of(nodes: int, degree: int) -> Tensor:
    """Return where the edges of a graph end, which libraries of graphs are given."""
    return torch.arange(nodes).repeat_interleave(degree)


def sum_neighbours(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, ends_of(*index.shape), x[index.view(-1)])


def most_of_neighbours(x: Tensor, index: Tensor) -> Tensor:
    ends = ends_of(*index.shape)[:, None].expand(-1, x.shape[1])
    values = x[index.view(-1)]
    return torch.zeros_like(x).scatter_reduce(0, ends, values, "amax", include_self=False)


def neighbours(kind: str, nodes: int, width: int, degree: int) -> Case:
    """Return sums or maxima over the neighbours in a graph."""
    return Case(
        name=f"neighbours {kind} {nodes}x{degree}, d={width}",
        line=f"(x[v, d], index[v, k]: int64) -> y[v, d] = {kind}[k](x[index[v, k], d])",
        inputs=rows_of(nodes, width, nodes, degree),
        eager=sum_neighbours if kind == "sum" else most_of_neighbours,
        fused=(lambda x, index: F.embedding_bag(index, x, mode="sum"))
        if kind == "sum"
        else (lambda x, index: x[index].amax(1)),
    )


def gauss(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return torch.exp(-((x[:, None] - y) ** 2).sum(-1)) @ v


def gauss_keops(lazy: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    square = ((lazy(x[:, None]) - lazy(y[None])) ** 2).sum(-1)
    return ((-square).exp() * lazy(v[None, :, None])).sum(1)[:, 0]


def pair(s: Tensor, t: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(-(s[:, None] - s) * (t[:, None] - t))).mean()


def pair_keops(lazy: Any, s: Tensor, t: Tensor) -> Tensor:
    s_n, s_m, t_n, t_m = (lazy(x) for v in (s, t) for x in (v[:, None, None], v[None, :, None]))
    return (1 + (-(s_n - s_m) * (t_n - t_m)).exp()).log().sum(1).mean() / len(s)


def laplace(u: Tensor) -> Tensor:
    p = F.pad(u, (1, 1, 1, 1))
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u


def laplace_conv(u: Tensor) -> Tensor:
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    return F.conv2d(u[None, None], kernel[None, None], padding=1)[0, 0]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.T, -1) @ v


WEIGHT = "exp(sum[e](q[s, e]*k[t, e]) - max[r](sum[e](q[s, e]*k[r, e])))"
CASES = (
    Case(
        name="sqdist 2000x2000x16",
        line="(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
        inputs=normal((2000, 16), (2000, 16)),
        eager=lambda x, y: ((x[:, None] - y) ** 2).sum(-1),
    ),
    Case(
        name="gauss 4000x4000x3",
        line="(x[n, d], y[m, d], v[m]) -> u[n]"
        " = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)) * v[m])",
        inputs=normal((4000, 3), (4000, 3), (4000,)),
        eager=gauss,
        keops=gauss_keops,
    ),
    Case(
        name="pair loss n=4000",
        line="(s[n], t[n]) -> l[]"
        " = sum[i, j](log(1 + exp(-(s[i] - s[j])*(t[i] - t[j]))))/size(n)**2",
        inputs=normal((4000,), (4000,)),
        eager=pair,
        keops=pair_keops,
    ),
    Case(
        name="row norm 4096x1024",
        line="(x[..., n]) -> y[..., n] = x[n]/sqrt(sum[m](x[m]**2)/size(n) + 1e-6)",
        inputs=normal((4096, 1024)),
        eager=lambda x: x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6),
        fused=lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
    ),
    Case(
        name="softmax 4096x1024",
        line="(x[..., n]) -> y[..., n] = exp(x[n] - max[m](x[m]))/sum[m](exp(x[m] - max[k](x[k])))",
        inputs=normal((4096, 1024)),
        eager=lambda x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / e.sum(-1, keepdim=True),
        fused=lambda x: x.softmax(-1),
    ),
    Case(
        name="log-sum-exp 4096x1024",
        line="(x[..., n]) -> y[...] = max[m](x[m]) + log(sum[k](exp(x[k] - max[m](x[m]))))",
        inputs=normal((4096, 1024)),
        eager=lambda x: (
            (m := x.amax(-1, keepdim=True))[..., 0] + torch.log(torch.exp(x - m).sum(-1))
        ),
        fused=lambda x: x.logsumexp(-1),
    ),
    Case(
        name="correlate 512x512, 7x7",
        line="(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q] * k[p, q])",
        inputs=normal((512, 512), (7, 7)),
        eager=lambda x, k: F.conv2d(x[None, None], k[None, None])[0, 0],
    ),
    Case(
        name="Laplacian 2048x2048",
        line="(u[h, w]) -> y[h, w] = pad(u[h + 1, w]) + pad(u[h - 1, w]) + pad(u[h, w + 1])"
        " + pad(u[h, w - 1]) - 4*u[h, w]",
        inputs=normal((2048, 2048)),
        eager=laplace,
        fused=laplace_conv,
    ),
    *(bag(50_000, 64, 4096, picked) for picked in (1, 16, 32)),
    *(bag(50_000, width, 4096, 32) for width in (1, 7, 300)),
    *(neighbours(kind, 20_000, width, 16) for kind in ("sum", "max") for width in (1, 7, 64, 300)),
    Case(
        name="chamfer 2000x2000x3",
        line="(x[n, d], y[m, d]) -> z[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
        inputs=normal((2000, 3), (2000, 3)),
        eager=lambda x, y: ((x[:, None] - y) ** 2).sum(-1).amin(1),
        family=False,
    ),
    Case(
        name="linear 1024x1024x1024",
        line="(x[n, i], w[o, i], b[o]) -> y[n, o] = sum[i](x[n, i]*w[o, i]) + b[o]",
        inputs=normal((1024, 1024), (1024, 1024), (1024,)),
        eager=lambda x, w, b: x @ w.T + b,
        fused=F.linear,
        family=False,
    ),
    Case(
        name="attention 512x512x64",
        line=f"(q[s, e], k[t, e], v[t, d]) -> o[s, d] = sum[t]({WEIGHT}*v[t, d])/sum[t]({WEIGHT})",
        inputs=normal((512, 64), (512, 64), (512, 64), scale=0.35),
        eager=attention,
        fused=lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[
            0
        ],
        family=False,
    ),
    Case(
        name="conv2d 4x32x64x64, 3x3",
        line="(x[b, c, h, w], f[a, c, p, q]) -> y[b, a, i, j]"
        " = sum[c, p, q](x[b, c, i + p, j + q]*f[a, c, p, q])",
        inputs=normal((4, 32, 64, 64), (32, 32, 3, 3)),
        eager=F.conv2d,
        family=False,
    ),
    Case(
        name="layer norm 4096x1024",
        line="(x[..., n], g[n], b[n]) -> y[..., n] = m = mean[k](x[k]);"
        " y = (x[n] - m)/sqrt(mean[k]((x[k] - m)**2) + 1e-5)*g[n] + b[n]",
        inputs=normal((4096, 1024), (1024,), (1024,)),
        eager=lambda x, g, b: (
            (x - (m := x.mean(-1, keepdim=True)))
            / torch.sqrt(((x - m) ** 2).mean(-1, keepdim=True) + 1e-5)
            * g
            + b
        ),
        fused=lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, 1e-5),
        family=False,
    ),
)
