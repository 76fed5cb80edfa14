"""Recurrences, run: against loops in Python under autograd, SciPy, and numbers from elsewhere."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import pullback as pb
from pullback import PullbackError
from pullback.bind.dense import cumulative
from pullback.bind.kinds.recurrent import Recurrent
from pullback.bind.loops import backends, scans
from pullback.bind.math import recur
from pullback.bind.math.recurrent_call import RecurrentCall
from pullback.bind.operator import Operator
from pullback.bind.registry import operators
from pullback.define.math.cumulative import find_cumulative
from tests.bind import recurrences
from tests.bind.recurrences import RECURRENCES, differentiate, draw_line
from tests.telling import telling
from tests.threads import threads

DOUBLE = torch.float64
LRU = (
    "lru(a[..., t, d], x[..., t, d], h0[..., d]) -> h[..., t, d] = a*h[t - 1, d] + x; h[-1, d] = h0"
)
SDTW = (
    "sdtw(D[..., i, j], g: float) -> R[..., i, j] = "
    "D - g*logaddexp(-R[i-1, j-1]/g, logaddexp(-R[i-1, j]/g, -R[i, j-1]/g)); "
    "R[-1, -1] = 0; R[-1, j] = inf; R[i, -1] = inf"
)
SS = (
    "ss(dt[..., t, d], A[d, s], B[..., t, s], C[..., t, s], x[..., t, d]) -> y[..., t, d] = "
    "h[t, d, s] = exp(dt*A)*pad(h[t - 1, d, s]) + dt*B*x; y = sum[s](C*h)"
)


@pytest.fixture(scope="session")
def lru() -> Operator:
    return pb.operator(f"recurrence::{LRU}")


@pytest.fixture(scope="session")
def ss() -> Operator:
    return pb.operator(f"recurrence::{SS}")


@pytest.fixture(scope="session")
def sdtw() -> Operator:
    return pb.operator(f"recurrence::{SDTW}")


def values(*rows: list[float]) -> list[Tensor]:
    return [torch.tensor(row, dtype=DOUBLE)[..., None].requires_grad_() for row in rows]


def total_of(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.sum() for tensor in tensors]).sum()


def close(found: Tensor, wanted: list[float]) -> None:
    torch.testing.assert_close(found.flatten(), torch.tensor(wanted, dtype=DOUBLE))


def test_a_linear_recurrence_and_two_orders_of_gradients(lru: Operator) -> None:
    a, x, h0 = values([0.5, 0.25, 0.5, 2], [1, 2, -1, 0.5], [4])
    h0 = h0[0]
    h = lru(a, x, h0)
    close(h, [3, 2.75, 0.375, 1.25])
    first = torch.autograd.grad(h.sum(), [a, x, h0], create_graph=True)
    close(
        torch.cat([g.flatten() for g in first]), [6.5, 7.5, 8.25, 0.375, 1.625, 2.5, 3, 1, 0.8125]
    )
    second = torch.autograd.grad(total_of([g**2 for g in first]), [a, x, h0])
    close(second[0], [202.515625, 289.78125, 194.109375, 83.3828125])
    close(second[1], [49.96875, 49.875, 0.75, 0])
    close(second[2], [46.109375])
    given = (a.detach(), x.detach(), h0.detach())
    tangents = (torch.ones_like(a), torch.zeros_like(x), torch.zeros_like(h0))
    close(torch.func.jvp(lru, given, tangents)[1], [4, 4, 4.75, 9.875])


def test_a_filter_is_that_of_scipy() -> None:
    filter = pb.operator(
        "recurrence::biquad(x[..., t], b[3], a[3]) -> y[..., t] = b[0]*x + b[1]*pad(x[t - 1]) "
        "+ b[2]*pad(x[t - 2]) - a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])"
    )
    b, a = torch.tensor([0.2, 0.3, 0.2], dtype=DOUBLE), torch.tensor([1, -0.6, 0.3], dtype=DOUBLE)
    x = torch.tensor([1, 0, 0, 0, 0, 2, -1, 0.5], dtype=DOUBLE, requires_grad=True)
    y = filter(x, b, a)
    close(y, np.asarray(scipy.signal.lfilter(b, a, x.detach())).tolist())
    (gradient,) = torch.autograd.grad(y.sum(), x)
    close(gradient, np.asarray(scipy.signal.lfilter(b, a, [1.0] * 8))[::-1].tolist())
    close(gradient, [0.98786512, 0.9823312, 1.005112, 1.06912, 1.1212, 1.012, 0.62, 0.2])


def test_a_recurrence_may_run_backwards() -> None:
    gae = pb.operator("recurrence::gae(d[..., t], c[..., t]) -> v[..., t] = d + c*pad(v[t + 1])")
    d = torch.tensor([1, -1, 0.5, 2], dtype=DOUBLE, requires_grad=True)
    v = gae(d, torch.tensor([0.9, 0.9, 0, 0.9], dtype=DOUBLE))
    close(v, [0.505, -0.55, 0.5, 2])
    close(torch.autograd.grad(v.sum(), d)[0], [1, 1.9, 2.71, 1])


def test_a_wavefront_is_soft_dtw(sdtw: Operator) -> None:
    """The values are those of pysdtw; the gradients those of autograd through a Python loop."""
    one, other = torch.tensor([0, 1, 2], dtype=DOUBLE), torch.tensor([0, 2, 3, 1], dtype=DOUBLE)
    distances = ((one[:, None] - other) ** 2).requires_grad_()
    assert sdtw(distances, 0.1)[-1, -1].item() == pytest.approx(2.890135744517001)
    end = sdtw(distances, 1.0)[-1, -1]
    assert end.item() == pytest.approx(1.6237516862223615)
    (path,) = torch.autograd.grad(end, distances)
    wanted = [
        *(1, 0.0112836539, 5.9521e-6, 1.5516e-6, 0.4538979893, 0.741362575, 0.0427493969),
        *(0.0180596431, 0.0046251415, 0.6071970725, 0.963886483, 1),
    ]
    torch.testing.assert_close(
        path.flatten(), torch.tensor(wanted, dtype=DOUBLE), rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("direction", [1, pytest.param(-1, marks=pytest.mark.thorough)])
def test_the_final_state_of_no_steps_is_the_first_one(direction: int) -> None:
    """Its gradient too, of the first and the second order, and forward mode."""
    way = ("t - 1", "-1", "size(t) - 1") if direction > 0 else ("t + 1", "size(t)", "0")
    own = pb.operator(
        "recurrence::final_{}(x[..., t, d], h0[..., d]) -> (h[..., t, d], end[..., d]) = "
        "h = h0*h[{}, d]/2 + x; h[{}, d] = h0; end = h[{}, d]".format(direction + 1, *way)
    )
    for length in (0, 3):
        x = torch.rand(length, 2, dtype=DOUBLE, requires_grad=True)
        first = torch.rand(2, dtype=DOUBLE, requires_grad=True)
        wanted = first
        for given in x.unbind(0)[::direction]:
            wanted = first * wanted / 2 + given
        end = own(x, first)[1]
        torch.testing.assert_close(end, wanted)
        slopes = (
            torch.autograd.grad(last.sin().sum(), (x, first), materialize_grads=True)
            for last in (end, wanted)
        )
        for found, exact in zip(*slopes, strict=True):
            torch.testing.assert_close(found, exact)
        torch.autograd.gradcheck(own, (x, first), check_forward_ad=True)
        torch.autograd.gradgradcheck(own, (x, first))


CHAOTIC: dict[str, Callable[[Tensor], Tensor]] = {
    "3.9*x[t - 1, d]*(1 - x[t - 1, d])": lambda x: 3.9 * x * (1 - x),
    "sin(9*x[t - 1, d])": lambda x: (9 * x).sin(),
    "abs(1 - 1.99*x[t - 1, d])": lambda x: (1 - 1.99 * x).abs(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("step", CHAOTIC)
def test_a_chaotic_map_is_no_fault(step: str) -> None:
    """Roundings grow until nothing is left; loops and steps have different ones."""
    own = pb.operator(
        f"recurrence::chaos{[*CHAOTIC].index(step)}(x0[d], n: int) -> x[t < n, d] = {step}; "
        "x[-1, d] = x0"
    )
    for dtype in (torch.float32, DOUBLE):
        x0 = torch.rand(6, dtype=dtype, requires_grad=True)
        found, wanted = own(x0, 150), [x0]
        for _ in range(4):
            wanted.append(CHAOTIC[step](wanted[-1]))
        exact = torch.stack(wanted[1:])
        torch.testing.assert_close(found[:4], exact, rtol=1e-3, atol=1e-3)
        slopes = (torch.autograd.grad(each[:3].sum(), x0)[0] for each in (found, exact))
        torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("looped")
def test_infinity_times_what_cancels_is_no_fault() -> None:
    """Two orders of adding up find 0 and a rounding, and `tanh` makes NaN and 1 of it."""
    own = pb.operator(
        "recurrence::cancelling(W[n, n], U[d, d], x[b, t, n, d]) -> h[b, t, n, d] ="
        " tanh(sum[e](U[d, e]*sum[k](W[n, k]*pad(h[b, t - 1, k, e]))) + x)"
    )
    # Of some draws roundings grow a million times in 70 steps.
    generator = torch.Generator().manual_seed(1)
    draw = functools.partial(torch.randn, dtype=DOUBLE, generator=generator)
    for d in (3, 4, 5):
        w, u = draw(3, 3), draw(d, d)
        x, h = draw(5, 70, 3, d), torch.zeros(5, 3, d, dtype=DOUBLE)
        wanted: list[Tensor] = []
        for step in x.unbind(1):
            h = torch.tanh(w @ h @ u.T + step)
            wanted.append(h)
        torch.testing.assert_close(own(w, u, x), torch.stack(wanted, 1))


@pytest.mark.thorough
@pytest.mark.usefixtures("looped")
def test_lanes_may_be_those_of_wider_registers_than_there_are() -> None:
    """Of a single vector, states are variables; where registers are narrower it is two or more."""
    own = pb.operator("recurrence::narrow(x[t, d]) -> y[t, d] = x - y[t - 1, d]/2; y[-1, d] = 1")
    for dtype, width in ((torch.float32, 13), (DOUBLE, 7), (DOUBLE, 8)):
        x = torch.rand(70, width, dtype=dtype)
        y = torch.ones(width, dtype=dtype)
        for given in x:
            y = given - y / 2
        torch.testing.assert_close(own(x)[-1], y)


def test_ctc_is_that_of_pytorch() -> None:
    """Its gradient too, where no path reaches a cell: everything is -inf there."""
    ctc = pb.operator(
        "recurrence::ctc(p[t, v], label[s]: int64, skips[s]) -> a[t, s] = p[t, label[s]] + "
        "where(t == 0, where(s < 2, 0.0, -inf), logaddexp(a[t - 1, s], "
        "logaddexp(pad(a[t - 1, s - 1], -inf), "
        "where(skips > 0, pad(a[t - 1, s - 2], -inf), -inf))))"
    )
    steps, many = torch.arange(6, dtype=DOUBLE), torch.arange(4, dtype=DOUBLE)
    logits = torch.sin(3 * steps[:, None] + 1.7 * many).requires_grad_()
    p = logits.log_softmax(-1)
    loss = torch.nn.functional.ctc_loss(
        p[:, None], torch.tensor([[1, 2, 2]]), torch.tensor([6]), torch.tensor([3]), reduction="sum"
    )
    skips = torch.tensor([0, 0, 0, 1, 0, 0, 0], dtype=DOUBLE)
    a = ctc(p, torch.tensor([0, 1, 0, 2, 0, 2, 0]), skips)
    ours = -torch.logaddexp(a[-1, -1], a[-1, -2])
    assert ours.item() == pytest.approx(loss.item())
    own, theirs = (torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (ours, loss))
    torch.testing.assert_close(own, theirs)


def test_the_gradient_of_the_best_path_is_the_path() -> None:
    """Viterbi's algorithm, against all paths."""
    viterbi = pb.operator(
        "recurrence::viterbi(move[s, s], emit[t, s]) -> best[t, s] = emit + "
        "where(t == 0, 0, max[r](pad(best[t - 1, r]) + move[r, s]))"
    )
    generator = torch.Generator().manual_seed(0)
    move, emit = (torch.randn(s, 3, dtype=DOUBLE, generator=generator) for s in (3, 5))
    scores = {
        path: sum(emit[t, s] for t, s in enumerate(path))
        + sum(move[a, b] for a, b in itertools.pairwise(path))
        for path in itertools.product(range(3), repeat=5)
    }
    path = max(scores, key=lambda each: float(scores[each]))
    leaves = move.requires_grad_(), emit.requires_grad_()
    found = viterbi(*leaves)[-1].amax()
    close(found, [float(scores[path])])
    moves, emits = torch.autograd.grad(found, leaves)
    assert emits.argmax(1).tolist() == list(path)
    assert emits.sum() == 5
    for a, b in itertools.product(range(3), repeat=2):
        assert moves[a, b] == list(itertools.pairwise(path)).count((a, b))


