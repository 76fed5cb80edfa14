"""Attention and its relatives, a line each, beside eager PyTorch.

Each line is called with so many rows and columns that their matrix is computed by blocks and never
held: in float64 its value and its gradients are compared with those of PyTorch's operations, and in
float32 it is measured. `python gallery.py` prints one table in some three minutes, `--large` adds
a vocabulary of 131072, whose scores take 1 GB in float64; names choose lines.
"""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from measuring import measure
from torch import Tensor
from torch.nn import functional

import pullback as pb


class Sizes(NamedTuple):
    """Rows and columns, how long they are, and those of a language model's last layer."""

    n: int
    d: int
    tokens: int
    words: int
    wide: int


SMALL = Sizes(n=9, d=4, tokens=7, words=11, wide=5)
LARGE = Sizes(n=4200, d=64, tokens=1024, words=32768, wide=512)
Inputs = Callable[[Sizes], list[Tensor]]


def randn(*shape: int) -> Tensor:
    """Return random numbers in float64."""
    return torch.randn(shape, dtype=torch.float64)


def rows(size: Sizes, *lead: int) -> list[Tensor]:
    """Return q, k and v; a product of a row of q and one of k is about 1."""
    q, k = (randn(*own, size.n, size.d) / size.d**0.25 for own in (lead, lead[:1]))
    return [q, k, randn(*lead[:1], size.n, size.d + 1)]


def also(*more: Callable[[int], Tensor]) -> Inputs:
    """Return what makes q, k and v, and more."""
    return lambda size: [*rows(size), *(make(size.n) for make in more)]


class Row(NamedTuple):
    """A line, the same by PyTorch's operations, and what makes the tensors that both take.

    Attributes:
        last: what makes the numbers after the tensors, from how many rows there are.
    """

    line: str
    eager: Callable[..., Tensor]
    inputs: Inputs = rows
    last: Callable[[int], tuple[float, ...]] = lambda n: ()


# --- attention, with any scores

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


@functools.cache
def place(n: int) -> Tensor:
    """Return the numbers of the columns."""
    return torch.arange(n)


@functools.cache
def apart(n: int) -> Tensor:
    """Return how far a row is behind a column."""
    return place(n)[:, None] - place(n)


@functools.cache
def outside(n: int, width: int = sys.maxsize) -> Tensor:
    """Return which columns a row does not see: those after it, and those too far before it."""
    return (apart(n) < 0) | (apart(n) >= width)


def segments(n: int) -> Tensor:
    """Return four documents after each other."""
    return 4 * place(n) // n


