"""Gradients on a GPU that keep few steps of a hidden state, run by CUDA on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback import PullbackError
from pullback.bind.loops import gpu
from pullback.define.math import checkpoints
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.loops import checkpoints as scan_kernels
from pullback.kernels.loops.cuda import Cuda
from tests.bind import test_recurrence_checkpoints as on_cpu
from tests.bind.cuda_modes import alone, run_watched
from tests.bind.few_states import define, gradients, keeping_all, keeps_few, large
from tests.bind.recurrences import SCAN, selective_scan

__all__ = ["large"]

pytestmark = pytest.mark.compiler

Step = Callable[..., tuple[tuple[Tensor, ...], Tensor]]


def walk(step: Step, states: tuple[Tensor, ...], steps: int, *, reverse: bool = False) -> Tensor:
    """Return what a step makes of the states before it, for each step."""
    order = range(steps)[:: -1 if reverse else 1]
    found: dict[int, Tensor] = {}
    for t in order:
        states, found[t] = step(t, *states)
    return torch.stack([found[t] for t in range(steps)], 1)


def zeros(x: Tensor, *shape: int) -> Tensor:
    return torch.zeros(len(x), *shape, dtype=x.dtype)


def gated(g: Tensor, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = g[:, t, None, None] * a * h + b[:, t, None] * x[:, t, :, None]
        return (h,), (h * h).sum(-1)

    return walk(step, (zeros(x, *a.shape),), x.shape[1])


def pair(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    def step(t: int, u: Tensor, v: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        given = b[:, t, None] * x[:, t, :, None]
        u, v = a * u + 0.1 * v + given, (0.5 * v - 0.2 * u).sin()
        return (u, v), (c[:, t, None] * u * v).sum(-1)

    return walk(step, (zeros(x, *a.shape), zeros(x, *a.shape)), x.shape[1])


def heads(a: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = a[:, t, :, None, None] * h + b[:, t, None, None] * x[:, t, ..., None]
        return (h,), (c[:, t, None, None] * h).sum(-1)

    start = zeros(x, *x.shape[2:], b.shape[-1])
    return walk(step, (start,), x.shape[1], reverse=True)


def batched(b: Tensor, x: Tensor, a: Tensor) -> Tensor:
    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = (a * h).tanh() + b[t] * x[:, t, :, None]
        return (h,), (h * h).sum((-1, -2))

    return walk(step, (zeros(x, *a.shape),), x.shape[1])


def invariant(a: Tensor, c: Tensor, x: Tensor) -> Tensor:
    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = a * h + x[:, t, :, None]
        return (h,), (c * h).sum(-1)

    return walk(step, (zeros(x, *a.shape),), x.shape[1])


def shared(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = (w * h + x[:, t, None]).tanh()
        return (h,), h * h

    return walk(step, (h0.expand(len(x), -1),), x.shape[1])


def mixed(x: Tensor, w: Tensor, h0: Tensor) -> Tensor:
    place = torch.arange(len(w), dtype=x.dtype)
    matrix = (place[:, None] * place).cos() / len(w)

    def step(t: int, h: Tensor) -> tuple[tuple[Tensor], Tensor]:
        h = (w * h + h @ matrix + x[:, t]).tanh()
        return (h,), h * h

    return walk(step, (h0.expand(len(x), -1),), x.shape[1])


def bend(u: Tensor) -> Tensor:
    wide = torch.nn.functional.pad(u, (1, 1))
    return wide[:, 2:] - 2 * u + wide[:, :-2]


def heat(k: Tensor, f: Tensor, w: Tensor) -> Tensor:
    def step(t: int, u: Tensor) -> tuple[tuple[Tensor], Tensor]:
        u = u + k * bend(u) + f[:, t]
        return (u,), u * u * w

    return walk(step, (zeros(f, f.shape[-1]),), f.shape[1])


def wave(k: Tensor, f: Tensor, w: Tensor) -> Tensor:
    def step(t: int, u: Tensor, old: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        new = 2 * u - old + k * bend(u) + f[:, t]
        return (new, u), new * new * w

    return walk(step, (zeros(f, f.shape[-1]), zeros(f, f.shape[-1])), f.shape[1])


class Case(NamedTuple):
    """A line, its loop, and the indices of what it is given."""

    line: str
    loop: Callable[..., Tensor]
    shapes: tuple[str, ...]


BEND = "k*(pad(u[b, t - 1, d + 1]) - 2*pad(u[b, t - 1, d]) + pad(u[b, t - 1, d - 1])) + f"
CASES = {
    "scan": Case(SCAN, selective_scan, ("btd", "ds", "bts", "bts", "btd")),
    # What is summed over d and s.
    "gated": Case(
        "(g[b, t], a[d, s], B[b, t, s], x[b, t, d]) -> y[b, t, d] = "
        "h[b, t, d, s] = g*a*pad(h[b, t - 1, d, s]) + B*x; y = sum[s](h*h)",
        gated,
        ("bt", "ds", "bts", "btd"),
    ),
    "pair": Case(
        "(a[d, s], B[b, t, s], C[b, t, s], x[b, t, d]) -> y[b, t, d] = "
        "u[b, t, d, s] = a*pad(u[b, t - 1, d, s]) + 0.1*pad(v[b, t - 1, d, s]) + B*x; "
        "v[b, t, d, s] = sin(0.5*pad(v[b, t - 1, d, s]) - 0.2*pad(u[b, t - 1, d, s])); "
        "y = sum[s](C*u*v)",
        pair,
        ("ds", "bts", "bts", "btd"),
    ),
    # Mamba-2's, the other way.
    "heads": Case(
        "(a[b, t, g], B[b, t, s], C[b, t, s], x[b, t, g, d]) -> y[b, t, g, d] = "
        "h[b, t, g, d, s] = a*pad(h[b, t + 1, g, d, s]) + B*x; y = sum[s](C*h)",
        heads,
        ("btg", "bts", "bts", "btgd"),
    ),
    # What all of a batch share, so that no sum over d is the outermost.
    "batched": Case(
        "(B[t, s], x[b, t, d], a[d, s]) -> y[b, t] = "
        "h[b, t, d, s] = tanh(a*pad(h[b, t - 1, d, s])) + B*x; y = sum[d, s](h*h)",
        batched,
        ("ts", "btd", "ds"),
    ),
    # A total of which no state of the way back is a part.
    "invariant": Case(
        "(a[d, s], C[d, s], x[b, t, d]) -> y[b, t, d] = "
        "h[b, t, d, s] = a*pad(h[b, t - 1, d, s]) + x; y = sum[s](C*h)",
        invariant,
        ("ds", "ds", "btd"),
    ),
    # Sums of what is in the threads' own arrays.
    "shared": Case(
        "(x[b, t], w[d], h0[d]) -> y[b, t, d] = "
        "h[b, t, d] = tanh(w*h[b, t - 1, d] + x); h[b, -1, d] = h0; y = h*h",
        shared,
        ("bt", "d", "d"),
    ),
    "mixed": Case(
        "(x[b, t, d], w[d], h0[d]) -> y[b, t, d] = h[b, t, d] = "
        "tanh(w*h[b, t - 1, d] + sum[j](h[b, t - 1, j]*cos(d*j))/size(d) + x); "
        "h[b, -1, d] = h0; y = h*h",
        mixed,
        ("btd", "d", "d"),
    ),
    "heat": Case(
        "(k[d], f[b, t, d], w[d]) -> y[b, t, d] = "
        f"u[b, t, d] = pad(u[b, t - 1, d]) + {BEND}; y = u*u*w",
        heat,
        ("d", "btd", "d"),
    ),
    "wave": Case(
        "(k[d], f[b, t, d], w[d]) -> y[b, t, d] = "
        f"u[b, t, d] = 2*pad(u[b, t - 1, d]) - pad(u[b, t - 2, d]) + {BEND}; y = u*u*w",
        wave,
        ("d", "btd", "d"),
    ),
}
# A thread's own, or what threads exchange, of x[b, t, d], w[d] and h0[d].
PLAIN = {
    name: Case(*on_cpu.CASES[name], shapes=("btd", "d", "d"))
    for name in ("cell", "ahead", "delayed", "coupled", "chained", "stencil")
}
ALL = CASES | PLAIN


def draw(
    case: Case,
    batch: int = 2,
    steps: int = 100,
    lanes: int = 37,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    sizes: Mapping[str, int] = {"b": batch, "t": steps, "d": lanes, "s": 5, "g": 3}
    generator = torch.Generator().manual_seed(steps)
    shapes = ([sizes[index] for index in shape] for shape in case.shapes)
    return [torch.rand(own, generator=generator, dtype=dtype) / 2 for own in shapes]


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ALL)
def test_a_gpu_has_the_gradients_of_a_loop(name: str) -> None:
    """Lanes end within a warp, and within a block; lengths around one block of steps and two."""
    case = ALL[name]
    own = define(case.line)
    with pb.cuda.on_cpu():
        for sizes in ((2, 1, 37), (1, 33, 70), (2, 64, 32), (2, 161, 37)):
            given = draw(case, *sizes)
            found = gradients(own, given)
            for value, wanted in zip(found, gradients(case.loop, given), strict=True):
                torch.testing.assert_close(value, wanted)
        assert keeps_few(own, *given)


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ALL)
def test_the_bits_are_the_same_whatever_the_blocks_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those of loops that keep all, sums may be in another order: over d, or of the weights."""
    case = ALL[name]
    own, few = define(case.line), (torch.float32, torch.bfloat16)
    with pb.cuda.on_cpu():
        for dtype in few if name in {"scan", "cell"} else few[:1]:
            given = draw(case, dtype=dtype)
            found = gradients(own, given)
            with monkeypatch.context() as patch:
                patch.setattr(checkpoints, "EVERY", 11)
                others = gradients(define(case.line), given)
            assert all(map(torch.equal, found, others))
            if name in PLAIN or name in {"heat", "wave"}:
                all_kept = keeping_all(case.line, given, monkeypatch)
                sure = len(found) - (name not in PLAIN)
                assert all(map(torch.equal, found[:sure], all_kept[:sure]))


