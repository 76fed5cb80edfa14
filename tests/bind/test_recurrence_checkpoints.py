"""Gradients that keep few steps of a hidden state: against autograd, and loops that keep all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.loops import checkpoints, own_call
from pullback.bind.loops.last_steps import End
from pullback.define.math.checkpoints import Reach
from pullback.define.math.ranges import Ranges
from pullback.define.math.recurrence import Group, State
from tests.bind.few_states import Loop, define, gradients, keeping_all, keeps_few, large
from tests.bind.recurrences import SCAN, draw_line, selective_scan

__all__ = ["large"]


# --- recurrences, and the loops that they stand for: of x[b, t, d], w[d] and h0[d]


def steps_of(x: Tensor, *, reverse: bool = False) -> list[Tensor]:
    return list(x.unbind(1))[:: -1 if reverse else 1]


def stacked(found: Sequence[Tensor], *, reverse: bool = False) -> Tensor:
    return torch.stack([*found][:: -1 if reverse else 1], 1)


def cell(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    h, found = h0.expand_as(x[:, 0]), list[Tensor]()
    for given in steps_of(x):
        h = (w * h + given).tanh()
        found.append(h * h)
    return stacked(found)


def ahead(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    h, found = h0.expand_as(x[:, 0]), list[Tensor]()
    for given in steps_of(x, reverse=True):
        h = (w * h).tanh() + given
        found.append(h * given)
    return stacked(found, reverse=True)


def delayed(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    h = [h0.expand_as(x[:, 0])] * 9
    for given in steps_of(x):
        h.append((w * h[-2] * h[-9]).tanh() + given)
    return stacked([h[k] * h[k - 4] for k in range(9, len(h))])


def coupled(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    u, v, found = h0.expand_as(x[:, 0]), torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in steps_of(x):
        u, v = u + 0.1 * v * w, v - 0.1 * u.sin() + 0.1 * given * v
        found.append(u * v)
    return stacked(found)


def chained(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    u, v, found = h0.expand_as(x[:, 0]), torch.zeros_like(x[:, 0]), list[Tensor]()
    for given in steps_of(x):
        before, u = u, (w * u + given).tanh()
        v = (0.5 * v + u * before).sin()
        found.append(v * v)
    return stacked(found)


def stencil(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    h, found = h0.expand_as(x[:, 0]), list[Tensor]()
    for given in steps_of(x):
        right = torch.nn.functional.pad(h, (0, 1))[:, 1:]
        h = (w * h + 0.3 * right).tanh() + 0.1 * given
        found.append(h * h)
    return stacked(found)


def matrix(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    h, found = h0.expand_as(x[:, 0]), list[Tensor]()
    for given in steps_of(x):
        h = (h @ (w[:, None] * w).T / len(w) + given).tanh()
        found.append(h * h)
    return stacked(found)


def shared(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    """Channels of which each has many elements that decay alike, as heads of Mamba-2."""
    h, found = torch.zeros(*x[:, 0].shape, len(h0), dtype=x.dtype), list[Tensor]()
    for given in steps_of(x):
        h = (-w * given).exp()[..., None] * h + given[..., None] * h0
        found.append(h @ h0)
    return stacked(found)


HEAD = "(x[b, t, d], w[d], h0[d]) -> y[b, t, d] = "
START = "h[b, -1, d] = h0"


class Case(NamedTuple):
    """A line and its loop."""

    line: str
    loop: Loop


CASES = {
    "cell": Case(f"{HEAD}h[b, t, d] = tanh(w*h[b, t - 1, d] + x); {START}; y = h*h", cell),
    "ahead": Case(
        f"{HEAD}h[b, t, d] = tanh(w*h[b, t + 1, d]) + x; h[b, size(t), d] = h0; y = h*x", ahead
    ),
    "delayed": Case(
        f"{HEAD}h[b, t, d] = tanh(w*h[b, t - 2, d]*h[b, t - 9, d]) + x; h[b, t < 0, d] = h0; "
        "y = h[b, t, d]*h[b, t - 4, d]",
        delayed,
    ),
    "coupled": Case(
        f"{HEAD}u[b, t, d] = u[b, t - 1, d] + 0.1*pad(v[b, t - 1, d])*w; u[b, -1, d] = h0; "
        "v[b, t, d] = pad(v[b, t - 1, d]) - 0.1*sin(u[b, t - 1, d]) + 0.1*x*pad(v[b, t - 1, d]); "
        "y = u*v",
        coupled,
    ),
    "chained": Case(
        f"{HEAD}u[b, t, d] = tanh(w*u[b, t - 1, d] + x); u[b, -1, d] = h0; "
        "v[b, t, d] = sin(0.5*pad(v[b, t - 1, d]) + u[b, t, d]*u[b, t - 1, d]); y = v*v",
        chained,
    ),
    "stencil": Case(
        f"{HEAD}h[b, t, d] = tanh(w*h[b, t - 1, d] + 0.3*pad(h[b, t - 1, d + 1])) + 0.1*x; "
        f"{START}; y = h*h",
        stencil,
    ),
    "matrix": Case(
        f"{HEAD}h[b, t, d] = tanh(sum[j](w[d]*w[j]*h[b, t - 1, j])/size(d) + x); {START}; y = h*h",
        matrix,
    ),
    "shared": Case(
        "(x[b, t, d], w[d], h0[s]) -> y[b, t, d] = "
        "h[b, t, d, s] = exp(-w*x)*pad(h[b, t - 1, d, s]) + x*h0; y = sum[s](h*h0)",
        shared,
    ),
}
LENGTHS = (1, 2, 3, 5, 31, 32, 33, 64, 65, 95, 96, 97, 130, 200)


def draw(length: int, width: int = 21, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = ((2, length, width), (width,), (width,))
    return [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.ci(2)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    "name",
    [
        n if n in {"delayed", "shared"} else pytest.param(n, marks=pytest.mark.thorough)
        for n in CASES
    ],
)
def test_gradients_are_those_of_a_loop_and_of_all_states(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No length is a multiple of another; the first ones have a step a block."""
    line, loop = CASES[name]
    own = define(line)
    lengths = LENGTHS if name == "cell" else (3, 33, 130)
    for length in lengths:
        given = draw(length)
        found = gradients(own, given)
        for value, wanted in zip(found, gradients(loop, given), strict=True):
            torch.testing.assert_close(value, wanted)
    # Of a matrix, the gradient is a sum over the steps of products of all states.
    assert keeps_few(own, *draw(130)) == (name != "matrix")
    given = draw(130, dtype=torch.float32)
    all_kept = keeping_all(line, given, monkeypatch)
    for value, wanted in zip(gradients(own, given), all_kept, strict=True):
        assert torch.equal(value, wanted)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("batch", [37, pytest.param(9, marks=pytest.mark.thorough)])