CUMULATIVE = {
    "cumsum": ("x + pad(y[..., t - 1])", torch.cumsum),
    "cumprod": ("x * pad(y[..., t - 1], 1)", torch.cumprod),
    "logcumsumexp": ("logaddexp(x, pad(y[..., t - 1], -inf))", torch.logcumsumexp),
}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative_functions_are_those_of_pytorch(name: str) -> None:
    text, theirs = CUMULATIVE[name]
    own = pb.operator(f"recurrence::{name}(x[..., t]) -> y[..., t] = {text}")
    x = torch.tensor([0.5, -2, 3, 3, 0, 1.5], dtype=DOUBLE, requires_grad=True)
    for length in (0, 1, 6):
        y, wanted = own(x[:length]), theirs(x[:length], 0)
        torch.testing.assert_close(y, wanted)
        gradients = (torch.autograd.grad(v.sum(), x)[0] for v in (y, wanted))
        torch.testing.assert_close(*gradients)


COMBINED = {
    "{p} + x": (lambda p, x: p + x, "add"),
    "{p} - x": (lambda p, x: p - x, "add"),
    "x * {p}": (lambda p, x: x * p, "mul"),
    "maximum({p}, x)": (torch.maximum, "maximum"),
    "minimum(x, {p})": (torch.minimum, "minimum"),
    "logaddexp({p}, x)": (torch.logaddexp, "logaddexp"),
}