RACES = ("scan", "heads", "shared", "mixed", "wave", "delayed", "chained")


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", RACES)
def test_checkpoints_of_a_gpu_have_no_race(name: str) -> None:
    own, given = define(ALL[name].line), draw(ALL[name], 2, 100, 37, torch.float32)
    with alone(own, Mode(check="race", order="random:3")):
        in_order = gradients(own, given)
        assert keeps_few(own, *given)
    with pb.cuda.on_cpu():
        for value, wanted in zip(in_order, gradients(own, given), strict=True):
            assert torch.equal(value, wanted)


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ["wave", "mixed"])
def test_a_barrier_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "write_meeting", lambda _: "")
    own, given = define(ALL[name].line), draw(ALL[name], dtype=torch.float32)
    with alone(own, Mode(check="race")), pytest.raises(PullbackError, match=r"race|PB147"):
        gradients(own, given)


@pytest.mark.thorough
@pytest.mark.usefixtures("large")
def test_a_part_of_all_lanes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny sizes have lanes beyond one block, too."""
    right = scan_kernels.CheckpointWriter.open_parts

    def whole(writer: scan_kernels.CheckpointWriter) -> list[str]:
        return [line.replace("= first, ", "= 0, ") for line in right(writer)]

    monkeypatch.setattr(scan_kernels.CheckpointWriter, "open_parts", whole)
    own, given = define(SCAN), draw(ALL["scan"], steps=40)
    with pb.cuda.on_cpu(), pytest.raises(PullbackError, match="PB147"):
        gradients(own, given)


MEMORY = """
import sys
import torch
from pullback.bind.loops import scans
from pullback.bind.math import recur
from tests.bind.few_states import define, gradients, keeps_few
from tests.bind.test_recurrence_checkpoints_gpu import ALL, draw
for least in ("LARGE", "LANES", "MANY_STEPS", "FEW"):
    setattr(recur, least, 0)