def test_rows_that_share_a_matrix_end_where_those_of_a_thread_do(batch: int) -> None:
    """And not where a block of steps does. Costs three seconds of the compiler."""
    own = define(
        "(x[b, t, d], w[d, j]) -> y[b, t, d] = "
        "h[b, t, d] = tanh(x + sum[j](w[d, j]*pad(h[b, t - 1, j]))); y = h*h"
    )

    def network(x: Tensor, w: Tensor) -> Tensor:
        h, found = torch.zeros_like(x[:, 0]), list[Tensor]()
        for given in x.unbind(1):
            h = (given + h @ w.T).tanh()
            found.append(h * h)
        return stacked(found)

    generator, one = torch.Generator().manual_seed(batch), torch.float64
    x = torch.randn(batch, 130, 21, generator=generator, dtype=one)
    w = torch.randn(21, 21, generator=generator, dtype=one) / 5
    results = (gradients(way, [x, w], wanted=[0]) for way in (own, network))
    for value, exact in zip(*results, strict=True):
        torch.testing.assert_close(value, exact)


@pytest.mark.usefixtures("large")
def test_only_what_rows_share_is_laid_out_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all rows of the inputs are a power of two apart. Costs two seconds of the compiler."""
    laid, write_last = list[tuple[int, ...]](), own_call.write_last

    def noted(tensor: Tensor, *how: Any) -> Tensor:
        laid.append(tuple(tensor.shape))
        return write_last(tensor, *how)

    monkeypatch.setattr(own_call, "write_last", noted)
    own = define(
        "(x[b, t, d], w[d, j]) -> y[b, t, d] = "
        "h[b, t, d] = tanh(x + sum[j](w[d, j]*pad(h[b, t - 1, j]))); y = h*h"
    )
    gradients(own, [torch.zeros(37, 130, 256), torch.ones(256, 256)], wanted=[0])
    assert (256, 256) in laid
    assert (37, 130, 256) not in laid


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.thorough) for s in range(12)])
def test_drawn_recurrences_are_loops_in_python(seed: int) -> None:
    line, loop = draw_line(random.Random(seed))
    own, one = define(line), torch.float64
    given = [torch.rand(shape, dtype=one) for shape in ((2, 70, 6), (6,), (6,))]

    def first(function: Callable[..., Any]) -> Loop:
        def called(*leaves: Tensor) -> Tensor:
            found = function(*leaves)
            return found if isinstance(found, Tensor) else found[0]

        return called

    wanted = [0, 1, 2] if "h0[d];" in f"{line};".split("->")[1] else [0, 1]
    results = (gradients(first(way), given, wanted=wanted) for way in (own, loop))
    for value, exact in zip(*results, strict=True):
        torch.testing.assert_close(value, exact)


def draw_scan(length: int, d: int, s: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = ((2, length, d), (d, s), (2, length, s), (2, length, s), (2, length, d))
    return [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_selective_scan_has_the_gradients_of_all_its_states(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States of halves are float32. Two loops may add up over d in another order, one may not."""
    own = define(SCAN)
    for length, d, s in ((31, 37, 5), (200, 300, 5)):
        given = draw_scan(length, d, s, dtype)
        found = gradients(own, given)
        for value, whole in zip(found, in_one_block(SCAN, given, monkeypatch), strict=True):
            assert torch.equal(value, whole)
        apart = keeping_all(SCAN, given, monkeypatch)
        for k, (value, whole) in enumerate(zip(found, apart, strict=True)):
            if k in {3, 4} and dtype.itemsize > 2:
                torch.testing.assert_close(value, whole, rtol=1e-4, atol=1e-4)
            elif k not in {3, 4}:
                assert torch.equal(value, whole)
        if dtype == torch.float64:
            for value, wanted in zip(found, gradients(selective_scan, given), strict=True):
                torch.testing.assert_close(value, wanted)


