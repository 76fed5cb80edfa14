"""Maxima of windows: each window adds its gradient where its greatest element is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pullback as pb
from pullback.bind.loops import nests
from pullback.bind.loops.backends import CpuBackend
from pullback.bind.loops.nests import Own
from pullback.define import parse
from pullback.define.math import notation
from pullback.define.math.statistics import keep_rows
from tests.bind.test_index_loops import sizes_for
from tests.telling import telling
from tests.threads import threads

# A line, PyTorch's own for it, and the shapes of calls: lengths around those of vectors.
LINES: dict[str, tuple[str, Callable[[Tensor], Tensor], list[tuple[int, ...]]]] = {
    "one by one": (
        "(x[c, t]) -> y[c, s] = max[p < 3](x[c, s + p])",
        lambda x: functional.max_pool1d(x, 3, 1),
        [(1, 3), (2, 18), (3, 35), (40, 701)],
    ),
    "overlapping by 2": (
        "(x[b, c, h, w]) -> y[b, c, i, j] = max[p < 3, q < 3](x[b, c, 2*i + p, 2*j + q])",
        lambda x: functional.max_pool2d(x, 3, 2),
        [(1, 1, 3, 3), (2, 3, 8, 34), (8, 5, 33, 57)],
    ),
    "apart, and the least": (
        "(x[c, h, w]) -> y[c, i, j] = -2*min[p < 2, q < 3](x[c, 3*i + p, j + q])",
        lambda x: 2 * functional.max_pool2d(-x, (2, 3), (3, 1)),
        [(1, 2, 3), (3, 9, 20), (5, 33, 70)],
    ),
    "of three indices": (
        "(x[c, d, h, w]) -> y[c, k, i, j] ="
        " max[r < 2, p < 2, q < 3](x[c, 2*k + r, 2*i + p, 2*j + q])",
        lambda x: functional.max_pool3d(x, (2, 2, 3), 2),
        [(1, 2, 2, 3), (3, 5, 6, 37), (4, 8, 9, 70)],
    ),
    "of an image alone": (
        "(x[h, w]) -> y[i, j] = max[p < 5, q < 2](x[i + p, 2*j + q])",
        lambda x: functional.max_pool2d(x[None], (5, 2), (1, 2))[0],
        [(5, 2), (9, 34), (70, 131)],
    ),
    "of a square that is scaled": (
        "(x[c, t], a: float = 3.0) -> y[c, s] = a*max[p < 4](x[c, 2*s + p]**2)",
        lambda x: 3 * functional.max_pool1d(x.square(), 4, 2),
        [(1, 4), (3, 38), (7, 131)],
    ),
}


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    "name", telling({name: name for name in LINES}, ["one by one", "apart, and the least"])
)
def test_values_and_gradients_are_those_of_pytorch(name: str, seed: int) -> None:
    """Costs two to four seconds of the compiler for each line."""
    line, peer, shapes = LINES[name]
    op = pb.operator(f"test::windows_{name.replace(' ', '_').replace(',', '')}{line}")
    for shape in shapes:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.randn(shape).to(dtype).requires_grad_()
            exact = x.detach().double().requires_grad_()
            value, want = op(x), peer(exact)
            grad = torch.randn(want.shape).to(dtype)
            found = [torch.autograd.grad(op(x), x, grad)[0] for _ in range(2)]
            [theirs] = torch.autograd.grad(want, exact, grad.double())
            # Values of bfloat16 are often equal in a window, and both take the first.
            digits = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
            torch.testing.assert_close(value.double(), want, rtol=digits, atol=digits)
            torch.testing.assert_close(found[0].double(), theirs, rtol=digits, atol=digits)
            with threads(3):
                found.append(torch.autograd.grad(op(x), x, grad)[0])
            assert torch.equal(found[0], found[1])
            assert torch.equal(found[0], found[2])


# Windows that are said by comparisons, and by what is padded: of the latter each adds its own.
SENT = {
    "compared": "t == 2*i + k[c, i] and t - 2*i >= 0 and t - 2*i < 3, g[c, i]*w[0], 0",
    "padded": "t == 2*i + k[c, i], g[c, i]*pad(w[t - 2*i]), 0",
}


@pytest.mark.parametrize("window", SENT)
def test_what_data_sends_outside_is_added_nowhere(window: str, seed: int) -> None:
    """A place outside of its window would be in memory that is not the tensor's. Costs 2 s each."""
    op = pb.operator(
        f"test::sent_{window}(g[c, i], k[c, i]: int64, x[t], w[3]) -> y[c, t]"
        f" = sum[i](where({SENT[window]}))"
    )
    w = torch.ones(3)
    for many, length in ((1, 1), (9, 17), (40, 90)):
        g, k = torch.randn(5, many), torch.randint(-9, 12, (5, many))
        want = torch.zeros(5, length)
        places = 2 * torch.arange(many) + k
        is_added = (k >= 0) & (k < 3) & (places < length)
        for c, i in is_added.nonzero().tolist():
            want[c, places[c, i]] += g[c, i]
        torch.testing.assert_close(op(g, k, torch.zeros(length), w), want)


@pytest.mark.ci(3)
@pytest.mark.parametrize("sizes", [(8, 64, 56), (4, 16, 65), (500, 1, 8), (1, 64, 128)])
@pytest.mark.parametrize("window", ["2*i + p, 2*j + q", "i + p, j + q"])
def test_their_loops_do_little_for_a_window(window: str, sizes: tuple[int, int, int]) -> None:
    """The place in a window's greatest row had PyTorch's operations: 150 times the forward."""
    line = f"(x[b, c, h, w]) -> y[b, c, i, j] = max[p < 3, q < 3](x[b, c, {window}])"
    kept = keep_rows(notation.parse(parse.parse(f"demo::pooled{line}")))
    assert kept
    b, c, h = sizes
    few = (h - 3) // 2 + 1 if "2*" in window else h - 2
    # Operations for each window, of nine elements: those of the gradient were up to 600.
    for formula, most in ((kept.forward, 450), (kept.backward.formula, 130)):
        dims = sizes_for(formula, {"b": b, "c": c, "h": h, "w": h, "i": few, "j": few})
        present = frozenset(parameter.name for parameter in formula.line.parameters)
        group = tuple(range(len(formula.nodes)))
        own = nests.find(formula, torch.float32, group, present, dims, CpuBackend())
        assert isinstance(own, Own), own
        assert own.work(dims) < most * b * c * few * few
