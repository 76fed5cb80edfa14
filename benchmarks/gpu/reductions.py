"""Long reductions, whose matrix is never in memory, beside PyTorch's operations and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

from benchmarks.gpu import loops
from benchmarks.gpu.cases import Bound, Case, Function, both, rehearsed
from benchmarks.gpu.part import Step
from benchmarks.gpu.place import Place

SCORES = "sum[d](q[..., n, d]*k[..., m, d])/8"
DISTANCES = "-sum[d]((q[..., n, d] - k[..., m, d])**2)/8"
# The logarithm of the sum of exponentials of a row, and its greatest element before it.
TOTAL = "max[m](s[n, m]) + log(sum[m](exp(s[n, m] - max[r](s[n, r]))))"


def attention(
    name: str,
    scores: str,
    change: Function,
    fused: Function | None,
    dtype: torch.dtype,
) -> Case:
    """Return 8 heads of 4096 rows.

    Args:
        name: in the table.
        scores: in index notation.
        change: the same of PyTorch's scores.
        fused: PyTorch's own, where there is one.
        dtype: of all inputs.
    """

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(change(q @ k.transpose(-1, -2) / 8), -1) @ v

    return Case(
        name=f"{name} 8x4096x64 {str(dtype).removeprefix('torch.')}",
        line="(q[..., n, d], k[..., m, d], v[..., m, e]) -> o[..., n, e] ="
        f" s[..., n, m] = {scores}; p[..., n, m] = exp(s[..., n, m] - max[r](s[..., n, r]));"
        " o = sum[m](p[..., n, m]*v[..., m, e])/sum[m](p[..., n, m])",
        shapes=((8, 4096, 64),) * 3,
        small=((2, 40, 8),) * 3,
        eager=eager,
        fused=fused,
        dtype=dtype,
        bounds=both(Bound(), Bound()),
    )


def by_distances(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return an attention whose squares are multiplied out, of which digits are lost."""
    squares = (q**2).sum(-1)[..., None] + (k**2).sum(-1)[..., None, :] - 2 * q @ k.transpose(-1, -2)
    return torch.softmax(-squares / 8, -1) @ v


def sdpa(*, is_causal: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return PyTorch's attention."""
    return lambda q, k, v: F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=is_causal, scale=0.125
    )[0]


def hide_what_follows(scores: Tensor) -> Tensor:
    """Leave each row what is not after it."""
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)


def attentions(dtype: torch.dtype) -> tuple[Case, ...]:
    """Return what PyTorch has fused, and what it has not."""
    return (
        attention("attention", SCORES, lambda s: s, sdpa(is_causal=False), dtype),
        attention(
            "causal",
            f"where(m <= n, {SCORES}, -inf)",
            hide_what_follows,
            sdpa(is_causal=True),
            dtype,
        ),
        attention(
            "soft-capping",
            f"30*tanh({SCORES}/30)",
            lambda s: 30 * torch.tanh(s / 30),
            None,
            dtype,
        ),
    )


def cross_entropy(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
    """Return the loss of each row; the matrix is PyTorch's."""
    return F.cross_entropy(x @ w.T / 32, t, reduction="none")


def contrast(q: Tensor, k: Tensor) -> Tensor:
    """Return the loss of each row, whose own column is right."""
    return F.cross_entropy(q @ k.T / 16, torch.arange(len(q), device=q.device), reduction="none")


WORDS = Case(
    name="cross-entropy 8192x1024, 32768 words",
    line="(x[n, d], w[v, d], t[n]: int64) -> l[n] = s[n, m] = sum[d](x[n, d]*w[m, d])/32;"
    f" l = {TOTAL} - s[n, t[n]]",
    shapes=((8192, 1024), (32768, 1024), (8192,)),
    small=((20, 8), (50, 8), (20,)),
    eager=cross_entropy,
    below={2: 32768},
    by_rows=False,
    bounds=both(Bound(), Bound()),
)
REDUCTIONS = (
    *attentions(torch.bfloat16),
    *attentions(torch.float32),
    replace(
        attention("distances", DISTANCES, lambda s: s, None, torch.float32), eager=by_distances
    ),
    WORDS,
    replace(WORDS, name=f"{WORDS.name} bfloat16", dtype=torch.bfloat16),
    Case(
        name="InfoNCE 8192x256",
        line="(q[n, d], k[n, d]) -> l[n] = s[n, m] = sum[d](q[n, d]*k[m, d])/16;"
        f" l = {TOTAL} - s[n, n]",
        shapes=((8192, 256), (8192, 256)),
        small=((30, 8), (30, 8)),
        eager=contrast,
        bounds=both(Bound(), Bound()),
    ),
)


def steps(place: Place, folder: Path) -> dict[str, Step]:
    """Return a step for each of them."""
    del folder
    return loops.steps_of(rehearsed(REDUCTIONS, small=place.rehearsal), place)
