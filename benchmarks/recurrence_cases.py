"""The recurrences that `benchmarks.recurrence` measures, at their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy import signal
from torch import Tensor

from benchmarks.index_cases import Function
from benchmarks.recurrence_lines import (
    BIQUAD,
    DTW,
    GAE,
    GRU,
    HEADS,
    HEAT,
    LRU,
    LSTM,
    RESERVOIR,
    SCAN,
    biquad_loop,
    dtw_loop,
    gae_loop,
    gru_loop,
    heads_loop,
    heat_loop,
    lru_loop,
    lstm_loop,
    reservoir_loop,
    scan_loop,
)

# Of a linear recurrence: batch, steps, width. The last one is so short that its first calls have no
# loop; what is printed is a call after these.
SIZES = ((8, 1000, 256), (8, 100, 256), (1, 1000, 16), (64, 500, 7), (1, 10, 8))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recurrence at one size.

    Attributes:
        name: with its size.
        line: of the operator.
        inputs: makes its tensors.
        loop: the same in Python; None where that is hopeless.
        other: what people call instead; `is_forward`: it has no backward.
    """

    name: str
    line: str
    inputs: Callable[[], Sequence[Tensor]]
    loop: Function | None
    other: Function | None = None
    is_forward: bool = False


def biquad_scipy(x: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """The filter by SciPy."""
    return torch.from_numpy(np.asarray(signal.lfilter(b.numpy(), a.numpy(), x.numpy())))


def draw(*shapes: tuple[int, ...]) -> Sequence[Tensor]:
    """Return small random tensors."""
    generator = torch.Generator().manual_seed(0)
    return [0.5 * torch.rand(shape, generator=generator) for shape in shapes]


def lru_of(b: int, t: int, d: int) -> Case:
    """Return a linear recurrence."""
    made = partial(draw, (b, t, d), (b, t, d), (b, d))
    return Case(name=f"lru {b}×{t}×{d}", line=LRU, inputs=made, loop=lru_loop)


def scan_of(b: int, t: int, d: int, s: int) -> Case:
    """Return a selective scan."""
    made = partial(draw, (b, t, d), (d, s), (b, t, s), (b, t, s), (b, t, d))
    return Case(name=f"scan {b}×{t}×{d}×{s}", line=SCAN, inputs=made, loop=scan_loop)


def heads_of(b: int, t: int, h: int, d: int, s: int) -> Case:
    """Return a selective scan whose heads have d·s elements that decay alike."""
    made = partial(draw, (b, t, h), (h,), (b, t, s), (b, t, s), (b, t, h, d))
    return Case(name=f"heads {b}×{t}×{h}×{d}×{s}", line=HEADS, inputs=made, loop=heads_loop)


def reservoir_of(b: int, t: int, n: int, k: int) -> Case:
    """Return neurons of which each reads k others."""

    def made() -> Sequence[Tensor]:
        return [*draw((b, t, n), (n, k)), torch.randint(n, (n, k))]

    name = f"reservoir {b}×{t}×{n}×{k}"
    return Case(name=name, line=RESERVOIR, inputs=made, loop=reservoir_loop)


def biquad_of(b: int, t: int) -> Case:
    """Return a filter."""

    def made() -> Sequence[Tensor]:
        return [*draw((b, t)), torch.tensor([0.2, 0.3, 0.2]), torch.tensor([1.0, -0.6, 0.3])]

    return Case(
        name=f"biquad {b}×{t}",
        line=BIQUAD,
        inputs=made,
        loop=biquad_loop,
        other=biquad_scipy,
        is_forward=True,
    )


def cumulative(name: str, step: str, function: Function, b: int, t: int) -> Case:
    """Return a cumulative function, beside PyTorch's."""
    line = f"{name}(x[b, t]) -> y[b, t] = {step}"
    made = partial(draw, (b, t))
    return Case(name=f"{name} {b}×{t}", line=line, inputs=made, loop=None, other=function)


def plain(name: str, line: str, loop: Function | None, *shapes: tuple[int, ...]) -> Case:
    """Return a case without a peer of its own."""
    return Case(name=name, line=line, inputs=partial(draw, *shapes), loop=loop)


# Batch, steps and units of recurrent networks: in the last one nearly all are products of matrices.
NETWORKS = ((16, 100, 32), (16, 100, 128), (64, 30, 256))
CASES = (
    *(lru_of(*size) for size in SIZES),
    *(scan_of(*size) for size in ((2, 1000, 256, 16), (2, 200, 33, 5))),
    heads_of(2, 512, 8, 64, 16),
    *(reservoir_of(*size) for size in ((1, 1000, 1000, 10), (32, 100, 64, 4))),
    *(biquad_of(*size) for size in ((32, 4000), (1, 4000), (1, 16_000), (100, 300))),
    *(plain(f"gae {t}×{b}", GAE, gae_loop, (t, b), (t, b)) for t, b in ((2048, 64), (300, 5))),
    *(
        plain(f"heat {t}×{x}", HEAT, heat_loop, (x,), (x,), (t,))
        for t, x in ((2048, 1024), (500, 50))
    ),
    *(plain(f"gru {b}×{t}×{d}", GRU, gru_loop, (b, t, 3, d), (3, d, d)) for b, t, d in NETWORKS),
    *(plain(f"lstm {b}×{t}×{d}", LSTM, lstm_loop, (b, t, 4, d), (4, d, d)) for b, t, d in NETWORKS),
    plain("soft-DTW 8×64×64 (fronts)", DTW, dtw_loop, (8, 64, 64)),
    *(
        cumulative(*each, b, t)
        for b, t in ((64, 4096), (4, 100_000))
        for each in (
            ("cumsum", "x + pad(y[b, t - 1])", partial(torch.cumsum, dim=1)),
            ("cumprod", "x*pad(y[b, t - 1], 1)", partial(torch.cumprod, dim=1)),
            ("cumlse", "logaddexp(x, pad(y[b, t - 1], -inf))", partial(torch.logcumsumexp, dim=1)),
        )
    ),
)

FIRST = (
    *(lru_of(8, t, 256) for t in (200, 4000)),
    *(biquad_of(32, t) for t in (200, 4000)),
    *(scan_of(2, t, 256, 16) for t in (200, 1000)),
    *(plain(f"heat {t}×1024", HEAT, heat_loop, (1024,), (1024,), (t,)) for t in (200, 2000)),
    *(plain(f"gru 16×{t}×32", GRU, gru_loop, (16, t, 3, 32), (3, 32, 32)) for t in (100, 400)),
    *(plain(f"soft-DTW 8×{t}×{t}", DTW, dtw_loop, (8, t, t)) for t in (64, 256)),
)
HELD = (
    scan_of(2, 1000, 256, 16),
    scan_of(2, 8000, 256, 16),
    plain("soft-DTW 8×256×256 (fronts)", DTW, dtw_loop, (8, 256, 256)),
)
