"""Long reductions: attention, InfoNCE and cross-entropy, beside eager PyTorch and its fused kernel.

One thread, timed by its own clock; candidates take turns. Memory is the most that is held at once
beyond what was there before and what is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from benchmarks.bags import fastest
from benchmarks.formula import Turn
from benchmarks.index import give_back_at_once, peak
from benchmarks.index_cases import Function
from benchmarks.measure import show

NAMES = OURS, EAGER, FUSED = "pullback", "eager", "SDPA"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One computation at one size.

    Attributes:
        name: with its size.
        line: of the operator.
        shapes: of the inputs.
        eager: the same by PyTorch's operations.
        fused: by `scaled_dot_product_attention`, where that can say it.
        classes: of a last input of whole numbers, if there is one.
        dtype: of the others.
    """

    name: str
    line: str
    shapes: tuple[tuple[int, ...], ...]
    eager: Function
    fused: Function | None = None
    classes: int = 0
    dtype: torch.dtype = torch.float32

    def inputs(self) -> list[Tensor]:
        """Return its inputs: such that the largest weights of a row do not take all."""
        generator = torch.Generator().manual_seed(0)
        found = [torch.randn(shape, generator=generator) for shape in self.shapes]
        found[0] /= math.sqrt(self.shapes[0][-1])
        found = [each.to(self.dtype) for each in found]
        if self.classes:
            many = self.shapes[0][0]
            found.append(torch.randint(0, self.classes, (many,), generator=generator))
        return found


def attention_line(scores: str, more: str = "") -> str:
    """Return an attention with some scores, for any number of heads."""
    return (
        f"(q[..., n, d], k[..., m, d], v[..., m, e]{more}) -> o[..., n, e] = "
        f"s[..., n, m] = {scores}; p[..., n, m] = exp(s[..., n, m] - max[r](s[..., n, r])); "
        "o = sum[m](p[..., n, m]*v[..., m, e])/sum[m](p[..., n, m])"
    )


SCORES = "sum[d](q[..., n, d]*k[..., m, d])"


def in_bfloat16(case: Case) -> Case:
    """Return a case with inputs of half the width."""
    return replace(case, name=f"{case.name}, bfloat16", dtype=torch.bfloat16)


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention whose scores are bounded by a tanh, by PyTorch's operations."""
    return torch.softmax(20 * torch.tanh(q @ k.transpose(-1, -2) / 20), -1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor, window: int = 0) -> Tensor:
    """Attention to what came before, or to the last of it, by PyTorch's operations."""
    place = torch.arange(q.shape[-2])
    outside = place > place[:, None]
    if window:
        outside |= place <= place[:, None] - window
    scores = (q @ k.transpose(-1, -2)).masked_fill(outside, -math.inf)
    return torch.softmax(scores, -1) @ v


def biased(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Attention with a bias, by PyTorch's operations."""
    return torch.softmax(q @ k.transpose(-1, -2) + b, -1) @ v


def fused(
    q: Tensor, k: Tensor, v: Tensor, b: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """Attention by PyTorch's kernel, which takes batches of heads."""
    many = (1,) * (4 - q.dim())
    q, k, v = (t.reshape(*many, *t.shape) for t in (q, k, v))
    mask = None if b is None else b.reshape(*many, *b.shape)
    found = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=1.0
    )
    return found.reshape(found.shape[len(many) :])


def nce(q: Tensor, k: Tensor) -> Tensor:
    """Both log-sum-exps of a contrastive loss, by PyTorch's operations."""
    scores = q @ k.T
    return torch.stack([scores.logsumexp(1), scores.logsumexp(0)])


def pairs(q: Tensor, k: Tensor) -> Tensor:
    """A contrastive loss of pairs in both directions, by PyTorch's operations."""
    scores, own = q @ k.T, torch.arange(len(q))
    return functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)


def chamfer(x: Tensor, y: Tensor) -> Tensor:
    """The squared distances to the nearest of the others; PyTorch multiplies them out."""
    apart = torch.cdist(x, y).square()
    return apart.amin(1).sum() + apart.amin(0).sum()