@pytest.mark.parametrize("text", COMBINED)
@pytest.mark.parametrize(("labels", "direction"), [("..., t", 1), ("t, d", -1), ("d, t", -1)])
def test_steps_that_only_combine_are_computed_at_once(
    text: str, labels: str, direction: int
) -> None:
    """From any boundary, in both directions, along any dimension, with infinities and zeros."""
    combine, op = COMBINED[text]
    before, outside = ("t - 1", "-1") if direction > 0 else ("t + 1", "size(t)")
    rest = labels.replace(", t", "").replace("t, ", "")
    line = text.format(p=f"y[{labels.replace('t', before)}]")
    name = f"at_once_{[*COMBINED].index(text)}_{labels.strip('., ').replace(', ', '')}"
    own = pb.operator(
        f"recurrence::{name}(x[{labels}], s[{rest}]) -> y[{labels}] = {line};"
        f" y[{labels.replace('t', outside)}] = s"
    )
    formula = own.kind.definition.formula
    assert formula
    whole = find_cumulative(formula, formula.groups[0])
    assert whole
    assert whole.op == op
    generator = torch.Generator().manual_seed(0)
    dim = 0 if labels == "t, d" else 1
    for special in (False, True):
        x = torch.randn(5, 5, dtype=DOUBLE, generator=generator)
        s = torch.randn(5, dtype=DOUBLE, generator=generator)
        if special:
            x[2, 2], x[1, 3], x[4, 0], x[3, 4] = torch.tensor([0.0, np.inf, -np.inf, np.nan])
            s[0], s[1], s[2] = torch.tensor([0.0, np.inf, -np.inf])
        leaves = x.requires_grad_(), s.requires_grad_()
        state, found = s, list[Tensor]()
        for row in x.unbind(dim)[::direction]:
            state = combine(state, row)
            found.append(state)
        wanted = torch.stack(found[::direction], dim)
        y, *again = (own(x, s) for _ in range(3))
        for each in (y, *again):
            torch.testing.assert_close(each, wanted, equal_nan=True)
        if not special:
            values = (y.cos().sum(), wanted.cos().sum())
            torch.testing.assert_close(*(torch.autograd.grad(v, leaves) for v in values))


def test_cumulative_functions_accumulate_in_float32_and_are_planned() -> None:
    own = pb.operator("recurrence::summed(x[..., t]) -> y[..., t] = x + pad(y[..., t - 1])")
    x = torch.rand(300, dtype=torch.float32).bfloat16()
    assert torch.equal(own(x), x.float().cumsum(0).bfloat16())
    plan = str(own.plan(torch.rand(4, 300)))
    assert "y: PyTorch (torch.cumsum along 't')" in plan
    assert "grad_x: PyTorch (torch.cumsum along 't', in reverse order)" in plan
    wide = pb.operator("recurrence::wide(x[t, d]) -> y[t, d] = x + pad(y[t - 1, d])")
    assert "y: own loop, recurrence" in str(wide.plan(torch.rand(300, 64)))


def test_a_cumulative_function_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it runs the other way."""
    right = cumulative.accumulate

    def wrong(op: str, values: Tensor, dim: int, *, is_reversed: bool) -> Tensor:
        return right(op, values, dim, is_reversed=not is_reversed)

    monkeypatch.setattr(cumulative, "accumulate", wrong)
    own = pb.operator("recurrence::reversed(x[t]) -> y[t] = x*pad(y[t - 1], 1)")
    with pytest.raises(PullbackError, match="PB147"):
        own(torch.ones(6))


# --- drawn recurrences, against a loop in Python


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loops compiled for the smallest calls."""
    monkeypatch.setattr(recur, "FEW", 0)


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 12))]
)
def test_drawn_recurrences_by_loops_are_loops_in_python(seed: int) -> None:
    """Lengths go beyond the steps that a hidden state keeps."""
    assert_is_loop(seed, (9,), orders=1)


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(5))]
)
def test_drawn_recurrences_by_steps_are_loops_in_python(seed: int) -> None:
    assert_is_loop(seed, (1, 4), orders=2)


def assert_is_loop(seed: int, lengths: tuple[int, ...], orders: int) -> None:
    """Compare values, gradients, tangents and gradients of gradients with those of a loop."""
    chance = random.Random(seed)
    line, loop = draw_line(chance)
    own = pb.operator(f"recurrence::drawn{seed}_{orders}{line}")
    generator = torch.Generator().manual_seed(seed)

    def called(*given: Tensor) -> list[Tensor]:
        found = own(*given)
        return list(found) if isinstance(found, tuple) else [found]

    for length in lengths:
        sizes = ((2, length, 3), (3,), (3,))
        given = [torch.randn(s, dtype=DOUBLE, generator=generator) for s in sizes]
        results: list[list[Tensor]] = []
        for way in (called, loop):
            leaves = [g.clone().requires_grad_() for g in given]
            results.append(way(*leaves))
            total = total_of([o * o.cos() for o in results[-1]])
            for order in range(orders):
                again = order + 1 < orders
                found = torch.autograd.grad(
                    total, leaves, create_graph=again, materialize_grads=True
                )
                results[-1] += found
                total = total_of([g * g for g in found])
            if orders > 1:
                results[-1] += torch.func.jvp(way, tuple(given), tuple(given))[1]
        for found, wanted in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted)


def test_batches_vmap_half_precision_and_absent_gradients(lru: Operator) -> None:
    generator = torch.Generator().manual_seed(0)
    a, x = (torch.rand(2, 3, 5, 4, generator=generator) for _ in range(2))
    h0 = torch.rand(3, 4, generator=generator)
    whole = lru(a, x, h0)
    rows = [lru(a[k], x[k], h0) for k in range(2)]
    torch.testing.assert_close(whole, torch.stack(rows))
    mapped = torch.func.vmap(lru, in_dims=(0, 0, None))(a, x, h0)
    torch.testing.assert_close(mapped, whole)
    half = lru(*(v.bfloat16() for v in (a, x, h0)))
    exact = lru(*(v.bfloat16().float() for v in (a, x, h0)))
    # The state is not rounded between the steps.
    assert torch.equal(half, exact.bfloat16())
    start = h0.requires_grad_()
    assert torch.autograd.grad(lru(a, x, start).sum(), start)[0].shape == h0.shape
    two = pb.operator(
        "recurrence::two(x[t]) -> (y[t], end[]) = y = pad(y[t - 1])/2 + x; end = y[size(t) - 1]"
    )
    x = torch.randn(4, dtype=DOUBLE, requires_grad=True)
    close(torch.autograd.grad(two(x)[1], x)[0], [0.125, 0.25, 0.5, 1])
    close(torch.autograd.grad(two(x)[0].sum(), x)[0], [1.875, 1.75, 1.5, 1])