def in_one_block(
    line: str, given: Sequence[Tensor], monkeypatch: pytest.MonkeyPatch
) -> list[Tensor]:
    """Return the same by one loop for both directions, which has all states in one block."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "count_steps", lambda steps, _: steps)
        return gradients(define(line), given)


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
def test_some_gradients_those_under_vmap_and_those_of_gradients_are_right() -> None:
    line, loop = CASES["cell"]
    own, given = define(line), draw(70, 5)
    for wanted in ([0], [1], [2], [0, 2]):
        pairs = (gradients(way, given, wanted=wanted) for way in (own, loop))
        for value, exact in zip(*pairs, strict=True):
            torch.testing.assert_close(value, exact)

    def energy(way: Loop, x: Tensor) -> Tensor:
        return way(x, *given[1:]).square().sum()

    several = torch.stack([given[0], given[0].flip(1)])
    found, exact = (
        torch.func.vmap(torch.func.grad(partial(energy, way)))(several) for way in (own, loop)
    )
    torch.testing.assert_close(found, exact)

    def norm(way: Loop) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in given]
        first = torch.autograd.grad(way(*leaves).square().sum(), leaves, create_graph=True)
        total = torch.stack([each.square().sum() for each in first]).sum()
        return list(torch.autograd.grad(total, leaves))

    for value, exact in zip(norm(own), norm(loop), strict=True):
        torch.testing.assert_close(value, exact)


@pytest.mark.thorough
def test_the_plan_says_what_is_kept_and_one_task_alone_keeps_more() -> None:
    own = define(SCAN)

    def plan(batch: int, steps: int = 250) -> str:
        shapes = ((steps, 128), (128, 32), (steps, 32), (steps, 32), (steps, 128))
        given = [torch.empty(s if s[0] == 128 else (batch, *s)) for s in shapes]
        return str(own.plan(*given))

    assert "of 'h' every 32nd state, 0.229 MB instead of 8.19)" in plan(2)
    assert "instead of" not in plan(1)
    assert "instead of" not in plan(4, steps=125)


@pytest.mark.thorough
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.usefixtures("large")
def test_checkpoints_that_keep_too_little_are_found_before_they_are_used(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few steps are several blocks, too, so that tiny sizes are enough to see it."""
    right = checkpoints.find_reach

    def less(group: Group, readers: Iterable[State], ranges: Ranges) -> Reach | None:
        found = right(group, readers, ranges)
        return found and replace(found, before=found.before - 1)

    monkeypatch.setattr(checkpoints, "find_reach", less)
    own = define(CASES["delayed"].line.replace("t - 9", "t - 5"))
    with (
        pb.cuda.on_cpu() if on_gpu else nullcontext(),
        pytest.raises(PullbackError, match="PB147"),
    ):
        gradients(own, draw(40))


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
def test_a_last_state_that_is_not_the_last_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of states that are not kept one step alone is returned, which is compared as well."""
    right = End.spread

    def other(end: End, value: Tensor, sizes: Mapping[str, int]) -> Tensor:
        return right(replace(end, step=end.step + 1), value, sizes)

    monkeypatch.setattr(End, "spread", other)
    with pytest.raises(PullbackError, match="PB147"):
        gradients(define(CASES["cell"].line), draw(40))


@pytest.mark.usefixtures("large")
def test_infinity_times_a_difference_of_equals_is_no_fault() -> None:
    """Such as an exponent less the greatest one: a fused addition makes a rounding of it."""
    gain = "exp(-softplus(-f[b, t]) + pad(s[b, t - 1], -9) - s[b, t])"
    own = define(
        "(k[b, t, d], v[b, t, m], q[b, t, d], f[b, t], g[b, t]) -> y[b, t, m] ="
        " s[b, t] = maximum(-softplus(-f[b, t]) + pad(s[b, t - 1], -9), g[b, t]);"
        f" C[b, t, d, m] = {gain}*pad(C[b, t - 1, d, m]) + exp(g[b, t] - s[b, t])*k[b, t, d]*v;"
        f" N[b, t, d] = {gain}*pad(N[b, t - 1, d]) + exp(g[b, t] - s[b, t])*k[b, t, d];"
        " y = sum[d](C*q[b, t, d])/maximum(abs(sum[e](N[b, t, e]*q[b, t, e])), 1)"
    )

    def by_steps(k: Tensor, v: Tensor, q: Tensor, f: Tensor, g: Tensor) -> Tensor:
        s, c, n = torch.full_like(f[:, 0], -9), 0 * k[:, 0, :, None] * v[:, 0, None], 0 * k[:, 0]
        found: list[Tensor] = []
        for t in range(f.shape[1]):
            carried = s + torch.nn.functional.logsigmoid(f[:, t])
            s = torch.maximum(carried, g[:, t])
            gain, new = (carried - s).exp()[:, None], (g[:, t] - s).exp()[:, None] * k[:, t]
            c, n = gain[..., None] * c + new[..., None] * v[:, t, None], gain * n + new
            least = (n * q[:, t]).sum(1, keepdim=True).abs().clamp(min=1)
            found.append((c * q[:, t, :, None]).sum(1) / least)
        return torch.stack(found, 1)

    shapes = (9, 67, 7), (9, 67, 5), (9, 67, 7), (9, 67), (9, 67)
    given, along = (tuple(torch.randn(s, dtype=torch.float64) for s in shapes) for _ in range(2))
    found, wanted = (torch.func.jvp(each, given, along) for each in (own, by_steps))
    torch.testing.assert_close(found, wanted)
