"""Attention and its relatives, a line each, beside eager PyTorch: values and gradients, in float64.

What is large is computed by blocks, so none of them holds its matrix of scores: `op.plan(...)`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb

N, M, D, E = 9, 9, 4, 5


class Row(NamedTuple):
    """A line, the shapes and sizes of what it takes beside q, k and v, and its reference."""

    line: str
    eager: Callable[..., Tensor]
    more: tuple[Tensor, ...] = ()
    lead: tuple[int, ...] = ()


S = "sum[d](q[n, d]*k[m, d])"
SOFTMAX = (
    "p[n, m] = exp(s[n, m] - max[r](s[n, r])); o[n, e] = sum[m](p[n, m]*v[m, e])/sum[m](p[n, m])"
)


def attention(scores: str, more: str = "") -> str:
    """Return the line of an attention with some scores."""
    return f"(q[n, d], k[m, d], v[m, e]{more}) -> o[n, e] = s[n, m] = {scores}; {SOFTMAX}"


def eager(change: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an attention whose scores are changed, by PyTorch's operations."""

    def run(q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
        return torch.softmax(change(q @ k.mT, *more), -1) @ v

    return run


PLACE = torch.arange(N)
APART = PLACE[:, None] - PLACE
SEGMENTS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])


def cosine(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by the cosine of the angle between a query and a key."""
    q, k = (functional.normalize(t, dim=-1) for t in (q, k))
    return torch.softmax(8 * q @ k.mT, -1) @ v


def both_ways(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A contrastive loss of each pair, in both directions."""
    scores = q @ k.mT
    return scores.logsumexp(1) + scores.logsumexp(0) - 2 * scores.diagonal() + 0 * v.sum()


ROWS = {
    "plain": Row(attention(S), eager(lambda s: s)),
    "causal": Row(
        attention(f"where(m <= n, {S}, -inf)"),
        eager(lambda s: s.masked_fill(APART < 0, -math.inf)),
    ),
    "window of 3": Row(
        attention(f"where((m <= n) and (n - m < 3), {S}, -inf)"),
        eager(lambda s: s.masked_fill((APART < 0) | (APART >= 3), -math.inf)),
    ),
    "ALiBi": Row(
        attention(f"where(m <= n, {S} - 0.1*(n - m), -inf)"),
        eager(lambda s: (s - 0.1 * APART.double()).masked_fill(APART < 0, -math.inf)),
    ),
    "soft-capping": Row(attention(f"5*tanh({S}/5)"), eager(lambda s: 5 * torch.tanh(s / 5))),
    "bias with gradient": Row(
        attention(f"{S} + b[n, m]", ", b[n, m]"),
        eager(lambda s, b: s + b),
        (torch.randn(N, M, dtype=torch.float64),),
    ),
    "relative bias": Row(
        attention(f"{S} + pad(b[n - m + size(m) - 1])", ", b[c]"),
        eager(lambda s, b: s + b[APART + M - 1]),
        (torch.randn(N + M - 1, dtype=torch.float64),),
    ),
    "key padding": Row(
        attention(f"where(m < t, {S}, -inf)", ", t: int"),
        eager(lambda s: s.masked_fill(PLACE >= 6, -math.inf)),
    ),
    "segments": Row(
        attention(f"where(a[n] == b[m], {S}, -inf)", ", a[n]: int64, b[m]: int64"),
        eager(lambda s, a, b: s.masked_fill(a[:, None] != b, -math.inf)),
        (SEGMENTS, SEGMENTS),
    ),
    "grouped heads": Row(
        "(q[g, h, n, d], k[g, m, d], v[g, m, e]) -> o[g, h, n, e] = "
        "s[g, h, n, m] = sum[d](q[g, h, n, d]*k[g, m, d]); "
        "p[g, h, n, m] = exp(s[g, h, n, m] - max[r](s[g, h, n, r])); "
        "o = sum[m](p[g, h, n, m]*v[g, m, e])/sum[m](p[g, h, n, m])",
        lambda q, k, v: torch.softmax(q @ k[:, None].mT, -1) @ v[:, None],
        lead=(2, 3),
    ),
    "cosine": Row(
        "(q[n, d], k[m, d], v[m, e]) -> o[n, e] = a[n] = sqrt(sum[d](q[n, d]**2)); "
        f"b[m] = sqrt(sum[d](k[m, d]**2)); s[n, m] = 8*{S}/a[n]/b[m]; {SOFTMAX}",
        cosine,
    ),
    "sigmoid": Row(
        f"(q[n, d], k[m, d], v[m, e]) -> o[n, e] = sum[m](sigmoid({S} - 2)*v[m, e])",
        lambda q, k, v: torch.sigmoid(q @ k.mT - 2) @ v,
    ),
    "Gaussian": Row(
        "(q[n, d], k[m, d], v[m, e]) -> o[n, e] = "
        "sum[m](exp(-sum[d]((q[n, d] - k[m, d])**2))*v[m, e])",
        lambda q, k, v: torch.exp(-((q[:, None] - k) ** 2).sum(-1)) @ v,
    ),
    "InfoNCE, both ways": Row(
        f"(q[n, d], k[n, d], v[n, e]) -> l[n] = s[n, m] = {S}; w[n] = max[m](s[n, m]); "
        "u[m] = max[n](s[n, m]); l = w[n] + log(sum[m](exp(s[n, m] - w[n]))) "
        "+ u[n] + log(sum[i](exp(s[i, n] - u[n]))) - 2*s[n, n] + 0*sum[m, e](v[m, e])",
        both_ways,
    ),
}


def inputs_of(row: Row) -> list[Tensor]:
    """Return what a line takes."""
    lead = row.lead
    shapes = [(*lead, N, D), (*lead[:1], M, D), (*lead[:1], M, E)]
    return [*(torch.randn(shape, dtype=torch.float64) for shape in shapes), *row.more]


def results(way: Callable[..., Tensor], inputs: list[Tensor], *last: int) -> list[Tensor]:
    """Return the value, and the gradients of a sum in which each element has its own weight."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    value = way(*leaves, *last)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [value.detach(), *torch.autograd.grad((weights * value).sum(), wanted)]


def main() -> dict[str, float]:
    """Print how far every line is from its reference, relative to the greatest value."""
    torch.manual_seed(0)
    worst: dict[str, float] = {}
    for k, (name, row) in enumerate(ROWS.items()):
        operator = pb.operator(f"attention::line{k}{row.line}")
        inputs = inputs_of(row)
        last = [6] if "t: int" in row.line else []
        pairs = zip(results(operator, inputs, *last), results(row.eager, inputs), strict=True)
        apart = [((a - b).abs().max() / b.abs().max().clamp(min=1e-300)).item() for a, b in pairs]
        print(f"{name:20} value {apart[0]:8.1e} apart, gradients {max(apart[1:]):8.1e}")
        worst[name] = max(apart)
    return worst


if __name__ == "__main__":
    main()