def test_a_call_is_checked_and_traced(lru: Operator) -> None:
    with pytest.raises(PullbackError, match="size-mismatch"):
        lru(torch.ones(3, 2), torch.ones(4, 2), torch.ones(2))
    a, x, h0 = torch.rand(5, 4), torch.rand(5, 4, requires_grad=True), torch.rand(4)

    def loss(x: Tensor) -> Tensor:
        return lru(a, x, h0).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    (own,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(own, torch.autograd.grad(loss(x), x)[0])


@pytest.mark.usefixtures("looped")
def test_a_hidden_state_is_computed_again_for_the_gradients(ss: Operator) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, 7, 3), (3, 2), (2, 7, 2), (2, 7, 2), (2, 7, 3))
    given = [torch.randn(s, dtype=DOUBLE, generator=generator) for s in shapes]

    def loop(dt: Tensor, a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
        h, found = torch.zeros(2, 3, 2, dtype=DOUBLE), []
        for t in range(7):
            h = (dt[:, t, :, None] * a).exp() * h
            h = h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
            found.append((h * c[:, t, None]).sum(-1))
        return torch.stack(found, 1)

    results: list[list[Tensor]] = []
    for way in (ss, loop):
        leaves = [g.clone().requires_grad_() for g in given]
        y = way(*leaves)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("looped")
def test_a_loop_that_is_wrong_is_found_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here too few steps of a hidden state are kept, which no vector has in variables."""
    find = scans.find_rings
    monkeypatch.setattr(scans, "find_rings", lambda *given: dict.fromkeys(find(*given), 1))
    own = pb.operator(
        "recurrence::faulty(x[t, d]) -> y[t, d] = "
        "h[t, d] = pad(h[t - 1, d]) + pad(h[t - 2, d]) + x; y = 2*h"
    )
    with pytest.raises(PullbackError, match="PB147"):
        own(torch.ones(6, 70))


@pytest.mark.usefixtures("looped")
def test_an_output_may_look_further_back_than_the_state_does() -> None:
    """As many steps of a hidden state are kept as anything in its loop reads."""
    own = pb.operator(
        "recurrence::echo(x[t, d]) -> y[t, d] = h[t, d] = pad(h[t - 1, d])/2 + x; "
        "y = h[t, d] + pad(h[t - 5, d])"
    )
    x = torch.randn(19, 20, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    x.requires_grad_()
    powers = 0.5 ** torch.arange(19, dtype=DOUBLE)
    h = torch.stack([powers[: t + 1].flip(0) @ x[: t + 1] for t in range(19)])
    y = h + torch.nn.functional.pad(h, (0, 0, 5, 0))[:19]
    torch.testing.assert_close(own(x), y)
    found, wanted = (torch.autograd.grad(v.square().sum(), x)[0] for v in (own(x), y))
    torch.testing.assert_close(found, wanted)


DECAY = (
    "decay(r[d], x[b, t, d]) -> h[b, t, d] = r*pad(h[b, t - 1, d]) + x",
    "ahead(r[d], x[b, t, d]) -> h[b, t, d] = r*pad(h[b, t + 1, d]) + x",
)


def decay_steps(r: Tensor, x: Tensor) -> Tensor:
    found = [x[:, 0]]
    for given in x.unbind(1)[1:]:
        found.append(r * found[-1] + given)
    return torch.stack(found, 1)


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize("line", DECAY)
def test_what_all_steps_share_gets_its_gradient_while_they_run(line: str) -> None:
    """That of 4000 steps in float32 is off by no more than the rounding of its elements."""
    own = pb.operator(f"recurrence::{line}")
    generator = torch.Generator().manual_seed(8)
    r = torch.rand(5, generator=generator) * 0.9
    for many in (2, 3, 4000):
        x = torch.randn(3, many, 5, generator=generator)
        given = x if line == DECAY[0] else x.flip(1)
        leaf, exact = r.clone().requires_grad_(), r.double().requires_grad_()
        wanted = decay_steps(exact, x.double())
        (want,) = torch.autograd.grad(wanted.sum(), exact)
        (found,) = torch.autograd.grad(own(leaf, given).sum(), leaf)
        # What arrives is a sum of powers, at most 10; h is as much off as ten of its steps.
        allowed = 40 * torch.finfo(torch.float32).eps * 10 * wanted.detach().abs().sum((0, 1))
        assert bool(((found - want).abs() <= allowed).all())
    with torch.no_grad():
        given = torch.ones(3, 70, 5)
        gradient = operators[f"recurrence::_{own.line.name}_grad"]
        text = str(gradient.plan(given, r, given))
        assert "p1, grad_r, grad_x: own loop" in text
        assert "grad_r is added up" in text


@pytest.mark.usefixtures("looped")
def test_an_infinite_total_is_no_nan() -> None:
    own = pb.operator("recurrence::infinite(r[d], x[t, d]) -> h[t, d] = r*pad(h[t - 1, d]) + x")
    r = torch.ones(4, requires_grad=True)
    x = torch.ones(5, 4)
    x[2, 1] = torch.inf
    (found,) = torch.autograd.grad(own(r, x).sum(), r)
    torch.testing.assert_close(found, torch.tensor([20.0, torch.inf, 20, 20]))


@pytest.mark.usefixtures("looped")
def test_an_output_may_sum_over_what_it_reads_at_the_same_step() -> None:
    """The sum has a loop, which comes after the state has been stored."""
    own = pb.operator(
        "recurrence::after(x[t, d], c[k]) -> y[t, d] = h[t, d] = pad(h[t - 1, d])/2 + x; "
        "y = sum[k](sin(c*h[t, d]))"
    )
    generator = torch.Generator().manual_seed(4)
    x, c = (torch.rand(shape, dtype=DOUBLE, generator=generator) for shape in ((9, 20), (40,)))
    powers = 0.5 ** torch.arange(9, dtype=DOUBLE)
    h = torch.stack([powers[: t + 1].flip(0) @ x[: t + 1] for t in range(9)])
    assert "h, y: own loop" in str(own.plan(x, c))
    torch.testing.assert_close(own(x, c), (c * h[..., None]).sin().sum(-1))


def walk(step: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Return all states, from one of zeros on."""
    return torch.stack([*itertools.accumulate(x, step, initial=torch.zeros_like(x[0]))][1:])


# Second derivatives whose steps are a sum with a condition, read a state at a place that data
# gives, and need in two states under other conditions what is computed before them; and places
# that are themselves read of states, after the steps and within them.
SECOND: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "sum of squares": (
        "(x[t, d], w[t, d]) -> l[] = c[t, d] = pad(c[t - 1, d]) + x; l = sum[t, d](w*c**2)",
        lambda x, w: (w * x.cumsum(0) ** 2).sum(),
    ),
    "best path": (
        "(x[t, d], w[d, d]) -> v[t, d] = max[e](pad(v[t - 1, e]) + w[d, e]) + x",
        lambda x, w: walk(lambda v, now: (v + w).amax(-1) + now, x),
    ),
    "normalised": (
        "(x[t, d], w[d, e]) -> h[t, d] = u[t, d] = sum[e](w[d, e]*pad(h[t - 1, e])) + x;"
        " h = u/sqrt(1 + sum[k](u[t, k]**2))",
        lambda x, w: walk(
            lambda h, now: (h @ w.T + now) / (1 + (h @ w.T + now).square().sum()).sqrt(), x
        ),
    ),
    "greatest at last": (
        "(x[t, d], w[d, d]) -> l[] = v[t, d] = max[e](pad(v[t - 1, e]) + w[d, e]) + x;"
        " l = max[d](v[size(t) - 1, d])",
        lambda x, w: walk(lambda v, now: (v + w).amax(-1) + now, x)[-1].amax(),
    ),
    "fixed place": (
        "(x[t, d], w[d, e]) -> h[t, d] = tanh(x + w[d, 0]*pad(h[t - 1, 2])*pad(h[t - 1, d]))",
        lambda x, w: walk(lambda h, now: (now + w[:, 0] * h[2] * h).tanh(), x),
    ),
    "place of a part": (
        "(x[t, d], w[d, e]) -> h[t, d] = u[t, d] = x + pad(h[t - 1, d])/2;"
        " h = tanh(u[t, argmax[k](u[t, k])])*w[d, 0] + u",
        lambda x, w: walk(lambda h, now: largest(now + h / 2) * w[:, 0] + now + h / 2, x),
    ),
}