scans.LARGE_FOR_FEW = 0
for name in sys.argv[1:]:
    own, given = define(ALL[name].line), draw(ALL[name], dtype=torch.float32)
    gradients(own, given)
    assert keeps_few(own, *given)
"""
TOO_FEW = """
from pullback.bind.loops import checkpoints
right = checkpoints.count_kept
checkpoints.count_kept = lambda steps, reach: max(1, right(steps, reach) - reach.before)
"""


@pytest.mark.thorough
def test_checkpoints_of_a_gpu_stay_in_their_tensors(tmp_path: Path) -> None:
    done = run_watched(MEMORY, tmp_path, "scan", "wave", "shared", "delayed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no fault found" in done.stdout + done.stderr
    done = run_watched(TOO_FEW + MEMORY, tmp_path, "delayed")
    assert done.returncode != 0
    assert "PB223" in done.stdout + done.stderr


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nvcc compile nothing to count registers."""
    monkeypatch.setattr(gpu, "count_registers", lambda *_: None)


def plan(name: str, batch: int, steps: int, lanes: int) -> str:
    """Return what a GPU would do for the gradients."""
    sizes = {"b": batch, "t": steps, "d": lanes, "s": 16, "g": 64}
    given = (torch.empty([sizes[i] for i in shape]) for shape in ALL[name].shapes)
    return str(define(ALL[name].line).plan(*given, device="cuda"))


@pytest.mark.usefixtures("uncounted")
def test_a_plan_says_what_a_gpu_keeps_of_a_selective_scan() -> None:
    """Blocks of d are tasks, though grad_B and grad_C are sums over d."""
    large = plan("scan", 2, 8000, 256)
    assert "threads share b, blocks of d, lanes along d" in large
    assert "of 'h' every 32nd state, 8.16 MB instead of 262; 16 tasks of 32 threads" in large


@pytest.mark.thorough
@pytest.mark.usefixtures("uncounted")
def test_few_threads_keep_all_states_up_to_64_mib() -> None:
    few = "all steps are kept: few threads would have all of its steps"
    assert few in plan("scan", 2, 1000, 256)
    assert few in plan("heat", 1, 1000, 2000)
    assert "all steps are kept" not in plan("scan", 64, 1000, 256)
    assert "all steps are kept" not in plan("heat", 1, 10000, 2000)


@pytest.mark.thorough
@pytest.mark.usefixtures("uncounted")
def test_heads_that_share_what_is_summed_are_tasks_of_their_own() -> None:
    """As many heads as elements of one: what leaves least to a thread is chosen."""
    assert "threads share b, g, blocks of d, lanes along d" in plan("heads", 2, 4000, 64)
