"""Recurrences, each with the loop in Python that its line stands for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

LRU = "(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"
HEAT = (
    "(u0[x], k[x], n: int) -> u[t < n, x] = u[t - 1, x] + "
    "k*(pad(u[t - 1, x + 1]) - 2*u[t - 1, x] + pad(u[t - 1, x - 1])); u[-1, x] = u0"
)
RNN = "(x[b, t, i], U[i, j]) -> h[b, t, i] = tanh(x + sum[j](U*pad(h[b, t - 1, j])))"
SDTW = (
    "(D[b, i, j]) -> R[b, i, j] = D - logaddexp(-R[b, i - 1, j - 1], "
    "logaddexp(-R[b, i - 1, j], -R[b, i, j - 1])); "
    "R[b, -1, -1] = 0; R[b, -1, j] = inf; R[b, i, -1] = inf"
)
EDIT = (
    "(cost[i, j]) -> e[i, j] = minimum(e[i - 1, j - 1] + cost, "
    "minimum(e[i - 1, j], e[i, j - 1]) + 1); e[-1, -1] = 0; e[-1, j] = j + 1; e[i, -1] = i + 1"
)
SCAN = (
    "(dt[b, t, d], A[d, s], B[b, t, s], C[b, t, s], x[b, t, d]) -> y[b, t, d] = "
    "h[b, t, d, s] = exp(-dt*A)*pad(h[b, t - 1, d, s]) + dt*B*x; y = sum[s](C*h)"
)
GAE = "(delta[b, t], c[b, t]) -> adv[b, t] = delta + c*pad(adv[b, t + 1])"
BIQUAD = (
    "(x[b, t], p[3], q[2]) -> y[b, t] = p[0]*x + p[1]*pad(x[b, t - 1]) + p[2]*pad(x[b, t - 2]) "
    "- q[0]*pad(y[b, t - 1]) - q[1]*pad(y[b, t - 2])"
)
ALONE = "(x[t], r: float) -> y[t] = tanh(r*pad(y[t - 1]) + x)"
EMA = (
    "(x[b, t, d], r: float) -> (y[b, t, d], end[b, d]) = "
    "y = r*y[b, t - 1, d] + (1 - r)*x; y[b, -1, d] = 0; end = y[b, size(t) - 1, d]"
)
COUPLED = (
    "(p[d], n: int) -> (x[t < n, d], y[t < n, d]) = "
    "x = x[t - 1, d] + p/9*x[t - 1, d]*(1 - y[t - 1, d]); x[-1, d] = 2; "
    "y = y[t - 1, d] + p/9*y[t - 1, d]*(x[t, d] - 1); y[-1, d] = 1"
)
RESERVOIR = (
    "(x[b, t, n], w[n, k], to[n, k]: int64) -> h[b, t, n] = "
    "tanh(x + sum[k](w[n, k]*pad(h[b, t - 1, to[n, k]])) + pad(h[b, t - 2, n])/4)"
)


def lru(a: Tensor, x: Tensor, h: Tensor) -> Tensor:
    found: list[Tensor] = []
    for own, given in zip(a.unbind(1), x.unbind(1), strict=True):
        h = own * h + given
        found.append(h)
    return torch.stack(found, 1)


def heat(u: Tensor, k: Tensor, n: int) -> Tensor:
    found: list[Tensor] = []
    for _ in range(n):
        wide = torch.nn.functional.pad(u, (1, 1))
        u = u + k * (wide[2:] - 2 * u + wide[:-2])
        found.append(u)
    return torch.stack(found)


def rnn(x: Tensor, weights: Tensor) -> Tensor:
    h, found = torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in x.unbind(1):
        h = (given + h @ weights.T).tanh()
        found.append(h)
    return torch.stack(found, 1)


def reservoir(x: Tensor, w: Tensor, to: Tensor) -> Tensor:
    """Neurons of which each reads some others, or none where a place is outside."""
    inside, to = (to >= 0) & (to < x.shape[-1]), to.clamp(0, x.shape[-1] - 1)
    before, h, found = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in x.unbind(1):
        read = torch.where(inside, h[:, to], 0)
        before, h = h, (given + (w * read).sum(-1) + before / 4).tanh()
        found.append(h)
    return torch.stack(found, 1)


def fill(cells: Tensor, first: Callable[[int, int], Tensor], step: Callable[..., Tensor]) -> Tensor:
    """Return a table of which each element follows from three neighbours."""
    table: dict[tuple[int, int], Tensor] = {}

    def at(i: int, j: int) -> Tensor:
        return first(i, j) if min(i, j) < 0 else table[i, j]

    rows, columns = cells.shape[-2:]
    for i in range(rows):
        for j in range(columns):
            table[i, j] = step(cells[..., i, j], at(i - 1, j - 1), at(i - 1, j), at(i, j - 1))
    lines = (torch.stack([table[i, j] for j in range(columns)], -1) for i in range(rows))
    return torch.stack([*lines], -2)


def soft_dtw(distances: Tensor) -> Tensor:
    far = torch.full_like(distances[:, 0, 0], torch.inf)

    def step(d: Tensor, *before: Tensor) -> Tensor:
        return d - torch.logsumexp(-torch.stack(before), 0)

    return fill(distances, lambda i, j: torch.zeros_like(far) if i == j else far, step)


def edit(cost: Tensor) -> Tensor:
    def step(c: Tensor, both: Tensor, *one: Tensor) -> Tensor:
        return torch.minimum(both + c, torch.minimum(*one) + 1)

    return fill(cost, lambda i, j: cost.new_tensor(max(i, j) + 1), step)


def selective_scan(dt: Tensor, a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    h, found = torch.zeros_like(dt[:, 0, :, None] * a), list[Tensor]()
    for t in range(dt.shape[1]):
        step = dt[:, t, :, None]
        h = (-step * a).exp() * h + step * b[:, t, None] * x[:, t, :, None]
        found.append((h * c[:, t, None]).sum(-1))
    return torch.stack(found, 1)


def gae(delta: Tensor, c: Tensor) -> Tensor:
    value, found = torch.zeros_like(delta[:, 0]), list[Tensor]()
    for own, factor in zip(delta.unbind(1)[::-1], c.unbind(1)[::-1], strict=True):
        value = own + factor * value
        found.append(value)
    return torch.stack(found[::-1], 1)


def biquad(x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    nothing = torch.zeros_like(x[:, 0])
    xs, ys = [nothing, nothing, *x.unbind(1)], [nothing, nothing]
    for k in range(2, len(xs)):
        given = p[0] * xs[k] + p[1] * xs[k - 1] + p[2] * xs[k - 2]
        ys.append(given - q[0] * ys[-1] - q[1] * ys[-2])
    return torch.stack(ys[2:], 1)


def alone(x: Tensor, r: float) -> Tensor:
    y, found = torch.zeros_like(x[0]), list[Tensor]()
    for given in x:
        y = (r * y + given).tanh()
        found.append(y)
    return torch.stack(found)


def ema(x: Tensor, r: float) -> tuple[Tensor, Tensor]:
    y, found = torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in x.unbind(1):
        y = r * y + (1 - r) * given
        found.append(y)
    return torch.stack(found, 1), y


def coupled(p: Tensor, n: int) -> tuple[Tensor, Tensor]:
    x, y, found = torch.full_like(p, 2), torch.ones_like(p), list[tuple[Tensor, Tensor]]()
    for _ in range(n):
        x = x + p / 9 * x * (1 - y)
        y = y + p / 9 * y * (x - 1)
        found.append((x, y))
    xs, ys = zip(*found, strict=True)
    return torch.stack(xs), torch.stack(ys)


class Recurrence(NamedTuple):
    """A line, its loop, the shapes of its real tensors, its other arguments."""

    line: str
    loop: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[float | Tensor, ...] = ()

    def draw(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
        """Return tensors below 1, with which states stay small."""
        generator = torch.Generator().manual_seed(seed)
        made = [torch.rand(shape, generator=generator) for shape in self.shapes]
        if self.loop is heat:
            made[1] /= 4
        if self.loop is rnn:
            made[1] = (made[1] - 0.5) / made[1].shape[1] ** 0.5
        return [each.to(dtype) for each in made]


# Lanes that end within a warp and beyond a block; fronts of one element and of hundreds; steps of
# which a state keeps none, some or all.
RECURRENCES = {
    "lru": Recurrence(LRU, lru, ((2, 9, 70), (2, 9, 70), (2, 70))),
    "heat": Recurrence(HEAT, heat, ((150,), (150,)), (7,)),
    "rnn": Recurrence(RNN, rnn, ((3, 6, 40), (40, 40))),
    "soft_dtw": Recurrence(SDTW, soft_dtw, ((2, 13, 37),)),
    "edit": Recurrence(EDIT, edit, ((11, 35),)),
    "scan": Recurrence(SCAN, selective_scan, ((2, 6, 9), (9, 5), (2, 6, 5), (2, 6, 5), (2, 6, 9))),
    "gae": Recurrence(GAE, gae, ((40, 9), (40, 9))),
    "biquad": Recurrence(BIQUAD, biquad, ((5, 19), (3,), (2,))),
    "alone": Recurrence(ALONE, alone, ((30,),), (0.7,)),
    "ema": Recurrence(EMA, ema, ((2, 9, 40),), (0.25,)),
    "coupled": Recurrence(COUPLED, coupled, ((33,),), (12,)),
    "reservoir": Recurrence(
        RESERVOIR,
        reservoir,
        ((2, 7, 37), (37, 3)),
        (torch.randint(-2, 39, (37, 3), generator=torch.Generator().manual_seed(1)),),
    ),
}


def on(device: torch.device, numbers: Sequence[float | Tensor]) -> list[float | Tensor]:
    """Return arguments on a device."""
    return [each.to(device) if isinstance(each, Tensor) else each for each in numbers]


def differentiate(
    function: Callable[..., Any],
    given: Sequence[Tensor],
    numbers: Sequence[float | Tensor],
    orders: int = 1,
) -> list[Tensor]:
    """Return the outputs, their gradients, and with two orders the gradients of these."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in given]
    found = function(*leaves, *on(given[0].device, numbers))
    several = list(found) if isinstance(found, tuple) else [found]
    loss = torch.stack([output.double().sin().sum() for output in several]).sum()
    results, more = [*several], [loss]
    for order in range(orders):
        total = torch.stack(
            [each.double().square().sum() if order else each for each in more]
        ).sum()
        more = torch.autograd.grad(total, leaves, create_graph=order + 1 < orders)
        results += more
    return [result.detach() for result in results]