def largest(u: Tensor) -> Tensor:
    return u[u.argmax()].tanh()


@pytest.mark.ci(3)
@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("length", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_second_derivatives_are_those_of_a_loop(name: str, length: int, seed: int) -> None:
    line, loop = SECOND[name]
    operator = pb.operator(f"second::{name.split(maxsplit=1)[0]}_{length}{line}")
    x = torch.randn(length, 3, dtype=DOUBLE, requires_grad=True)
    w = torch.randn(length if "w[t" in line else 3, 3, dtype=DOUBLE, requires_grad=True)
    tangents = torch.randn_like(x), torch.randn_like(w)

    def differentiated(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        value = function(x, w)
        grad = torch.full_like(value, 0.5).requires_grad_()
        first = torch.autograd.grad(value, (x, w), grad, create_graph=True)
        second = torch.autograd.grad(
            first, (x, w, grad), tangents, allow_unused=True, materialize_grads=True
        )
        forward = torch.func.jvp(function, (x.detach(), w.detach()), tangents)[1]
        return (*first, *second, forward)

    torch.testing.assert_close(differentiated(operator), differentiated(loop))


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize(
    "name", telling({name: name for name in ("lru", "reservoir", "heat")}, ["lru"])
)
def test_loops_compute_the_gradients_of_gradients(name: str) -> None:
    """Some outputs come with the states, which are not kept; some are computed after them."""
    line, loop, _, numbers = known = RECURRENCES[name]
    own = pb.operator(f"recurrence::second_{name}{line}")
    given = known.draw()
    assert "step by step" not in str(
        own.plan(*(t.clone().requires_grad_() for t in given), *numbers)
    )
    results = (differentiate(way, given, numbers, orders=2) for way in (own, loop))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


OVER_STATES = (
    "h[t, d] = tanh(w*pad(h[t - 1, d]) + x); s[t, u] = sum[e](h[t, e]*h[u, e])/4; "
    "p[t, u] = exp(s[t, u] - max[r](s[t, r])); c[t, d] = sum[u](p[t, u]*h[u, d])/sum[u](p[t, u]); "
)
ATTENDING = {
    "attention": f"(x[t, d], w[d]) -> c[t, d] = {OVER_STATES}".rstrip("; "),
    "attention and a state": f"(x[t, d], w[d]) -> g[t, d] = {OVER_STATES}"
    "g = sin(pad(g[t - 1, d])/2 + c)",
}


def attend(x: Tensor, w: Tensor, *, has_state: bool) -> Tensor:
    h, states = torch.zeros_like(x[0]), list[Tensor]()
    for given in x:
        h = (w * h + given).tanh()
        states.append(h)
    h = torch.stack(states)
    attended = torch.softmax(h @ h.T / 4, -1) @ h
    g, found = torch.zeros_like(x[0]), list[Tensor]()
    for each in attended:
        g = (g / 2 + each).sin()
        found.append(g)
    return torch.stack(found) if has_state else attended


@pytest.mark.usefixtures("looped")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("attention", 1),
        pytest.param("attention", 2, marks=pytest.mark.thorough),
        pytest.param("attention and a state", 1, marks=pytest.mark.thorough),
    ],
)
def test_what_earlier_states_decide_comes_before_later_steps(
    name: str, orders: int, seed: int
) -> None:
    """Gradients of an attention over states summed up all scores in each step."""
    own = pb.operator(f"recurrence::{name.replace(' ', '_')}_{orders}{ATTENDING[name]}")
    x, w = (torch.randn(s, dtype=DOUBLE, requires_grad=True) for s in ((70, 5), (5,)))
    loop = functools.partial(attend, has_state=name != "attention")
    assert "step by step" not in str(own.plan(x, w))
    results = (differentiate(way, (x, w), (), orders) for way in (own, loop))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


CELL = (
    "cell(x[b, t, 2, d], w[2, d, d]) -> h[b, t, d] = "
    "z[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "n[b, t, d] = tanh(x[b, t, 1, d] + z*sum[j](w[1, d, j]*pad(h[b, t - 1, j]))); "
    "h = (1 - z)*n + z*pad(h[b, t - 1, d])"
)


def cell_steps(x: Tensor, w: Tensor) -> Tensor:
    h, found = torch.zeros_like(x[:, 0, 0]), list[Tensor]()
    for given in x.unbind(1):
        z = (given[:, 0] + h @ w[0].T).sigmoid()
        n = (given[:, 1] + z * (h @ w[1].T)).tanh()
        h = (1 - z) * n + z * h
        found.append(h)
    return torch.stack(found, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [1, 9])