def relative(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Attention with a bias of how far a key is, by PyTorch's operations."""
    place = torch.arange(len(q))
    return torch.softmax(q @ k.T + b[place[:, None] - place + len(q) - 1], -1) @ v


def positions(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """The same in a plane."""
    down, across = (torch.arange(many)[:, None] - torch.arange(many) for many in q.shape[:2])
    height, width = (len(each) - 1 for each in (down, across))
    bias = b[(down + height)[:, None, :, None], (across + width)[None, :, None, :]]
    scores = torch.einsum("hwd,ujd->hwuj", q, k) + bias
    return scores.flatten(2).softmax(-1) @ v.flatten(0, 1)


def attention_cases(n: int, heads: int, kinds: Iterable[str]) -> list[Case]:
    """Return attentions of one size."""
    lead = (heads,) if heads > 1 else ()
    qkv = ((*lead, n, 64),) * 3
    named = f"{n}{f' × {heads} heads' if heads > 1 else ''}"
    every = {
        "plain": Case(
            name=f"attention {named}",
            line=attention_line(SCORES),
            shapes=qkv,
            eager=lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1) @ v,
            fused=fused,
        ),
        "causal": Case(
            name=f"causal {named}",
            line=attention_line(f"where(m <= n, {SCORES}, -inf)"),
            shapes=qkv,
            eager=masked,
            fused=partial(fused, is_causal=True),
        ),
        "window": Case(
            name=f"window of 256, {named}",
            line=attention_line(f"where((m <= n) and (n - m < 256), {SCORES}, -inf)"),
            shapes=qkv,
            eager=partial(masked, window=256),
        ),
        "bias": Case(
            name=f"bias with gradient {named}",
            line=attention_line(f"{SCORES} + b[..., n, m]", ", b[..., n, m]"),
            shapes=(*qkv, (*lead, n, n)),
            eager=biased,
            fused=fused,
        ),
        "capped": Case(
            name=f"soft-capped {named}",
            line=attention_line(f"20*tanh({SCORES}/20)"),
            shapes=qkv,
            eager=capped,
        ),
    }
    return [every[kind] for kind in kinds]


def distance_case(n: int, m: int, d: int) -> Case:
    """Return an attention to what is near; its distances are not multiplied out."""
    line = attention_line("-sum[d]((q[..., n, d] - k[..., m, d])**2)/8")

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        apart = torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.softmax(-apart.square() / 8, -1) @ v

    shapes = ((n, d), (m, d), (m, d))
    return Case(name=f"distances {n} × {m} × {d}", line=line, shapes=shapes, eager=eager)


def mean_of_words(words: int) -> Case:
    """Return the mean of a cross-entropy whose scores come from a linear layer."""
    return Case(
        name=f"cross-entropy, mean, 1024 × 512 × {words}",
        line=(
            "(x[n, d], w[v, d], t[n]: int64) -> l[] = s[n, v] = sum[d](x[n, d]*w[v, d]); "
            "z[n] = max[v](s[n, v]); "
            "l = mean[n](z[n] + log(sum[v](exp(s[n, v] - z[n]))) - sum[d](x[n, d]*w[t[n], d]))"
        ),
        shapes=((1024, 512), (words, 512)),
        eager=lambda x, w, t: functional.cross_entropy(x @ w.T, t),
        classes=words,
    )


ALL = ("plain", "causal", "window", "bias")
CROSS_ENTROPY = Case(
    name="cross-entropy 1024 × 512 × 32768",
    line=(
        "(x[n, d], w[v, d], t[n]: int64) -> l[n] = s[n, v] = sum[d](x[n, d]*w[v, d]); "
        "z[n] = max[v](s[n, v]); "
        "l = z[n] + log(sum[v](exp(s[n, v] - z[n]))) - sum[d](x[n, d]*w[t[n], d])"
    ),
    shapes=((1024, 512), (32768, 512)),
    eager=lambda x, w, t: functional.cross_entropy(x @ w.T, t, reduction="none"),
    classes=32768,
)
CASES = (
    *attention_cases(512, 1, ["plain"]),
    *attention_cases(2048, 1, ALL),
    *attention_cases(2048, 8, ALL),
    *attention_cases(8192, 1, ["plain", "causal", "window"]),
    *map(in_bfloat16, attention_cases(2048, 8, ["plain", "capped"])),
    distance_case(700, 600, 17),
    distance_case(1500, 1300, 64),
    distance_case(2000, 2000, 129),
    distance_case(5000, 5000, 64),
    Case(
        name="InfoNCE 4096 × 256, both ways",
        line=(
            "(q[n, d], k[m, d]) -> (a[n], b[m]) = s[n, m] = sum[d](q[n, d]*k[m, d]); "
            "a = max[r](s[n, r]) + log(sum[m](exp(s[n, m] - max[r](s[n, r])))); "
            "b = max[i](s[i, m]) + log(sum[n](exp(s[n, m] - max[i](s[i, m]))))"
        ),
        shapes=((4096, 256),) * 2,
        eager=nce,
    ),
    CROSS_ENTROPY,
    in_bfloat16(CROSS_ENTROPY),
    mean_of_words(32768),
    mean_of_words(131072),
    in_bfloat16(mean_of_words(32768)),
    Case(
        name="InfoNCE of pairs 4096 × 256, mean of both ways",
        line=(
            "(q[n, d], k[n, d]) -> l[] = s[n, m] = sum[d](q[n, d]*k[m, d]); "
            "w[n] = max[m](s[n, m]); u[m] = max[n](s[n, m]); "
            "l = mean[n](w[n] + log(sum[m](exp(s[n, m] - w[n])))) "
            "+ mean[m](u[m] + log(sum[n](exp(s[n, m] - u[m])))) - 2*mean[n](s[n, n])"
        ),
        shapes=((4096, 256),) * 2,
        eager=pairs,
    ),
    Case(
        name="greatest product 4096 × 64",
        line="(q[n, d], k[m, d]) -> a[n] = max[m](sum[d](q[n, d]*k[m, d]))",
        shapes=((4096, 64),) * 2,
        eager=lambda q, k: (q @ k.T).max(1).values,
    ),
    Case(
        name="its place",
        line="(q[n, d], k[m, d]) -> i[n]: int64 = argmax[m](sum[d](q[n, d]*k[m, d]))",
        shapes=((4096, 64),) * 2,
        eager=lambda q, k: (q @ k.T).argmax(1),
    ),
    *(
        Case(
            name=f"Chamfer distance 4096 × {d}",
            line=(
                "(x[n, d], y[m, d]) -> l[] = s[n, m] = sum[d]((x[n, d] - y[m, d])**2); "
                "l = sum[n](min[m](s[n, m])) + sum[m](min[n](s[n, m]))"
            ),
            shapes=((4096, d),) * 2,
            eager=chamfer,
        )
        for d in (3, 64)
    ),
    *(
        Case(
            name=f"relative bias {n}",
            line=attention_line(f"{SCORES} + pad(b[n - m + size(m) - 1])", ", b[c]"),
            shapes=((n, 64), (n, 64), (n, 64), (2 * n - 1,)),
            eager=relative,
        )
        for n in (300, 1000)
    ),
    Case(
        name="positions 20 × 18",
        line=(
            "(q[h, w, d], k[u, j, d], v[u, j, e], b[y, x]) -> o[h, w, e] = s[h, w, u, j] = "
            "sum[d](q[h, w, d]*k[u, j, d]) + pad(b[h - u + size(u) - 1, w - j + size(j) - 1]); "
            "p[h, w, u, j] = exp(s[h, w, u, j] - max[r, t](s[h, w, r, t])); "
            "o = sum[u, j](p[h, w, u, j]*v[u, j, e])/sum[u, j](p[h, w, u, j])"
        ),
        shapes=((20, 18, 32), (20, 18, 32), (20, 18, 32), (39, 35)),
        eager=positions,
    ),
)


def joined(value: object) -> Tensor:
    """Return an output, or several of one shape as one."""
    return value if isinstance(value, Tensor) else torch.stack(list(value))  # pyright: ignore


def candidates(case: Case, name: str) -> dict[str, Function]:
    """Return what computes a case."""
    operator = pb.operator(f"bench::{name}{case.line}")
    found: dict[str, Function] = {OURS: lambda *given: joined(operator(*given)), EAGER: case.eager}
    if case.fused:
        found[FUSED] = case.fused
    return found


@dataclass(kw_only=True)
class Row:
    """One case as it is measured.

    Attributes:
        ways: what runs a function in a direction, by name.
        returned: the bytes that it returns.
    """

    case: Case
    functions: dict[str, Function]
    ways: Mapping[str, Callable[[Function], Callable[[], object]]]
    returned: Mapping[str, int]


def prepare(case: Case, name: str) -> Row:
    """Return a case after its candidates have been compared."""
    functions = candidates(case, name)
    inputs = case.inputs()
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    wrt = [t for t in leaves if t.requires_grad]
    wide = [t.float() if t.requires_grad else t for t in leaves]
    value = case.eager(*wide)
    has_gradient = value.is_floating_point()
    grad = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(value, wrt, grad) if has_gradient else ()
    grad, value = grad.to(case.dtype), value.detach()
    returned = value.numel() * (case.dtype if has_gradient else value.dtype).itemsize
    # The digits of a half are two or three, and eager operations round to them on the way.
    bound = 1e-3 if case.dtype == torch.float32 else 5e-2

    def both(function: Function) -> list[Tensor]:
        return [*torch.autograd.grad(function(*leaves), wrt, grad)]

    for function in functions.values():
        found = function(*inputs).to(value.dtype)
        torch.testing.assert_close(found, value, rtol=bound, atol=bound)
        found = both(function) if has_gradient else ()
        for one, other in zip(found, expected, strict=True):
            atol = bound * other.abs().max().item()
            torch.testing.assert_close(one, other, rtol=bound, atol=atol)
    ways: dict[str, Callable[[Function], Callable[[], object]]] = {
        "forward": lambda function: lambda: function(*inputs)
    }
    if has_gradient:
        ways["both"] = lambda function: lambda: both(function)
    return Row(
        case=case,
        functions=functions,
        ways=ways,
        returned={"forward": returned, "both": sum(t.nbytes for t in wrt)},
    )


def turn_of(run: Callable[[], object]) -> Turn:
    """Return a call as what is timed."""
    return lambda: None, lambda _: run()


def time(row: Row, budget: float) -> list[str]:
    """Return the milliseconds of forward and of both directions."""
    cells: list[str] = []
    for way in row.ways.values():
        turns = {who: turn_of(way(function)) for who, function in row.functions.items()}
        seconds = fastest(turns, budget)
        cells += [write(1e3 * seconds[who]) if who in seconds else "" for who in NAMES]
    return filled(cells)


def filled(cells: Sequence[str]) -> list[str]:
    """Return the cells of a row; what has no gradient has only those of forward."""
    return [*cells, *[""] * (2 * len(NAMES) - len(cells))]


def write(milliseconds: float) -> str:
    """Return a time in three digits."""
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2}f}"


