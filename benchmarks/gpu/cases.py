"""The operators that are measured on a GPU, their sizes there and in a rehearsal, and the aims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

from benchmarks import recurrence_lines
from benchmarks.index_cases import gauss_keops
from benchmarks.recurrence_lines import dtw_loop, gae_loop, gru_loop, lru_loop, scan_loop

Function = Callable[..., Tensor]
Shapes = tuple[tuple[int, ...], ...]
COPY = "copy"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What limits a call, and how near to it we want to be.

    Attributes:
        share: the least; None if nothing is expected.
        pairs: how many pairs are computed, where those are the limit and not memory.
        rate: of pairs a second, by the count of the instructions of a hand-written kernel with
            accurate functions, for an H100 at 1.755 GHz.
    """

    share: float | None = None
    pairs: float = 0.0
    rate: float = 0.0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.rate:.3g} pairs/s" if self.pairs else COPY


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator.

    Attributes:
        name: in the table.
        line: pullback's.
        shapes: of the inputs.
        small: those in a rehearsal; none if it is left out there.
        eager: plain PyTorch, which `torch.compile` gets too.
        fused: PyTorch's own operator, where there is one.
        keops: the same by KeOps, where it can say it.
        dtype: of real inputs.
        below: inputs that are places in a table of so many rows; their names' places.
        between: in which real numbers lie, uniformly; None means a normal distribution.
        by_rows: whether each row of the first input is computed without the others.
        is_loop: whether the plain computation is a loop in Python over so many steps that
            torch.compile would not be done with it.
        is_compiled: whether `torch.compile` is a peer.
        row: numbers that the plain computation holds for each row of it.
        bounds: by direction.
    """

    name: str
    line: str
    shapes: Shapes
    small: Shapes = ()
    eager: Function
    fused: Function | None = None
    keops: Function | None = None
    dtype: torch.dtype = torch.float32
    below: dict[int, int] = field(default_factory=dict[int, int])
    between: tuple[float, float] | None = None
    by_rows: bool = False
    is_loop: bool = False
    is_compiled: bool = True
    row: int = 0
    bounds: dict[str, Bound] = field(default_factory=dict[str, Bound])

    def shown(self, *, small: bool) -> str:
        """Return its name, in a rehearsal with the sizes there."""
        sizes = ", ".join("x".join(map(str, shape)) for shape in self.small)
        kind = "" if self.dtype == torch.float32 else f" {str(self.dtype).removeprefix('torch.')}"
        return f"{self.name.partition(' ')[0]}{kind} at {sizes}" if small else self.name

    def inputs(self, *, small: bool) -> tuple[Tensor, ...]:
        """Return inputs, the same ones every time."""
        draw = torch.Generator("cuda").manual_seed(0)
        made: list[Tensor] = []
        for place, shape in enumerate(self.small if small else self.shapes):
            if place in self.below:
                most = self.small[0][0] if small else self.below[place]
                made.append(torch.randint(most, shape, device="cuda", generator=draw))
            elif self.between:
                low, high = self.between
                made.append(low + (high - low) * torch.rand(shape, device="cuda", generator=draw))
            else:
                made.append(torch.randn(shape, device="cuda", generator=draw))
        return tuple(t.to(self.dtype) if t.is_floating_point() else t for t in made)

    def fits(self, inputs: tuple[Tensor, ...], free: float) -> bool:
        """Return whether the plain computation's intermediate values fit the memory."""
        held = self.row * inputs[0].shape[0] * inputs[0].element_size() if self.row else 0
        return 4 * held < free


def both(forward: Bound, backward: Bound) -> dict[str, Bound]:
    """Return the bounds of both directions."""
    return {"forward": forward, "backward": backward}