def cosine(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by the cosine of the angle between a query and a key."""
    q, k = (functional.normalize(t, dim=-1) for t in (q, k))
    return torch.softmax(8 * q @ k.mT, -1) @ v


# --- losses, and others that reduce a matrix of scores


def both_ways(q: Tensor, k: Tensor) -> Tensor:
    """A contrastive loss of each pair, in both directions."""
    scores = q @ k.mT
    return scores.logsumexp(1) + scores.logsumexp(0) - 2 * scores.diagonal()


def words(size: Sizes) -> list[Tensor]:
    """Return states, the weights of a linear layer, and which word is right."""
    t = torch.randint(0, size.words, (size.tokens,))
    return [randn(size.tokens, size.wide) / size.wide**0.5, randn(size.words, size.wide), t]


CROSS_ENTROPY = Row(
    "(x[n, d], w[v, d], t[n]: int64) -> l[n] = s[n, v] = sum[d](x[n, d]*w[v, d]); "
    "z[n] = max[v](s[n, v]); l = z[n] + log(sum[v](exp(s[n, v] - z[n]))) "
    "- sum[d](x[n, d]*w[t[n], d])",
    lambda x, w, t: functional.cross_entropy(x @ w.mT, t, reduction="none"),
    words,
)


def sinkhorn(x: Tensor, y: Tensor, g: Tensor, eps: float) -> Tensor:
    """A step of Sinkhorn's algorithm: new potentials of the rows, then of the columns."""
    scores, many = x @ y.mT, math.log(len(x))
    f = eps * (many - ((g + scores) / eps).logsumexp(1))
    return eps * (many - ((f[:, None] + scores) / eps).logsumexp(0))


def mixture(x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    """The log-likelihood of points, but for a constant: parts with a mean and scales each."""
    a = (-2 * scale).exp()
    s = x**2 @ a.mT - 2 * x @ (mean * a).mT + (mean**2 * a).sum(1)
    return (weight - scale.sum(1) - s / 2).logsumexp(1)


ROWS = {
    "plain": Row(attention(S), eager(lambda s: s)),
    "causal": Row(
        attention(f"where(m <= n, {S}, -inf)"),
        eager(lambda s: s.masked_fill(outside(len(s)), -math.inf)),
    ),
    "window of 256": Row(
        attention(f"where((m <= n) and (n - m < 256), {S}, -inf)"),
        eager(lambda s: s.masked_fill(outside(len(s), 256), -math.inf)),
    ),
    "ALiBi": Row(
        attention(f"where(m <= n, {S} - 0.1*(n - m), -inf)"),
        eager(lambda s: (s - 0.1 * apart(len(s)).to(s)).masked_fill(outside(len(s)), -math.inf)),
    ),
    "soft-capping": Row(attention(f"5*tanh({S}/5)"), eager(lambda s: 5 * torch.tanh(s / 5))),
    "bias with gradient": Row(
        attention(f"{S} + b[n, m]", ", b[n, m]"),
        eager(lambda s, b: s + b),
        also(lambda n: randn(n, n)),
    ),
    "relative bias with gradient": Row(
        attention(f"{S} + pad(b[n - m + size(m) - 1])", ", b[c]"),
        eager(lambda s, b: s + b[apart(len(s)) + len(s) - 1]),
        also(lambda n: randn(2 * n - 1)),
    ),
    "key padding": Row(
        attention(f"where(m < t, {S}, -inf)", ", t: int"),
        lambda q, k, v, t: eager(lambda s: s.masked_fill(place(len(s)) >= t, -math.inf))(q, k, v),
        last=lambda n: (2 * n // 3,),
    ),
    "segments": Row(
        attention(f"where(a[n] == b[m], {S}, -inf)", ", a[n]: int64, b[m]: int64"),
        eager(lambda s, a, b: s.masked_fill(a[:, None] != b, -math.inf)),
        also(segments, segments),
    ),
    "grouped heads": Row(
        "(q[g, h, n, d], k[g, m, d], v[g, m, e]) -> o[g, h, n, e] = "
        "s[g, h, n, m] = sum[d](q[g, h, n, d]*k[g, m, d]); "
        "p[g, h, n, m] = exp(s[g, h, n, m] - max[r](s[g, h, n, r])); "
        "o = sum[m](p[g, h, n, m]*v[g, m, e])/sum[m](p[g, h, n, m])",
        lambda q, k, v: torch.softmax(q @ k[:, None].mT, -1) @ v[:, None],
        lambda size: rows(size, 1, 3),
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
    "Gaussian, d = 3": Row(
        "(q[n, d], k[m, d], v[m, e]) -> o[n, e] = "
        "sum[m](exp(-sum[d]((q[n, d] - k[m, d])**2))*v[m, e])",
        lambda q, k, v: torch.exp(-(torch.cdist(q, k) ** 2)) @ v,
        lambda size: rows(size._replace(d=3)),
    ),
    # Softmax of minus the squared distances: that of q itself is the same for all columns.
    "kNN-softmax": Row(
        "(q[n, d], k[m, d], v[m, e]) -> o[n, e] = b[m] = sum[d](k[m, d]**2); "
        f"s[n, m] = 2*{S} - b[m]; {SOFTMAX}",
        lambda q, k, v: torch.softmax(2 * q @ k.mT - (k**2).sum(1), -1) @ v,
    ),
    "InfoNCE, both ways": Row(
        f"(q[n, d], k[n, d]) -> l[n] = s[n, m] = {S}; w[n] = max[m](s[n, m]); "
        "u[m] = max[n](s[n, m]); l = w[n] + log(sum[m](exp(s[n, m] - w[n]))) "
        "+ u[n] + log(sum[i](exp(s[i, n] - u[n]))) - 2*s[n, n]",
        both_ways,
        lambda size: rows(size)[:2],
    ),
    # The cost of a pair is minus the product of its vectors.
    "Sinkhorn step": Row(
        f"(q[n, d], k[m, d], g[m], eps: float) -> h[m] = s[n, m] = {S}; "
        "a[n, m] = (g[m] + s[n, m])/eps; u[n] = max[m](a[n, m]); "
        "f[n] = -eps*(u[n] + log(mean[m](exp(a[n, m] - u[n])))); "
        "b[n, m] = (f[n] + s[n, m])/eps; w[m] = max[n](b[n, m]); "
        "h = -eps*(w[m] + log(mean[n](exp(b[n, m] - w[m]))))",
        sinkhorn,
        lambda size: [*rows(size)[:2], randn(size.n) / 10],
        last=lambda n: (0.5,),
    ),
    # Squares of differences are multiplied out here, into two products of matrices.
    "mixture density": Row(
        "(x[n, d], m[k, d], s[k, d], w[k]) -> l[n] = a[k, d] = exp(-2*s[k, d]); "
        "c[k] = w[k] - sum[d](s[k, d] + m[k, d]**2*a[k, d]/2); "
        "t[n, k] = c[k] - sum[d](x[n, d]**2*a[k, d])/2 + sum[d](x[n, d]*m[k, d]*a[k, d]); "
        "z[n] = max[k](t[n, k]); l = z[n] + log(sum[k](exp(t[n, k] - z[n])))",
        mixture,
        lambda size: [*rows(size)[:2], randn(size.n, size.d) / 10, randn(size.n)],
    ),
    "cross-entropy with linear layer, 32k": CROSS_ENTROPY,
}
MORE = {
    "cross-entropy with linear layer, 128k": CROSS_ENTROPY._replace(
        inputs=lambda size: words(size._replace(words=4 * size.words)),
    )
}


# --- each beside PyTorch's operations


def gradients(way: Callable[..., Tensor], given: Sequence[Tensor | float]) -> list[Tensor]:
    """Return the value, and the gradients of a sum in which each element has its own weight."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors_in(given)]
    value = way(*leaves, *given[len(leaves) :])
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [value.detach(), *torch.autograd.grad((weights * value).sum(), wanted)]


def tensors_in(given: Iterable[Tensor | float]) -> list[Tensor]:
    """Return the tensors of a call."""
    return [each for each in given if isinstance(each, Tensor)]


def compare(
    own: Callable[..., Tensor], row: Row, given: Sequence[Tensor | float]
) -> tuple[float, float]:
    """Return how far the value and the gradients are apart, relative to the greatest of each."""
    pairs = zip(gradients(own, given), gradients(row.eager, given), strict=True)
    value, *others = [float((a - b).abs().max() / b.abs().max()) for a, b in pairs]
    return value, max(others)


def executed(own: pb.Operator, given: Sequence[Tensor | float]) -> str:
    """Return who computes the value and the gradients."""
    plan = str(own.plan(*given))
    words = {"by blocks": "blocks", "own loop": "own loop", ": PyTorch": "whole"}
    lines = [line for line in plan.splitlines() if line.startswith("    ")]
    found = (next((words[word] for word in words if word in line), None) for line in lines)
    # What a call keeps is a line, too.
    return ", ".join(dict.fromkeys(filter(None, found)))


def check(size: Sizes = SMALL, table: dict[str, Row] = ROWS) -> dict[str, tuple[float, float]]:
    """Return how far every line is from its reference in float64, at one size."""
    torch.manual_seed(0)
    return {
        name: compare(operator_of(row), row, [*row.inputs(size), *row.last(size.n)])
        for name, row in table.items()
    }


@functools.cache
def operator_of(row: Row) -> pb.Operator:
    """Return the operator of a line, defined once."""
    number = next(_numbers)
    return pb.operator(f"gallery::line{number}{row.line}")


_numbers = itertools.count()
COLUMNS = (
    "",
    "by",
    "apart: value, gradients",
    "pullback, ms",
    "eager, ms",
    "pullback, MB",
    "eager, MB",
)


def main(words: Sequence[str]) -> None:
    """Print the table; the words are beginnings of names."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS) + "|")
    for name, row in {**ROWS, **(MORE if "--large" in words else {})}.items():
        chosen = tuple(word for word in words if not word.startswith("-"))
        if not name.startswith(chosen or ""):
            continue
        own, given = operator_of(row), [*row.inputs(LARGE), *row.last(LARGE.n)]
        value, gradient = compare(own, row, given)
        given = [t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for t in given]
        cells = [executed(own, given), f"{value:.0e}, {gradient:.0e}"]
        found = measure({"pullback": own, "eager": row.eager}, given)
        cells += [f"{each.forward:.0f} / {each.both:.0f}" for each in found.values()]
        cells += [f"{each.forward_held:.0f} / {each.both_held:.0f}" for each in found.values()]
        print("|", " | ".join([name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