def draw_line(chance: random.Random) -> tuple[str, Callable[..., list[Tensor]]]:
    """Return a line `(x[b, t, d], w[d], h0[d]) -> ...`, and the loop that it stands for."""
    direction = chance.choice((-1, 1))
    shifts = sorted(chance.sample((1, 2, 3), chance.randint(1, 2)))
    side = chance.choice((-1, 0, 1))
    inner = chance.choice(("tanh({})", "{}", "{}*sigmoid({})"))
    hidden = chance.choice((True, False))
    boundary = chance.choice((None, "h0[d]", "0.5"))

    def term(shift: int) -> str:
        place = f"t {'-' if direction > 0 else '+'} {shift}"
        at = f"h[b, {place}, {f'd + {side}' if side and shift == 1 else 'd'}]"
        return f"pad({at})" if boundary is None or (side and shift == 1) else at

    body = "(" + " + ".join(f"{0.5 / s}*{term(s)}" for s in shifts) + ")"
    step = "x + w*" + inner.format(body, body)
    side_of = "t < 0" if direction > 0 else "t >= size(t)"
    ends = "" if boundary is None else f"; h[b, {side_of}, d] = {boundary}"
    if hidden:
        text = f"y[b, d] = h[b, t, d] = {step}{ends}; y = sum[t](h[b, t, d]*h[b, t, d])"
    else:
        text = f"(h[b, t, d], last[b, d]) = h = {step}{ends}; last = h[b, size(t) - 1, d]"

    def loop(x: Tensor, w: Tensor, h0: Tensor) -> list[Tensor]:
        length, width = x.shape[1:]
        outside = {None: torch.zeros_like(h0), "h0[d]": h0, "0.5": torch.full_like(h0, 0.5)}
        edge = outside[boundary].expand(x.shape[0], width)
        found: dict[int, Tensor] = {}
        for t in range(length) if direction > 0 else range(length - 1, -1, -1):
            total = torch.zeros_like(edge)
            for shift in shifts:
                h = found.get(t - direction * shift, edge)
                if side and shift == 1:
                    padded = torch.nn.functional.pad(h, (1, 1))
                    h = padded[:, 1 + side : 1 + side + width]
                total = total + 0.5 / shift * h
            value = {"tanh({})": total.tanh(), "{}": total}.get(inner, total * total.sigmoid())
            found[t] = x[:, t] + w * value
        h = torch.stack([found[t] for t in range(length)], 1)
        return [(h * h).sum(1)] if hidden else [h, h[:, -1]]

    return f"(x[b, t, d], w[d], h0[d]) -> {text}", loop