@pytest.mark.parametrize("is_small", [True, False])
def test_gates_that_no_gradient_decides_are_computed_before_its_steps(
    steps: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first step they read a state that is not there, where nothing needs them."""
    if not is_small:
        monkeypatch.setattr(recur, "FEW", 0)
    own = pb.operator(f"recurrence::{CELL.replace('cell', f'cell{steps}{is_small}')}")
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(2, steps, 2, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    w = torch.randn(2, 5, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    results: list[list[Tensor]] = []
    for way in (own, cell_steps):
        y = way(x, w)
        first = torch.autograd.grad(y.sin().sum(), [x, w], create_graph=True)
        second = torch.autograd.grad(total_of([g.square() for g in first]), [x, w])
        results.append([y, *first, *second])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        text = str(operators[f"recurrence::_{own.line.name}_grad"].plan(y, x, w, own(x, w)))
    assert "part1" in text


RNN = "rnn(x[b, t, d], w[d, j]) -> h[b, t, d] = tanh(x + sum[j](w[d, j]*pad(h[b, t - 1, j])))"
HEADS = (
    "heads(x[b, n, t, d], w[n, d, j]) -> h[b, n, t, d] = "
    "tanh(x + sum[j](w[n, d, j]*pad(h[b, n, t - 1, j])))"
)
LSTM = (
    "lstm(x[b, t, 4, d], w[4, d, d]) -> h[b, t, d] = "
    "i[b, t, d] = sigmoid(x[b, t, 0, d] + sum[j](w[0, d, j]*pad(h[b, t - 1, j]))); "
    "f[b, t, d] = sigmoid(x[b, t, 1, d] + sum[j](w[1, d, j]*pad(h[b, t - 1, j]))); "
    "g[b, t, d] = tanh(x[b, t, 2, d] + sum[j](w[2, d, j]*pad(h[b, t - 1, j]))); "
    "o[b, t, d] = sigmoid(x[b, t, 3, d] + sum[j](w[3, d, j]*pad(h[b, t - 1, j]))); "
    "c[b, t, d] = f*pad(c[b, t - 1, d]) + i*g; h = o*tanh(c)"
)


def rnn_by_torch(x: Tensor, w: Tensor) -> Tensor:
    d = x.shape[-1]
    cell = torch.nn.RNN(d, d, bias=False, batch_first=True, dtype=DOUBLE)
    given: dict[str, Tensor] = {"weight_ih_l0": torch.eye(d, dtype=DOUBLE), "weight_hh_l0": w}
    return torch.func.functional_call(cell, given, (x,))[0]


MEAN = (
    "mean(x[b, t, d], w[d, j]) -> (h[b, t, d], m[b, t]) = (tanh(x + sum[j](w[d, j]"
    "*pad(h[b, t - 1, j]))*(1 + pad(m[b, t - 1]))), 0.5*pad(m[b, t - 1]) + mean[d](h))"
)


def mean_steps(x: Tensor, w: Tensor) -> Tensor:
    h, m, found = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0, 0]), list[Tensor]()
    for given in x.unbind(1):
        h = torch.tanh(given + h @ w.T * (1 + m[:, None]))
        m = 0.5 * m + h.mean(1)
        found.append(torch.cat([h, m[:, None]], 1))
    return torch.stack(found, 1)


def heads_by_torch(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([rnn_by_torch(*each) for each in zip(x.unbind(1), w, strict=True)], 1)


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize(
    ("line", "reference", "heads", "width"),
    [
        (RNN, rnn_by_torch, (), 21),
        (RNN, rnn_by_torch, (), 128),
        pytest.param(HEADS, heads_by_torch, (3,), 21, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(
    "batch", [*(pytest.param(b, marks=pytest.mark.thorough) for b in (1, 11)), 47]
)
def test_rows_of_a_batch_share_what_a_step_reads(
    line: str, reference: Callable[..., Tensor], heads: tuple[int, ...], width: int, batch: int
) -> None:
    """Several rows go side by side, some twice where they do not come out even.

    A matrix whose rows are a power of two apart is laid out anew. Costs three seconds of the
    compiler.
    """
    own = pb.operator(f"recurrence::batch_of_{batch}_{width}_{line}")
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, *heads, 5, width, dtype=DOUBLE, generator=generator, requires_grad=True)
    w = torch.randn(*heads, width, width, dtype=DOUBLE, generator=generator, requires_grad=True)
    results: list[Sequence[Tensor]] = []
    for way in (own, reference):
        y = way(x, w)
        results.append([y, *torch.autograd.grad(y.sin().sum(), [x, w])])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad(), threads(2):
        assert torch.equal(own(x, w), results[0][0])


def lstm_by_torch(x: Tensor, w: Tensor) -> Tensor:
    d = x.shape[-1]
    cell = torch.nn.LSTM(4 * d, d, bias=False, batch_first=True, dtype=DOUBLE)
    weights = torch.eye(4 * d, dtype=DOUBLE), w.flatten(0, 1)
    given: dict[str, Tensor] = dict(zip(("weight_ih_l0", "weight_hh_l0"), weights, strict=True))
    return torch.func.functional_call(cell, given, (x.flatten(2),))[0]


@pytest.mark.usefixtures("looped")
@pytest.mark.parametrize(
    ("line", "reference", "gates"),
    [(RNN, rnn_by_torch, ()), pytest.param(LSTM, lstm_by_torch, (4,), marks=pytest.mark.thorough)],
)
def test_what_gradients_need_of_each_step_is_computed_with_the_steps(
    line: str, reference: Callable[..., Tensor], gates: tuple[int, ...], seed: int
) -> None:
    """At the first step only some of them need it."""
    own = pb.operator(f"recurrence::{line.replace('(', '_sunk(', 1)}")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 7, *gates, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    w = torch.randn(*gates, 5, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    results = [
        (y, *torch.autograd.grad(y.sin().sum(), [x, w])) for y in (own(x, w), reference(x, w))
    ]
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("looped")
def test_a_state_that_sums_up_another_one_may_read_itself(seed: int) -> None:
    """Its adjoint is no sum alone that a later step could compute."""
    own = pb.operator(f"recurrence::{MEAN}")
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 6, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    w = torch.randn(5, 5, dtype=DOUBLE, generator=generator, requires_grad=True)
    h, m = own(x, w)
    results = [
        (y, *torch.autograd.grad(y.sin().sum(), [x, w]))
        for y in (torch.cat([h, m[..., None]], 2), mean_steps(x, w))
    ]
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("many", [1, pytest.param(9, marks=pytest.mark.thorough)])
def test_a_few_long_filters_are_those_of_scipy(many: int, seed: int) -> None:
    """Each vector has its last states in variables, and the newest is added last."""
    own = pb.operator(
        f"recurrence::long{many}(x[..., t], b[3], a[3]) -> y[..., t] = b[0]*x + b[1]*pad(x[t - 1]) "
        "+ b[2]*pad(x[t - 2]) - a[1]*pad(y[t - 1]) - a[2]*pad(y[t - 2])"
    )
    b, a = torch.tensor([0.2, 0.3, 0.2], dtype=DOUBLE), torch.tensor([1, -0.6, 0.3], dtype=DOUBLE)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(many, 90, dtype=DOUBLE, generator=generator, requires_grad=True)
    y = own(x, b, a)
    torch.testing.assert_close(y, torch.from_numpy(scipy.signal.lfilter(b, a, x.detach())))
    grad = torch.randn(many, 90, dtype=DOUBLE, generator=generator)
    (found,) = torch.autograd.grad(y, x, grad)
    turned = np.asarray(scipy.signal.lfilter(b, a, grad.flip(1)))[:, ::-1].copy()
    torch.testing.assert_close(found, torch.from_numpy(turned))


def test_states_in_variables_are_right_on_narrow_registers(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Sixteen lanes are one vector of the widest registers, and several of those of most CPUs."""
    macros = backends.cpu.macros_of
    monkeypatch.setattr(
        backends.cpu, "macros_of", lambda *given: {**macros(*given), "PULLBACK_WIDEST": 16}
    )
    own = pb.operator(f"recurrence::narrow_{LRU}")
    generator = torch.Generator().manual_seed(seed)
    a, x, h0 = (torch.rand(shape, generator=generator) for shape in [(2, 70, 15)] * 2 + [(2, 15)])
    torch.testing.assert_close(own(a, x, h0), recurrences.lru(a, x, h0))


@pytest.mark.parametrize("rows", [3, 33])
def test_a_product_of_all_so_far_has_its_gradient_at_zeros(rows: int, seed: int) -> None:
    """Rows are computed one after the other, also where there are many."""
    own = pb.operator(f"recurrence::prod{rows}(x[b, t]) -> y[b, t] = x*pad(y[b, t - 1], 1)")
    x = torch.rand(rows, 80, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)) + 0.5
    x[1, 4], x[2, 0], x[2, 7] = 0, 0, 0
    x.requires_grad_()
    found, wanted = (
        torch.autograd.grad(y.sin().sum(), x)[0] for y in (own(x), torch.cumprod(x, 1))
    )
    torch.testing.assert_close(found, wanted)


