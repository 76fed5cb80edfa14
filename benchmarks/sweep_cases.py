"""The families of index notation that a sweep goes through, and the sizes that it draws."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

from benchmarks.index_cases import Function, gauss

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """One line, and how far its sizes may go.

    Attributes:
        name: in tables.
        line: pullback's.
        eager: plain PyTorch, which `torch.compile` gets too.
        axes: the sizes that a ladder goes along, and how far.
        others: where the sizes are drawn that no ladder goes along.
        work: the sizes whose product is the work; also what eager holds at once.
        least: that is worth measuring.
        most: the largest work that is measured.
    """

    name: str
    line: str
    eager: Function
    axes: Mapping[str, Range]
    others: Mapping[str, Range]
    work: str
    least: int = 10_000
    most: int = 60_000_000

    def work_of(self, sizes: Mapping[str, int]) -> int:
        """Return the work of a call."""
        return math.prod(sizes[name] for name in self.work.split())

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a window is shorter than what it is moved over."""
        return all(sizes[k] < sizes[long] for k, long in (("p", "h"), ("q", "w")) if k in sizes)

    @property
    def smallest(self) -> dict[str, int]:
        """The sizes of a call that is hardly more than the way to it."""
        return {name: ends[0] for name, ends in {**self.others, **self.axes}.items()}