def weigh(row: Row) -> list[str]:
    """Return the megabytes of forward and of both directions."""
    cells: list[str] = []
    for direction, way in row.ways.items():
        for who in NAMES:
            run = way(row.functions[who]) if who in row.functions else None
            held = max(0.0, peak(run) - row.returned[direction]) if run else math.nan
            cells.append("" if math.isnan(held) else f"{held / 1e6:.0f}")
    return filled(cells)


def main(only: Iterable[str] = (), *, budget: float = 0.5, cases: Sequence[Case] = CASES) -> None:
    """Print the tables.

    Args:
        only: the beginnings of the names of the cases; all without one.
        budget: seconds for each measurement.
        cases: to choose from.
    """
    torch.set_num_threads(1)
    chosen = [case for case in cases if case.name.startswith(tuple(only) or "")]
    rows = [prepare(case, f"long{k}") for k, case in enumerate(chosen)]
    columns = ["", *(f"{way}, {who}" for way in ("forward", "both") for who in NAMES)]
    note = "both: forward and backward"
    cells = [[row.case.name, *time(row, budget)] for row in rows]
    show("Long reductions, float32, one thread, ms", columns, cells, [note])
    give_back_at_once()
    cells = [[row.case.name, *weigh(row)] for row in rows]
    show("Held at once beyond inputs and results, MB", columns, cells, [note])


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