def test_gates_of_halves_are_as_wide_as_states() -> None:
    own = pb.operator(f"recurrence::{CELL.replace('cell', 'half_cell')}")
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(2, 70, 2, 8, generator=generator).bfloat16().requires_grad_()
    w = (torch.randn(2, 8, 8, generator=generator) / 3).bfloat16().requires_grad_()
    found = torch.autograd.grad(own(x, w).sum(), [x, w])
    wanted = torch.autograd.grad(cell_steps(x.double(), w.double()).sum(), [x, w])
    for own_gradient, exact in zip(found, wanted, strict=True):
        assert own_gradient.dtype == torch.bfloat16
        # h is rounded once where it is saved.
        worst = (own_gradient.double() - exact.double()).abs().max()
        assert worst <= 0.03 * exact.abs().max()


def test_the_plan_says_what_runs_in_order_and_what_is_kept(ss: Operator) -> None:
    shapes = ((2, 70, 8), (8, 16), (2, 70, 16), (2, 70, 16), (2, 70, 8))
    given = [torch.rand(shape) for shape in shapes]
    text = str(ss.plan(*given))
    assert "h, y: own loop, recurrence ('t' in order" in text
    assert "of 'h' the last 2 steps are kept" in text
    assert "'t' in reverse order" in text


@pytest.mark.usefixtures("looped")
def test_an_output_may_sum_over_other_lanes_than_those_of_its_state(seed: int) -> None:
    """The lanes of the sum are not neighbours in memory, where the kernel has written them."""
    own = pb.operator(
        "recurrence::other_lanes(x[t, d, i], w[d, d]) -> (h[t, d, i], s[t]) = h = x + "
        "sum[k](w[d, k]*pad(h[t - 1, k, i])) + 0.5*pad(h[t - 1, d, i - 1]); "
        "s = sum[d](exp(sum[i](h[t, d, i]*x[t, d, i])))"
    )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 20, 9, generator=generator, dtype=DOUBLE)
    w = torch.randn(20, 20, generator=generator, dtype=DOUBLE) / 20
    h, sums = torch.zeros_like(x[0]), list[Tensor]()
    for given in x:
        h = given + w @ h + 0.5 * torch.nn.functional.pad(h, (1, -1))
        sums.append((h * given).sum(1).exp().sum())
    torch.testing.assert_close(own(x, w)[1], torch.stack(sums))
    assert "h, s: own loop" in str(own.plan(x, w))


@pytest.mark.usefixtures("looped")
def test_of_a_state_that_is_read_at_its_last_step_that_one_alone_is_kept(seed: int) -> None:
    final = pb.operator(
        "recurrence::final(x[t, d], h0[d]) -> y[d] = h[t, d] = x*tanh(h[t - 1, d]);"
        " h[-1, d] = h0; y = exp(h[size(t) - 1, d])"
    )

    def loop(x: Tensor, h: Tensor) -> Tensor:
        for value in x:
            h = value * h.tanh()
        return h.exp()

    generator = torch.Generator().manual_seed(seed)
    for steps in (1, 2, 9, 70):
        shapes = ((steps, 21), (21,))
        given = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        for each in given:
            each.requires_grad_()
        pairs = [(f(*given), f) for f in (final, loop)]
        torch.testing.assert_close(pairs[0][0], pairs[1][0])
        grads = [torch.autograd.grad(value.sum(), given) for value, _ in pairs]
        torch.testing.assert_close(grads[0], grads[1])
    text = str(final.plan(*given))
    assert "of 'h' the last 2 steps are kept" in text
    assert "of 'l_h' the last step is kept" in text


def test_the_cost_is_that_of_all_steps(lru: Operator, ss: Operator) -> None:
    a, h0 = torch.empty(2, 70, 8, device="meta"), torch.empty(2, 8, device="meta")
    cost = lru.cost(a, a, h0)
    many = 2 * 70 * 8
    assert (cost.flops, cost.read, cost.written) == (2 * many, 4 * (2 * many + 16), 4 * many)
    shapes = ((2, 70, 8), (8, 16), (2, 70, 16), (2, 70, 16), (2, 70, 8))
    cost = ss.cost(*(torch.empty(shape, device="meta") for shape in shapes))
    # Of an element of the state: dt*A, its exponential, two products, a sum; dt*B, and y's two.
    assert cost.flops == (1 + 10 + 2 + 1 + 1 + 2) * many * 16
    assert cost.written == 4 * many
    with FlopCounterMode(display=False) as counter:
        lru(*(torch.ones(shape) for shape in ((2, 70, 8), (2, 70, 8), (2, 8))))
    assert counter.get_total_flops() == 2 * many


def test_a_recurrence_is_split_where_no_step_mixes_processes(lru: Operator, ss: Operator) -> None:
    ways = {way.split: way for way in lru.kind.placements()}
    assert [name for name, way in ways.items() if way.reason is None] == ["...", "d"]
    (over,) = [way for way in ss.kind.placements() if way.split == "s"]
    assert [str(place) for place in over.outputs] == ["partial(sum)"]
    heat = pb.operator(
        "recurrence::heat(u0[x], k[x], time[t]) -> u[t, x] = u[t-1, x] + "
        "k*(pad(u[t-1, x+1]) - 2*u[t-1, x] + pad(u[t-1, x-1])); u[-1, x] = u0"
    )
    assert all(way.reason for way in heat.kind.placements())


def test_pytorch_alone_computes_the_same_where_there_is_no_compiler(
    lru: Operator, ss: Operator
) -> None:
    generator = torch.Generator().manual_seed(2)
    window = pb.operator(
        "recurrence::window(x[..., t], c[4]) -> y[..., t] = x + sum[k < 4](c[k]*pad(y[t - 1 - k]))"
    )
    cases = [
        (lru, ((2, 5, 3), (2, 5, 3), (2, 3))),
        (ss, ((2, 5, 3), (3, 2), (2, 5, 2), (2, 5, 2), (2, 5, 3))),
        (window, ((2, 6), (4,))),
    ]
    for own, shapes in cases:
        given = [torch.rand(s, generator=generator, dtype=DOUBLE).requires_grad_() for s in shapes]
        results: list[list[Tensor]] = []
        assert isinstance(own.kind, Recurrent)
        for way in (own, own.kind.in_pytorch()):
            y = way(*given)
            assert isinstance(y, Tensor)
            results.append([y, *torch.autograd.grad(y.square().sum(), given)])
        for found, wanted in zip(*results, strict=True):
            torch.testing.assert_close(found, wanted)