def huber(x: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(*torch.broadcast_tensors(x[:, None], y), reduction="none").sum(-1)


def correlate(x: Tensor, k: Tensor) -> Tensor:
    return F.conv2d(x[None, None], k[None, None])[0, 0]


def group_norm(x: Tensor, g: Tensor, c: Tensor) -> Tensor:
    every = F.group_norm(x.flatten(1, 2), x.shape[1], g.flatten(), c.flatten())
    return every.view(x.shape)


def turn_pairs(x: Tensor) -> Tensor:
    n = x.shape[1]
    return x - F.pad(x, (0, n % 2)).unflatten(1, (-1, 2)).flip(2).flatten(1)[:, :n]


def scale_blocks(x: Tensor) -> Tensor:
    blocks = F.pad(x, (0, -x.shape[1] % 64)).unflatten(1, (-1, 64))
    scaled = blocks / (blocks.abs().amax(2, keepdim=True) + 1e-6)
    return scaled.flatten(1)[:, : x.shape[1]]


LENGTH, MANY = (1, 256), (1, 100_000)
AROUND = {"n": (200, 1500), "m": (200, 1500), "d": (2, 80)}
PAIRS = {"d": LENGTH, "n": MANY, "m": MANY}
ROWS, WIDE = {"n": MANY, "b": MANY}, {"n": (50, 2000), "b": (50, 2000)}
TABLE = {"v": (500, 50_000), "d": (2, 100), "n": (500, 5000), "k": (2, 40)}
PICKED = {"d": (1, 300), "k": (1, 100), "n": MANY}
IMAGE = {"c": (1, 1000), "h": (3, 3000), "w": (3, 3000)}
IMAGES = {"c": (3, 100), "h": (20, 200), "w": (20, 200)}
HUBER = "where(abs(x[n, d] - y[m, d]) < 1, (x[n, d] - y[m, d])**2/2, abs(x[n, d] - y[m, d]) - 0.5)"
FAMILIES = (
    Family(
        name="squared distances",
        line="(x[n, d], y[m, d]) -> z[n, m] = sum[d]((x[n, d] - y[m, d])**2)",
        eager=lambda x, y: ((x[:, None] - y) ** 2).sum(-1),
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="absolute distances",
        line="(x[n, d], y[m, d]) -> z[n, m] = sum[d](abs(x[n, d] - y[m, d]))",
        eager=lambda x, y: (x[:, None] - y).abs().sum(-1),
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="Huber distances",
        line=f"(x[n, d], y[m, d]) -> z[n, m] = sum[d]({HUBER})",
        eager=huber,
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="weighted distances",
        line="(x[n, d], y[m, d], w[d]) -> z[n, m] = sum[d](w[d]*(x[n, d] - y[m, d])**2)",
        eager=lambda x, y, w: (w * (x[:, None] - y) ** 2).sum(-1),
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="kernel sum",
        line="(x[n, d], y[m, d], v[m]) -> u[n] = sum[m](exp(-sum[d]((x[n, d] - y[m, d])**2))*v[m])",
        eager=gauss,
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="nearest point",
        line="(x[n, d], y[m, d]) -> u[n] = min[m](sum[d]((x[n, d] - y[m, d])**2))",
        eager=lambda x, y: ((x[:, None] - y) ** 2).sum(-1).amin(1),
        axes=PAIRS,
        others=AROUND,
        work="n m d",
    ),
    Family(
        name="softmax",
        line="(x[b, n]) -> y[b, n]"
        " = exp(x[b, n] - max[m](x[b, m]))/sum[m](exp(x[b, m] - max[k](x[b, k])))",
        eager=lambda x: x.softmax(-1),
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="log-sum-exp",
        line="(x[b, n]) -> y[b] = top = max[n](x[b, n]); y = top + log(sum[n](exp(x[b, n] - top)))",
        eager=lambda x: x.logsumexp(-1),
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="layer norm",
        line="(x[b, n], g[n], c[n]) -> y[b, n] = mu[b] = mean[k](x[b, k]);"
        " y = (x - mu)/sqrt(mean[k]((x[b, k] - mu)**2) + 1e-5)*g + c",
        eager=lambda x, g, c: F.layer_norm(x, x.shape[-1:], g, c),
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="batch norm",
        line="(x[b, c, i, j], g[c], h[c]) -> y[b, c, i, j] = u[c] = mean[n, p, q](x[n, c, p, q]);"
        " y = (x - u)/sqrt(mean[n, p, q]((x[n, c, p, q] - u[c])**2) + 1e-5)*g + h",
        eager=lambda x, g, h: F.batch_norm(x, None, None, g, h, training=True),
        axes={"b": (2, 1000), "c": (1, 1000), "j": LENGTH},
        others={"b": (2, 64), "c": (3, 300), "i": (1, 60), "j": (1, 60)},
        work="b c i j",
    ),
    Family(
        name="group norm",
        line="(x[b, k, c, s], g[k, c], h[k, c]) -> y[b, k, c, s]"
        " = u[b, k] = mean[p, q](x[b, k, p, q]);"
        " y = (x - u)/sqrt(mean[p, q]((x[b, k, p, q] - u[b, k])**2) + 1e-5)*g + h",
        eager=group_norm,
        axes={"b": (1, 1000), "k": (1, 300), "c": (1, 300), "s": (1, 10_000)},
        others={"b": (2, 64), "k": (1, 32), "c": (1, 16), "s": (4, 1000)},
        work="b k c s",
    ),
    Family(
        name="softmax of columns",
        line="(x[b, n]) -> y[b, n]"
        " = exp(x[b, n] - max[m](x[m, n]))/sum[m](exp(x[m, n] - max[k](x[k, n])))",
        eager=lambda x: x.softmax(0),
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="channels",
        line="(x[b, n], g[n], c[n]) -> y[b, n] = silu(x*g + c)",
        eager=lambda x, g, c: F.silu(x * g + c),
        axes={**ROWS, "n": LENGTH},
        others=WIDE,
        work="b n",
    ),
    Family(
        name="correlation",
        line="(x[h, w], k[p, q]) -> y[i, j] = sum[p, q](x[i + p, j + q]*k[p, q])",
        eager=correlate,
        axes={"p": (1, 15), "q": (1, 15), "h": (16, 4000), "w": (16, 4000)},
        others={"p": (1, 9), "q": (1, 9), "h": (100, 600), "w": (100, 600)},
        work="h w p q",
    ),
    Family(
        name="means of windows",
        line="(x[c, h, w]) -> y[c, i, j] = mean[p < 2, q < 2](x[c, 2*i + p, 2*j + q])",
        eager=lambda x: F.avg_pool2d(x[None], 2)[0],
        axes=IMAGE,
        others=IMAGES,
        work="c h w",
    ),
    Family(
        name="maxima of windows",
        line="(x[c, h, w]) -> y[c, i, j] = max[p < 3, q < 3](x[c, 2*i + p, 2*j + q])",
        eager=lambda x: F.max_pool2d(x[None], 3, 2)[0],
        axes=IMAGE,
        others=IMAGES,
        work="c h w",
    ),
    Family(
        name="enlarged images",
        line="(x[c, h, w]) -> y[c, i, j] = x[c, i//2, j//2]",
        eager=lambda x: F.interpolate(x[None], scale_factor=2)[0],
        axes=IMAGE,
        others=IMAGES,
        work="c h w",
    ),
    Family(
        name="scaled blocks",
        line="(x[b, n]) -> y[b, n]"
        " = s[b, m < (size(n) + 63)//64] = 1e-6 + max[p < 64](abs(pad(x[b, 64*m + p])));"
        " y = x/s[b, n//64]",
        eager=scale_blocks,
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="turned pairs",
        line="(x[b, n]) -> y[b, n] = x - pad(x[b, n + 1 - 2*(n % 2)])",
        eager=turn_pairs,
        axes=ROWS,
        others=WIDE,
        work="b n",
    ),
    Family(
        name="bag",
        line="(w[v, d], index[n, k]: int64) -> y[n, d] = sum[k](w[index[n, k], d])",
        eager=lambda w, index: F.embedding_bag(index, w, mode="sum"),
        axes=PICKED,
        others=TABLE,
        work="n k d",
    ),
    Family(
        name="greatest of rows",
        line="(w[v, d], index[n, k]: int64) -> y[n, d] = max[k](w[index[n, k], d])",
        eager=lambda w, index: w[index].amax(1),
        axes=PICKED,
        others=TABLE,
        work="n k d",
    ),
    Family(
        name="elements of rows",
        line="(x[n, v], index[n, k]: int64) -> y[n, k] = x[n, index[n, k]]",
        eager=lambda x, index: x.gather(1, index),
        axes={"n": MANY, "k": MANY, "v": MANY},
        others={"n": (1, 1000), "k": (1, 1000), "v": (2, 10_000)},
        work="n k",
    ),
)
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Sizes of one family that grow along one axis."""

    family: Family
    axis: str
    dtype: torch.dtype
    rungs: tuple[Mapping[str, int], ...]

    @property
    def name(self) -> str:
        """What it is called in tables."""
        others = {name: n for name, n in self.rungs[0].items() if name != self.axis}
        fixed = ", ".join(f"{name}={n}" for name, n in others.items())
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.family.name}, {dtype}, {fixed}"


def log_uniform(generator: random.Random, ends: Range) -> int:
    """Return a whole number, each power of two as often as another."""
    low, high = ends
    return min(high, int(math.exp(generator.uniform(math.log(low), math.log(high + 1)))))


def rungs_between(generator: random.Random, ends: Range, count: int) -> list[int]:
    """Return numbers that grow from one end to the other, where they lie is drawn."""
    low, high = ends
    step = math.log(high / low) / (count - 1)
    drawn = (round(low * math.exp(step * (k + generator.uniform(-0.5, 0.5)))) for k in range(count))
    return sorted({low, high, *(min(high, max(low, each)) for each in drawn)})


def draw_ladders(generator: random.Random, rungs: int) -> Iterator[Ladder]:
    """Yield ladders for ever, each time all axes of all families in another order."""
    while True:
        every = [(family, axis) for family in FAMILIES for axis in family.axes]
        generator.shuffle(every)
        for family, axis in every:
            fixed = {i: log_uniform(generator, ends) for i, ends in family.others.items()}
            steps = rungs_between(generator, family.axes[axis], rungs)
            found = [{**fixed, axis: step} for step in steps]
            good = [s for s in found if family.least <= family.work_of(s) <= family.most]
            good = [s for s in good if family.fits(s)]
            if len(good) > 1:
                dtype = generator.choice(DTYPES)
                yield Ladder(family=family, axis=axis, dtype=dtype, rungs=tuple(good))
