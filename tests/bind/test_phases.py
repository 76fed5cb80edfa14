"""Gradients of what is read at multiples of an index: a few terms each, whatever is beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.backends import Backend, CpuBackend, CudaBackend
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import derived, notation
from tests.bind.test_index_loops import sizes_for
from tests.telling import telling

# How long a window is, and from one to the next: they touch, overlap, leave something out.
WINDOWS = [(2, 2), (3, 2), (1, 2), (5, 2), (4, 4), (7, 3), (2, 5), (9, 9), (15, 2), (3, 20)]
# Around the lanes of vectors of either type, with and without something left at the end.
LENGTHS = (1, 2, 7, 15, 16, 17, 30, 31, 32, 33, 34, 63, 65, 129, 200)


def unfolded(x: Tensor, window: int, step: int) -> Tensor:
    return x.unfold(-1, window, step)


def compare(op: Callable[..., Tensor], peer: Callable[..., Tensor], x: Tensor) -> None:
    """Compare a gradient with that of PyTorch in double precision."""
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    value, want = op(leaf), peer(exact)
    grad = torch.randn(want.shape, dtype=torch.float64).to(x.dtype)
    [found] = torch.autograd.grad(value, leaf, grad)
    [theirs] = torch.autograd.grad(want, exact, grad.double())
    digits = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}[x.dtype]
    torch.testing.assert_close(found.double(), theirs, rtol=digits, atol=digits)


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    "window", telling({f"{w} by {s}": (w, s) for w, s in WINDOWS}, ["3 by 2", "2 by 5"])
)
def test_windows_of_any_length_and_step(window: tuple[int, int], seed: int) -> None:
    """Costs two seconds of the compiler for each."""
    length, step = window
    name = f"test::phases_{length}_{step}"
    line = f"(x[n, t]) -> y[n, s] = sum[k < {length}](x[n, {step}*s + k]**2*(k + 1))"
    weights = torch.arange(1, length + 1, dtype=torch.float64)
    op = pb.operator(name + line)
    for t in LENGTHS:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            if t >= length:
                x = torch.randn(3, t).to(dtype)
                compare(op, lambda x: unfolded(x, length, step).square() @ weights, x)


LINES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "differences of pairs": (
        "y[n, i < size(t)//2] = (x[n, 2*i] - x[n, 2*i + 1])/2",
        lambda x: (x[:, 0 : x.shape[1] // 2 * 2 : 2] - x[:, 1::2]) / 2,
    ),
    "every third": (
        "y[n, i < (size(t) + 2)//3] = x[n, 3*i]*2",
        lambda x: x[:, ::3] * 2,
    ),
    "every second from behind": (
        "y[n, i < (size(t) + 1)//2] = x[n, size(t) - 1 - 2*i]",
        lambda x: x.flip(1)[:, ::2],
    ),
    "greatest of windows": (
        "y[n, s] = max[k < 3](x[n, 2*s + k])",
        lambda x: unfolded(x, 3, 2).max(-1).values,
    ),
}


@pytest.mark.parametrize("name", telling({n: n for n in LINES}, ["every second from behind"]))
def test_what_is_read_at_multiples(name: str, seed: int) -> None:
    """Two sums over multiples, one for each of a pair, took 40 times as long as PyTorch's."""
    text, peer = LINES[name]
    op = pb.operator(f"test::multiples_{name.replace(' ', '_')}(x[n, t]) -> {text}")
    for t in LENGTHS[2:]:
        for dtype in (torch.float32, torch.float64):
            compare(op, peer, torch.randn(3, t, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_what_is_read_beside_has_any_dtype(dtype: torch.dtype, seed: int) -> None:
    """Costs a second of the compiler each."""
    kind = str(dtype)[6:]
    value = (
        "where(m, pad(x[n, 2*i]), 0)" if dtype == torch.bool else "where(m > 1, pad(x[n, 2*i]), 0)"
    )
    op = pb.operator(f"test::beside_{kind}(x[n, t], m[n, i]: {kind}) -> y[n, i] = {value}")
    for t in (2, 17, 34, 66, 131):
        mask = torch.randint(2 if dtype == torch.bool else 4, (3, t // 2)).to(dtype)
        chosen = mask if dtype == torch.bool else mask > 1
        compare(
            lambda x, mask=mask: op(x, mask),
            lambda x, chosen=chosen: torch.where(chosen, x[:, : chosen.shape[1] * 2 : 2], 0),
            torch.randn(3, t),
        )


@pytest.mark.thorough
@pytest.mark.parametrize("name", LINES)
def test_a_gpu_computes_the_same(name: str, seed: int) -> None:
    """Each of its threads divides its own place. Costs two seconds of the compiler."""
    text, peer = LINES[name]
    op = pb.operator(f"test::on_gpu_{name.replace(' ', '_')}(x[n, t]) -> {text}")
    with pb.cuda.on_cpu():
        for t in (3, 7, 33, 129, 600):
            x = torch.randn(3, t).cuda()
            compare(op, peer, x)
            compare(op, peer, x.t().contiguous().t())


@pytest.mark.parametrize("backend", [CpuBackend(), CudaBackend("sm_90")], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", list(LINES)[:3])
def test_their_loops_do_little_for_an_element(name: str, backend: Backend) -> None:
    found = derived.backward(notation.parse(parse.parse(f"demo::m(x[n, t]) -> {LINES[name][0]}")))
    assert found
    sizes = sizes_for(found.formula, {"n": 500, "t": 2000, "i": 1000, "s": 999})
    present = frozenset(parameter.name for parameter in found.formula.line.parameters)
    own = nests.find(found.formula, torch.float32, (0,), present, sizes, backend)
    assert isinstance(own, Own), own
    # Neighbours are computed by neighbours.
    assert {step.candidate.nests[0][0].lane for step in own.schedules} == {"t"}
    assert own.work(sizes) < 40 * 500 * 2000


def test_an_index_that_is_divided_is_a_number_too(seed: int) -> None:
    """On a GPU it is one for each thread. Costs 3 s."""
    op = pb.operator("test::divided(x[n, m]) -> y[n, m] = x*(m//2) + (n - 5)//7")
    x = torch.randn(19, 150)
    columns, rows = torch.arange(150) // 2, (torch.arange(19) - 5) // 7
    want = x * columns + rows[:, None]
    torch.testing.assert_close(op(x), want)
    with pb.cuda.on_cpu():
        torch.testing.assert_close(op(x.cuda()).cpu(), want)