def test_small_calls_follow_their_data_each_time() -> None:
    """From the third on, a call's operations are replayed."""
    own = pb.operator(
        "recurrence::followed(x[t, n], i[n]: int64) -> h[t, n] = 0.5*pad(h[t - 1, i[n]], 1) + x"
    )
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        x = torch.randn(4, 3, dtype=DOUBLE, generator=generator).requires_grad_()
        index = torch.randint(-1, 4, (3,), generator=generator)
        h, found = torch.ones(3, dtype=DOUBLE), list[Tensor]()
        for t, row in enumerate(x):
            inside = (index >= 0) & (index < 3) & (t > 0)
            h = 0.5 * torch.where(inside, h[index.clamp(0, 2)], 1) + row
            found.append(h)
        results = own(x, index), torch.stack(found)
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in results))


def test_operators_whose_steps_look_alike_have_sizes_of_their_own() -> None:
    """A first step is 0, read from no tensor: how many zeros follows from the sizes alone."""
    one = pb.operator("recurrence::rows(x[t, b]) -> y[t, b] = where(t == 0, 0.0, y[t - 1, b]*x)")
    other = pb.operator(
        "recurrence::columns(x[b, t]) -> y[b, t] = where(t == 0, 0.0, y[b, t - 1]*x)"
    )
    for own in (one, other, one, other, one, other):
        for shape in ((4, 5), (5, 4)):
            torch.testing.assert_close(own(torch.ones(shape)), torch.zeros(shape))


@pytest.mark.parametrize("is_looped", [False, True])
def test_a_gradient_in_a_sum_of_another_has_indices_of_its_own(
    monkeypatch: pytest.MonkeyPatch, seed: int, *, is_looped: bool
) -> None:
    """What arrives by `o` has a place that is searched for, and is read in the sum over d."""
    monkeypatch.setattr(recur, "FEW", 0 if is_looped else 2**60)
    own = pb.operator(
        f"inlined::mixed{is_looped:d}(x[t, j, d], M[d, e]) -> (h[t, j, d], o[t, d]) = "
        "h = x + sin(pad(h[t - 1, j, d]) + sum[e](M[d, e]*pad(h[t - 1, j - 1, e]))); "
        "o = max[j](h[t, j, d])"
    )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 4, 3, dtype=DOUBLE, generator=generator).requires_grad_()
    m = torch.randn(3, 3, dtype=DOUBLE, generator=generator).requires_grad_()
    steps = [x[0]]
    for given in x[1:]:
        beside = torch.nn.functional.pad(steps[-1], (0, 0, 1, -1))
        steps.append(given + (steps[-1] + beside @ m.T).sin())
    h = torch.stack(steps)
    wanted, found = (h, h.max(1).values), own(x, m)
    for several in (wanted, found):
        torch.testing.assert_close(several, wanted)
    gradients = (
        torch.autograd.grad([value.square().sum() for value in several], (x, m))
        for several in (found, wanted)
    )
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want)


def test_short_calls_have_a_loop_in_the_end(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Step by step they take longer than a loop in Python, each time. Costs a compilation."""
    monkeypatch.setattr(recur, "OFTEN", 40)
    own = pb.operator(
        "recurrence::short(a[t, d], x[t, d], h0[d]) -> h[t, d] = a*h[t - 1, d] + x; "
        "h[-1, d] = h0[d]"
    )
    stepped: list[object] = []
    step, rest = recur.compute_group, RecurrentCall.compute_rest
    monkeypatch.setattr(recur, "compute_group", lambda *given: stepped.append(1) or step(*given))
    monkeypatch.setattr(
        RecurrentCall, "compute_rest", lambda *given: stepped.append(1) or rest(*given)
    )

    def call(steps: int) -> int:
        """Return how often PyTorch's operations compute states in a call, or what is made of them.

        The gradient of the first one is such.
        """
        stepped.clear()
        shapes = ((steps, 5), (steps, 5), (5,))
        a, x, h0 = leaves = [torch.randn(s, dtype=DOUBLE, requires_grad=True) for s in shapes]
        found = [own(a, x, h0), recurrences.lru(a[None], x[None], h0)[0]]
        torch.testing.assert_close(*found)
        gradients = (torch.autograd.grad(h.sin().sum(), leaves) for h in found)
        torch.testing.assert_close(*gradients)
        return len(stepped)

    assert call(10) == 3
    calls = [call(10) for _ in range(8)]
    assert calls[-3:] == [0, 0, 0]
    # A short one has the loop of a long one of about the same size at once.
    assert call(60) > 0
    assert call(64) == 1
    assert [call(64) for _ in range(2)][-1] == 0
    assert call(59) == 0


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_maxima_of_many_compile_in_seconds(seed: int) -> None:
    """The gradient of a hidden Markov model of 12 states took a compiler 20 s. Costs three."""
    own = pb.operator(
        "recurrence::hmm(start[s], move[s, s], emit[b, t, s]) -> a[b, t, s] = "
        "top[b, t, s] = stop(max[r](pad(a[b, t - 1, r]) + move[r, s])); "
        "a = emit + where(t == 0, start[s], top[b, t, s] + "
        "log(sum[r](exp(pad(a[b, t - 1, r]) + move[r, s] - top[b, t, s]))))"
    )
    shapes = ((12,), (12, 12), (3, 70, 12))
    start, move, emit = (torch.randn(s, dtype=DOUBLE).requires_grad_() for s in shapes)
    steps = [start + emit[:, 0]]
    for each in emit.unbind(1)[1:]:
        steps.append(each + (steps[-1][:, :, None] + move).logsumexp(1))
    found, wanted = own(start, move, emit), torch.stack(steps, 1)
    torch.testing.assert_close(found, wanted)
    given = (start, move, emit)
    gradients = (torch.autograd.grad(value.sin().sum(), given) for value in (found, wanted))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("line", "parameters", "outputs"),
    [
        pytest.param(
            "(D[i, j], g: float) -> R[i, j] = D - g*logaddexp(-R[i - 1, j - 1]/g, "
            "logaddexp(-R[i - 1, j]/g, -R[i, j - 1]/g)); R[-1, -1] = 0; R[-1, j] = inf; "
            "R[i, -1] = inf",
            "g: float, R[i, j], grad[i, j]",
            "grad_D[i, j]",
            id="dtw",
        ),
        pytest.param(
            "(x[t], a[], h0[2]) -> h[t] = x + a*h[t - 2]; h[-1] = h0[1]; h[-2] = h0[0]",
            "a[], h0[2], h[t], grad[t]",
            "(grad_x[t], grad_a[], grad_h0[i < 2])",
            id="two back",
        ),
    ],
)
def test_a_derivative_as_it_is_shown_is_a_line_as_well(
    line: str, parameters: str, outputs: str, request: pytest.FixtureRequest
) -> None:
    """A user gives what `derivative()` prints to `pb.operator`. Costs nothing."""
    name = f"shown{request.node.callspec.id.split()[0]}"
    shown = pb.operator(f"recurrence::{name}{line}").derivative().computed
    pb.operator(f"recurrence::{name}_again({parameters}) -> {outputs} = {shown}")