def gauss(x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Without a matrix product, so that a compiler can do without the matrix."""
    return (torch.exp(-((x[:, None] - y) ** 2).sum(-1)) * v).sum(-1)


def layer_norm(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    m = x.mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(((x - m) ** 2).mean(-1, keepdim=True) + 1e-5) * g + b


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def logsumexp(x: Tensor) -> Tensor:
    m = x.amax(-1, keepdim=True)
    return m[..., 0] + torch.log(torch.exp(x - m).sum(-1))


def pairwise(n: int) -> Case:
    """Return sums of Gauss's kernel over n x n points."""
    # Backward is two loops, of 1.6e12 and 1.5e12 pairs a second.
    bounds = both(
        Bound(share=0.7, pairs=n * n, rate=1.9e12),
        Bound(share=0.65, pairs=n * n, rate=1 / (1 / 1.6e12 + 1 / 1.5e12)),
    )
    judged = bounds if n >= 100_000 else {way: replace(b, share=None) for way, b in bounds.items()}
    return Case(
        name=f"gauss {n}x{n}x3",
        line="(x[n, d], y[m, d], v[m]) -> u[n]"
        " = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2)) * v[m])",
        shapes=((n, 3), (n, 3), (n,)),
        small=((130, 3), (130, 3), (130,)) if n < 100_000 else (),
        eager=gauss,
        keops=gauss_keops,
        by_rows=True,
        row=5 * n,
        bounds=judged,
    )


def row_cases(n: int) -> tuple[Case, ...]:
    """Return reductions of rows of n elements."""
    bounds = both(Bound(share=0.85), Bound(share=0.85))
    small = (8, 300) if n == 1024 else ()
    return (
        Case(
            name=f"softmax 16384x{n}",
            line="(x[..., n]) -> y[..., n]"
            " = exp(x[n] - max[m](x[m]))/sum[m](exp(x[m] - max[k](x[k])))",
            shapes=((16384, n),),
            small=(small,) if small else (),
            eager=softmax,
            fused=lambda x: x.softmax(-1),
            by_rows=True,
            row=4 * n,
            bounds=bounds,
        ),
        Case(
            name=f"layer_norm 16384x{n}",
            line="(x[..., n], g[n], b[n]) -> y[..., n] = m = mean[k](x[k]);"
            " y = (x[n] - m)/sqrt(mean[k]((x[k] - m)**2) + 1e-5)*g[n] + b[n]",
            shapes=((16384, n), (n,), (n,)),
            small=(small, small[1:], small[1:]) if small else (),
            eager=layer_norm,
            fused=lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, 1e-5),
            by_rows=True,
            row=4 * n,
            bounds=bounds,
        ),
    )


LOOPS = (
    pairwise(10_000),
    pairwise(100_000),
    Case(
        name="sqdist 4096x4096x16",
        line="(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
        shapes=((4096, 16), (4096, 16)),
        small=((70, 16), (70, 16)),
        eager=lambda x, y: ((x[:, None] - y) ** 2).sum(-1),
        by_rows=True,
        row=2 * 4096 * 16,
        bounds=both(Bound(share=0.7), Bound(share=0.65)),
    ),
    *row_cases(1024),
    Case(
        name="logsumexp 16384x4096",
        line="(x[..., n]) -> y[...] = max[m](x[m]) + log(sum[k](exp(x[k] - max[m](x[m]))))",
        shapes=((16384, 4096),),
        small=((8, 300),),
        eager=logsumexp,
        fused=lambda x: x.logsumexp(-1),
        by_rows=True,
        row=4 * 4096,
        bounds=both(Bound(share=0.85), Bound(share=0.85)),
    ),
    Case(
        name="correlate 4096x4096, 7x7",
        line="(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q] * k[p, q])",
        shapes=((4096, 4096), (7, 7)),
        small=((40, 50), (7, 7)),
        eager=lambda x, k: F.conv2d(x[None, None], k[None, None])[0, 0],
        bounds=both(Bound(share=0.7), Bound()),
    ),
    Case(
        name="loss 2**26",
        line="(x[n], y[n]) -> l[] = sum[n]((x[n] - y[n])**2)/size(n)",
        shapes=((2**26,), (2**26,)),
        small=((5000,), (5000,)),
        eager=lambda x, y: ((x - y) ** 2).mean(),
        fused=F.mse_loss,
        bounds=both(Bound(share=0.85), Bound(share=0.85)),
    ),
    *row_cases(4096),
    *row_cases(128),
    *row_cases(32768),
    Case(
        name="bag 4096x16 of 50000x64",
        line="(table[v, d], index[n, k]: int64) -> y[n, d] = sum[k](table[index[n, k], d])",
        shapes=((50_000, 64), (4096, 16)),
        small=((50, 8), (20, 4)),
        eager=lambda table, index: table[index].sum(1),
        fused=lambda table, index: F.embedding_bag(index, table, mode="sum"),
        below={1: 50_000},
    ),
)


def recurrence(  # noqa: PLR0913  (the parts of a case)
    name: str, line: str, loop: Function, *, most: float, shapes: Shapes, small: Shapes
) -> Case:
    """Return a recurrence beside its loop in Python, of which nothing is expected yet.

    Args:
        name: in the table.
        line: with a name of its own.
        loop: in Python.
        most: what its inputs are below.
        shapes: of these.
        small: in a rehearsal.
    """
    return Case(
        name=name,
        line=line,
        shapes=shapes,
        small=small,
        eager=loop,
        between=(0.0, most),
        is_loop=True,
        bounds=both(Bound(), Bound()),
    )


def scan_shapes(b: int, t: int, d: int, s: int) -> Shapes:
    """Return those of a selective scan."""
    return ((b, t, d), (d, s), (b, t, s), (b, t, s), (b, t, d))


# A thread with a state of its own, lanes along a small state, fronts, few lanes whose steps are cut
# into chunks, a matrix in one block.
RECURRENCES = (
    recurrence(
        "lru 8x1000x256",
        recurrence_lines.LRU,
        lru_loop,
        most=0.9,
        shapes=((8, 1000, 256), (8, 1000, 256), (8, 256)),
        small=((2, 9, 40), (2, 9, 40), (2, 40)),
    ),
    # Of the last two few states are kept: few threads, and as many as wait for memory.
    *(
        recurrence(
            "scan " + "x".join(map(str, sizes)),
            recurrence_lines.SCAN,
            scan_loop,
            most=0.05,
            shapes=scan_shapes(*sizes),
            small=scan_shapes(2, 7, 9, 5),
        )
        for sizes in ((2, 1000, 256, 16), (2, 8000, 256, 16), (16, 512, 1024, 16))
    ),
    recurrence(
        "soft-DTW 32x512x512",
        recurrence_lines.DTW,
        dtw_loop,
        most=1.0,
        shapes=((32, 512, 512),),
        small=((2, 9, 12),),
    ),
    recurrence(
        "gae 1000x4096",
        recurrence_lines.GAE,
        gae_loop,
        most=0.9,
        shapes=((1000, 4096), (1000, 4096)),
        small=((9, 40), (9, 40)),
    ),
    recurrence(
        "gae 8192x16",
        recurrence_lines.GAE,
        gae_loop,
        most=0.9,
        shapes=((8192, 16), (8192, 16)),
        small=((2100, 3), (2100, 3)),
    ),
    recurrence(
        "gru 64x100x64",
        recurrence_lines.GRU,
        gru_loop,
        most=0.1,
        shapes=((64, 100, 3, 64), (3, 64, 64)),
        small=((2, 5, 3, 9), (3, 9, 9)),
    ),
)


def formulas(size: int, dtype: torch.dtype) -> tuple[Case, ...]:
    """Return pointwise formulas on so many elements."""
    large = size >= 2**24
    bounds = both(*(Bound(share=0.95 if large else None) for _ in range(2)))
    rows = 2 ** (size.bit_length() // 2)
    rehearsed = size == SIZES[0]
    shown = f"2**{size.bit_length() - 1} {str(dtype).removeprefix('torch.')}"

    def case(name: str, line: str, eager: Function, fused: Function | None, count: int) -> Case:
        return Case(
            name=f"{name} {shown}",
            line=line,
            shapes=((size,),) * count,
            small=((700,),) * count if rehearsed else (),
            eager=eager,
            fused=fused,
            dtype=dtype,
            between=(0.1, 4.0),
            bounds=bounds,
        )

    bias = Case(
        name=f"bias {shown}",
        line="(x[..., n], b[n]) -> y[..., n] = tanh(x + b)",
        shapes=((rows, size // rows), (size // rows,)),
        small=((20, 35), (35,)) if rehearsed else (),
        eager=lambda x, b: torch.tanh(x + b),
        dtype=dtype,
        between=(-1.0, 1.0),
        # Its gradient of b is computed for each element, and then summed.
        bounds=both(bounds["forward"], Bound()),
    )
    always = (
        case("multiply_add", "(x[...], y[...]) -> z[...] = x*y + 1", madd, None, 2),
        case("mish", "(x[...]) -> y[...] = mish(x)", mish, F.mish, 1),
    )
    if not rehearsed:  # what the others would show at more sizes, these show
        return always
    return (
        *always,
        case("gelu", "(x[...]) -> y[...] = gelu_tanh(x)", gelu, fused_gelu, 1),
        bias,
    )


def madd(x: Tensor, y: Tensor) -> Tensor:
    return x * y + 1


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def fused_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


SIZES = (2**26, 2**20, 2**28)
FORMULAS = tuple(
    case
    for size in SIZES
    for dtype in (torch.float32, torch.bfloat16)[: 2 if size == SIZES[0] else 1]
    for case in formulas(size, dtype)
)


def rehearsed(cases: tuple[Case, ...], *, small: bool) -> tuple[Case, ...]:
    """Return the cases of a rehearsal, or all of them."""
    return tuple(case for case in cases if case.small or not small)
